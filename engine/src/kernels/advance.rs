//! The batch for the next drafts, which the GPU makes itself.

use super::accept::{DRAFTING, VERIFIED_ROWS};
use super::computes::Advanced;
use super::{Kernel, params};
use crate::error::Result;
use crate::plan::{BufferRef, Builder, Cost, Plan, RowHeader, VariantBuilder, batch_bytes};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/advance.wgsl");
const WORKGROUP: usize = 64;

params! { splits: u32 }

pub(super) const KERNEL: Kernel = Kernel { name: "advance", op: OP, params: Params::FIELDS, matrices: &[] };

impl Builder {
    /// Makes the plan's batch, a row for each of some sequences. `candidates` is a batch of up to `room` rows that the
    /// host writes, as many for each sequence as its header has splits; the index of a sequence's row among its own is
    /// the number of its drafts that were accepted or made since. The row's next token is the last of these drafts or,
    /// if there is none, the sampled token. Attention divides the cache into `splits`. Returns the local buffer of the
    /// candidates.
    ///
    /// # Errors
    /// See [`Builder::step`].
    pub fn advance(&mut self, label: &str, room: usize, splits: usize) -> Result<BufferRef> {
        let candidates = BufferRef::Local(self.setting("candidates", batch_bytes(room, self.pairs())));
        let variant = VariantBuilder::new(KERNEL.name, OP, WORKGROUP)
            .constant("PAIRS", "p", self.pairs())
            .constant("ROWS", "", VERIFIED_ROWS)
            .constant("DRAFTING", "", DRAFTING)
            .constant("SAMPLED", "", RowHeader::SAMPLED as usize)
            .constant("SAMPLED_WORDS", "", Plan::SAMPLED_WORDS);
        let bindings = vec![
            self.bound("candidates", candidates),
            self.bound_sampled(),
            self.bound("next_batch", self.bound_batch().buffer),
        ];
        let params = Params { splits: splits as u32 };
        self.computes(KERNEL.name, Advanced { candidates, splits });
        self.step(label, variant, bindings, &params, [self.rows(), 1, 1], Cost::default())?;
        Ok(candidates)
    }
}
