//! A draft: the likeliest token of the multi-token-prediction block.

use super::accept::{DRAFTING, MAX_DRAFTS, VERIFIED_ROWS};
use super::computes::Drafted;
use super::slice_max::{SLICE, Slices, candidate_files};
use super::{Kernel, params};
use crate::error::Result;
use crate::plan::{Builder, Cost, Plan, VariantBuilder};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/draft.wgsl");
const WORKGROUP: usize = 256;

params! { slices: u32 }

pub(super) const KERNEL: Kernel = Kernel { name: "draft", op: OP, params: Params::FIELDS, matrices: &[] };

impl Builder {
    /// Appends for each row the likeliest token, given the slices of its logits, to the drafts of its sequence. These
    /// follow the entries of the verified rows in [`Plan::SAMPLED`]; the row's result is the index of the first of
    /// these entries.
    ///
    /// # Errors
    /// See [`Builder::step`].
    pub fn draft(&mut self, label: &str, slices: &Slices) -> Result<()> {
        let variant = candidate_files(self.batch_files(VariantBuilder::new(KERNEL.name, OP, WORKGROUP)))
            .constant("SLICE", "", SLICE)
            .constant("SAMPLED_WORDS", "", Plan::SAMPLED_WORDS)
            .constant("ROWS", "", VERIFIED_ROWS)
            .constant("DRAFTING", "", DRAFTING)
            .constant("MAX_DRAFTS", "", MAX_DRAFTS)
            .file(source!("lib/maxima.wgsl"));
        let bindings = vec![self.bound_batch(), self.bound("maxima", slices.maxima.buffer), self.bound_sampled()];
        let params = Params { slices: slices.count() as u32 };
        self.computes(KERNEL.name, Drafted { maxima: slices.maxima });
        self.step(label, variant, bindings, &params, [self.rows(), 1, 1], Cost::of_activations(slices.maxima.bytes()))
    }
}
