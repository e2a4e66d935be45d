//! The verification of drafts: how many of them equal the sampled tokens.
//!
//! The KV rows of rejected drafts need no cleaning: the next step overwrites them.

use super::Kernel;
use super::computes::Accepted;
use crate::error::Result;
use crate::plan::{Builder, Cost, Plan, Target, VariantBuilder};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/accept.wgsl");
/// Only one invocation works, so the workgroup is the smallest.
const WORKGROUP: usize = Target::LEAST_WORKGROUP;
/// The most rows that are verified together.
pub const VERIFIED_ROWS: usize = 16;

pub(super) const KERNEL: Kernel = Kernel { name: "accept", op: OP, params: &[], matrices: &[] };

impl Builder {
    /// Verifies the drafts in the rows after the first one, once a token was sampled for each row. Writes to
    /// [`Plan::SAMPLED`], for the rows' sequence, the token that was sampled after the last accepted row, and, after
    /// the [`VERIFIED_ROWS`] entries of the rows, the number of accepted drafts.
    ///
    /// # Errors
    /// See [`Builder::step`].
    pub fn accept(&mut self, label: &str) -> Result<()> {
        let variant = self
            .token_files(VariantBuilder::new(KERNEL.name, OP, WORKGROUP))
            .constant("SAMPLED_WORDS", "", Plan::SAMPLED_WORDS)
            .constant("ROWS", "", VERIFIED_ROWS);
        let bindings = vec![self.bound_batch(), self.bound_sampled()];
        self.computes(KERNEL.name, Accepted { pairs: self.pairs() });
        self.step(label, variant, bindings, &(), [1, 1, 1], Cost::default())
    }
}
