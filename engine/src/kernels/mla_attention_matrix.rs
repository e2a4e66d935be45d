//! Absorbed multi-head latent attention of few rows with cooperative matrices of 16 x 16. Heads of rows of one sequence
//! share matrices, and so the KV rows that a workgroup loads.

use super::Kernel;
use super::errors::ATTENDED;
use super::kv_write::Cache;
use super::mla_attention::{Attending, AttentionSplits, HALF_UNIT, MAX_SPLITS, splits};
use crate::error::{Error, Result};
use crate::gpu::Matrices;
use crate::plan::{Builder, Target, Team, Tensor, VariantBuilder};
use crate::quant::Arithmetic;
use crate::wgsl::{Source, source};

const OP: Source = source!("op/mla_attention_matrix.wgsl");
const WORKGROUP: usize = 256;
/// The number of heads of a workgroup, which are the rows of its matrices.
const ROWS: usize = 16;
/// The number of lanes that turn a head's scores into weights. All heads are computed at once.
const LANES: usize = WORKGROUP / ROWS;
/// The number of parts into which keys are divided among subgroups, and the number of subgroups.
const KEY_PARTS: usize = 4;
const SUBGROUPS: usize = WORKGROUP / 32;
/// If heads of several rows share matrices, a plan for more tokens in the cache than this divides it into more splits.
/// With fewer tokens, the step that merges the splits would lose more time than attention gains.
const DEEP: u64 = 16 << 10;
/// The number of workgroups in such a plan: two for each core of a large GPU.
const WORKGROUPS: usize = 264;

pub(super) const KERNEL: Kernel =
    Kernel { name: "mla_attention_matrix", op: OP, params: &[], matrices: &[Matrices::Sixteen] };

impl Builder {
    /// Whether the target has matrices that suit queries {rank + rotary, heads of every row} and the cache.
    pub fn suits_matrices(&self, q: &Tensor, cache: &Cache) -> bool {
        let Target { team, matrices, .. } = *self.target_for(KERNEL.name);
        if matrices == Matrices::Eight {
            return self.one_sequence() && self.suits_matrices8(cache);
        }
        let kv_row = Cache::row_values(cache.rank, cache.rotary);
        let whole = kv_row.is_multiple_of(16 * KEY_PARTS) && cache.rank.is_multiple_of(16 * SUBGROUPS);
        // At 640 values, a KV row and the rest of a tile fill the workgroup memory.
        let fits = q.shape[1] / self.rows() >= ROWS && kv_row <= 576;
        matrices == Matrices::Sixteen && team == Team::Subgroup && cache.ty.suits_matrices() && whole && fits
    }

    /// Whether heads of several rows share matrices of 16 x 16.
    fn together(&self) -> bool {
        self.target().matrices == Matrices::Sixteen && self.rows() > 1 && self.one_sequence()
    }

    /// Into how many splits attention with matrices divides the cache.
    pub(super) fn matrix_splits(&self, heads: usize) -> usize {
        let chosen = self.target().choices.splits(self.rows());
        if chosen.is_some() || !self.together() || self.depth() <= DEEP {
            return splits(self.target(), self.rows());
        }
        (WORKGROUPS / (heads * self.rows()).div_ceil(ROWS)).clamp(8, MAX_SPLITS)
    }

    /// As [`Builder::mla_attention`]. With products of bytes, queries and weights are f16, otherwise they have the
    /// precision of f32.
    ///
    /// # Errors
    /// [`Error::Shape`] if the shapes do not fit together, or [`Builder::suits_matrices`] is false.
    pub fn mla_attention_matrix(
        &mut self,
        label: &str,
        q: &Tensor,
        cache: &Cache,
        scale: f32,
        splits: usize,
    ) -> Result<AttentionSplits> {
        if self.target().matrices == Matrices::Eight {
            return self.mla_attention_matrix8(label, q, cache, scale, splits);
        }
        let (rank, heads) = (cache.rank, q.shape[1] / self.rows());
        let kv_row = Cache::row_values(rank, cache.rotary);
        if !self.suits_matrices(q, cache) {
            let (got, want) = (
                format!("{heads} heads, kv_rows of {kv_row}, {:?}", cache.ty),
                "16 heads or more, kv_rows of whole matrices, F16 or Q8_0",
            );
            return Err(Error::Shape { op: KERNEL.name, tensor: label.to_owned(), got, want: want.to_owned() });
        }
        let together = self.together();
        let terms = if self.target().arithmetic == Arithmetic::Int { 1 } else { 2 };
        let variant = VariantBuilder::new(KERNEL.name, OP, WORKGROUP)
            .matrices()
            .file(source!("lib/coop16.wgsl"))
            .constant("HEADS", "h", heads)
            .constant("KV_ROW", "x", kv_row)
            .constant("RANK", "c", rank)
            .constant("ROWS", "", ROWS)
            .constant("PARTS", "", KEY_PARTS)
            .constant("TERMS", "p", terms)
            .switch("TOGETHER", "a", together)
            .real("SCALE", "f", scale)
            .team(Team::Subgroup, LANES);
        let bound = bound(self.target().arithmetic).max(cache.ty.bound_of_halves());
        let by = Attending { kernel: KERNEL.name, variant, rows: ROWS, together, bound, unit: Some(HALF_UNIT) };
        self.attend(label, by, q, cache, scale, splits)
    }
}

/// The largest error of outputs of about 1.
pub(crate) fn bound(arithmetic: Arithmetic) -> f64 {
    if arithmetic == Arithmetic::Int { 2e-3 } else { ATTENDED }
}
