//! Attention of many rows with cooperative matrices of 16 x 16.

use super::kv_write::Cache;
use super::mla_attention::{Attending, HALF_UNIT};
use super::mla_attention_batch::BatchAttention;
use super::{Kernel, expect_cache};
use crate::error::Result;
use crate::gpu::Matrices;
use crate::plan::{Builder, PART_FIELDS, Target, Team, Tensor, VariantBuilder};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/mla_attention_batch_matrix.wgsl");
const WORKGROUP: usize = 256;
/// The number of queries of a workgroup. A query belongs to one head of one row.
const ROWS: usize = 64;
/// The largest KV row and latent whose matrices fit into an invocation's registers together.
const LONGEST_KV_ROW: usize = 576;
const LARGEST_RANK: usize = 512;
/// The largest error of outputs, which are averages of values of about 1: queries and weights are rounded to f16.
pub(crate) const BOUND: f64 = 2e-3;

pub(super) const KERNEL: Kernel =
    Kernel { name: "mla_attention_batch_matrix", op: OP, params: PART_FIELDS, matrices: &[Matrices::Sixteen] };

impl Builder {
    /// Whether the target has such matrices and the cache's shape suits them.
    pub(super) fn suits_row_matrices(&self, cache: &Cache) -> bool {
        let Target { team, matrices, .. } = *self.target_for(KERNEL.name);
        let kv_row = Cache::row_values(cache.rank, cache.rotary);
        let whole = kv_row.is_multiple_of(64) && cache.rank.is_multiple_of(16 * WORKGROUP / 32);
        let fits = kv_row <= LONGEST_KV_ROW && cache.rank <= LARGEST_RANK;
        matrices == Matrices::Sixteen && team == Team::Subgroup && cache.ty.suits_matrices() && whole && fits
    }

    /// As [`Builder::mla_attention_batch`], with queries and weights as f16.
    pub(crate) fn attention_by_matrices(
        &mut self,
        label: &str,
        attention: &BatchAttention<'_>,
        splits: usize,
    ) -> Result<Tensor> {
        let BatchAttention { q, cache, .. } = *attention;
        expect_cache(KERNEL.name, self.suits_row_matrices(cache))?;
        let (rank, kv_row) = (cache.rank, Cache::row_values(cache.rank, cache.rotary));
        let variant = VariantBuilder::new(KERNEL.name, OP, WORKGROUP)
            .matrices()
            .file(source!("lib/coop16.wgsl"))
            .constant("HEADS", "h", q.per_row())
            .constant("KV_ROW", "x", kv_row)
            .constant("RANK", "c", rank)
            .constant("LATENT", "", rank / 4)
            .constant("ROWS", "", ROWS)
            .constant("LANES", "", WORKGROUP / ROWS);
        let (bound, unit) = (BOUND.max(cache.ty.bound_of_halves()), Some(HALF_UNIT));
        let by = Attending { kernel: KERNEL.name, variant, rows: ROWS, together: true, bound, unit };
        self.attend_rows(label, attention, by, splits)
    }
}
