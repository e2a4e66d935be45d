//! The next token: the likeliest, or a draw.

use super::computes::Drawn;
use super::histogram::{BINS, scale};
use super::slice_max::{SLICE, Slices, candidate_files};
use super::{Kernel, params};
use crate::error::Result;
use crate::plan::{Builder, Cost, Plan, Tensor, VariantBuilder};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/sample.wgsl");
const WORKGROUP: usize = 256;

params! { count: u32, pitch: u32, slices: u32, scale: f32 }

pub(super) const KERNEL: Kernel = Kernel { name: "sample", op: OP, params: Params::FIELDS, matrices: &[] };

impl Builder {
    /// Samples from each row's logits {n, rows}, given their slices and histogram, and writes to [`Plan::SAMPLED`], for
    /// the row's sequence: the token, the likeliest token ([`NO_TOKEN`](super::NO_TOKEN) for both if no logit is a
    /// number), and the number of tokens that passed `top_k` and `top_p`.
    ///
    /// # Errors
    /// See [`Builder::step`].
    pub fn sample(&mut self, label: &str, logits: &Tensor, slices: &Slices) -> Result<()> {
        let variant = self.batch_files(VariantBuilder::new(KERNEL.name, OP, WORKGROUP));
        let variant = candidate_files(variant.file(source!("lib/sampling.wgsl")))
            .constant("BINS", "", BINS)
            .constant("SLICE", "", SLICE)
            .constant("SAMPLED_WORDS", "", Plan::SAMPLED_WORDS)
            .file(source!("lib/maxima.wgsl"))
            .file(source!("lib/order.wgsl"))
            .file(source!("lib/noise.wgsl"))
            .file(source!("lib/bins.wgsl"));
        let bindings = vec![
            self.bound_batch(),
            self.bound("maxima", slices.maxima.buffer),
            self.bound("logits", logits.buffer),
            self.bound("histogram", slices.histogram.buffer),
            self.bound_sampling(),
            self.bound_sampled(),
        ];
        let count = logits.shape[0];
        let params = Params {
            count: count as u32,
            pitch: logits.stride as u32 / 4,
            slices: slices.count() as u32,
            scale: scale(count),
        };
        let cost = Cost::of_activations(slices.maxima.bytes() + slices.histogram.bytes());
        self.computes(KERNEL.name, Drawn { logits: *logits });
        self.step(label, variant, bindings, &params, [slices.rows, 1, 1], cost)
    }
}
