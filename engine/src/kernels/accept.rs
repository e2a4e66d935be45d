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
const WORKGROUP: usize = Target::MIN_WORKGROUP;
/// The maximum number of rows in a step that verifies drafts, of one sequence or of several.
pub const VERIFIED_ROWS: usize = 32;
/// The maximum number of drafts of a sequence that a step verifies.
pub const MAX_DRAFTS: usize = 15;
/// The entries of a sequence in [`Plan::SAMPLED`] after those of verified rows: the number of its drafts that were
/// accepted, the number made since, and the drafts.
pub const DRAFTING: usize = 1 + MAX_DRAFTS.div_ceil(Plan::SAMPLED_WORDS);

pub(super) const KERNEL: Kernel = Kernel { name: "accept", op: OP, params: &[], matrices: &[] };

impl Builder {
    /// Verifies the drafts in the rows after the first one of each sequence, once a token was sampled for each row.
    /// Writes to [`Plan::SAMPLED`], for each sequence, the token that was sampled after its last accepted row and, to
    /// its [`DRAFTING`] entries after the [`VERIFIED_ROWS`] of the rows, the number of accepted drafts. The rows of a
    /// sequence are adjacent, and the first row of the batch has the first of the rows' entries.
    ///
    /// # Errors
    /// See [`Builder::step`].
    pub fn accept(&mut self, label: &str) -> Result<()> {
        let variant = self
            .token_files(VariantBuilder::new(KERNEL.name, OP, WORKGROUP))
            .constant("SAMPLED_WORDS", "", Plan::SAMPLED_WORDS)
            .constant("ROWS", "", VERIFIED_ROWS)
            .constant("DRAFTING", "", DRAFTING);
        let bindings = vec![self.bound_batch(), self.bound_sampled()];
        self.computes(KERNEL.name, Accepted);
        self.step(label, variant, bindings, &(), [1, 1, 1], Cost::default())
    }
}
