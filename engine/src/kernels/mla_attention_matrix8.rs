//! Absorbed multi-head latent attention with cooperative matrices of 8 x 8, as on Metal, of one row, of few and of
//! many.
//!
//! An M1 or M2 multiplies f32 at the rate of f16 (philipturner/metal-benchmarks). If scores must be as exact as without
//! matrices, one product of f32 takes half the time of the two of f16 that matrices of 16 x 16 need.

use super::errors::ATTENDED;
use super::kv_write::{Cache, NAMED_SHARE_OF_HALVES, pool_files};
use super::mla_attention::{Attending, AttentionSplits, HALF_UNIT, expect_queries, matrix_files, softmax_files};
use super::mla_attention_batch::BatchAttention;
use super::{Kernel, expect_cache};
use crate::error::Result;
use crate::gpu::Matrices;
use crate::plan::{Builder, Cost, Target, Team, Tensor, VariantBuilder, readings};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/mla_attention_matrix8.wgsl");
/// Rows and columns of a cooperative matrix.
const SIDE: usize = 8;
/// The maximum number of queries in a workgroup: its invocations can hold the outputs of sixteen in registers.
const MAX_ROWS: usize = 2 * SIDE;
/// Invocations that turn a row's scores into weights.
const LANES: usize = 8;
/// The numbers of subgroups that a workgroup may have: the first that divides the columns of keys and of values evenly.
/// Expanded keys and values are narrower than latents, so a few subgroups have as much work there as many over latents.
const SUBGROUPS: [usize; 2] = [8, 4];
const SUBGROUPS_OF_SEGMENTS: [usize; 2] = [4, 8];
/// The maximum number of matrices of a KV row, and of a value, in the registers of a subgroup.
const KEY_STEPS: usize = 9;
const VALUE_TILES: usize = 8;

pub(super) const KERNEL: Kernel =
    Kernel { name: "mla_attention_matrix8", op: OP, params: &[], matrices: &[Matrices::Eight] };

/// The type of the elements of matrices of queries, keys, weights and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MatrixType {
    F16,
    F32,
}

impl MatrixType {
    /// The library file, and its part of a shader's label.
    fn file(self) -> (Source, &'static str) {
        match self {
            Self::F16 => (source!("lib/operands_f16.wgsl"), "half"),
            Self::F32 => (source!("lib/operands_f32.wgsl"), "full"),
        }
    }

    /// The number of KV rows that a workgroup stages at a time.
    fn tile(self) -> usize {
        match self {
            Self::F16 => 2 * SIDE,
            Self::F32 => SIDE,
        }
    }

    /// The factor on weights, so that the type can represent small ones.
    fn unit(self) -> f32 {
        match self {
            Self::F16 => HALF_UNIT,
            Self::F32 => 1.0,
        }
    }

    /// The largest error of outputs, which are averages of values of about 1.
    pub(crate) fn bound(self) -> f64 {
        match self {
            Self::F16 => 2e-3,
            Self::F32 => ATTENDED,
        }
    }
}

/// Which of these numbers of subgroups divides the columns of keys and of values evenly, if any.
fn subgroups([key, value]: [usize; 2], numbers: [usize; 2]) -> Option<usize> {
    let whole = |values: usize, subgroups: usize, most: usize| {
        values.is_multiple_of(SIDE * subgroups) && values <= SIDE * subgroups * most
    };
    numbers.into_iter().find(|n| whole(key, *n, KEY_STEPS) && whole(value, *n, VALUE_TILES))
}

/// The same for the KV rows of a cache.
fn subgroups_over(cache: &Cache) -> Option<usize> {
    subgroups([Cache::row_values(cache.rank, cache.rotary), cache.rank], SUBGROUPS)
}

/// The same for keys and values of a segment, side by side, if a tile of them leaves enough memory for scores and
/// weights.
fn subgroups_over_segment(widths: [usize; 2], workgroup_bytes: usize) -> Option<usize> {
    let (tile, row) = (MatrixType::F16.tile(), widths.iter().sum::<usize>() + 32);
    let bytes = |subgroups: usize| 2 * tile * row + (4 * subgroups + 2) * MAX_ROWS * tile + 512;
    subgroups(widths, SUBGROUPS_OF_SEGMENTS).filter(|n| bytes(*n) <= workgroup_bytes)
}

/// The kernel for `rows` queries of `heads` heads over KV rows of `kv_row` values with `subgroups` subgroups, and the
/// number of queries that a workgroup computes.
fn variant_of(
    operands: MatrixType,
    [heads, rows]: [usize; 2],
    kv_row: usize,
    subgroups: usize,
) -> (VariantBuilder, usize) {
    let rows = if rows > SIDE { MAX_ROWS } else { SIDE };
    let variant = VariantBuilder::new(KERNEL.name, OP, 32 * subgroups)
        .matrices()
        .constant("ROWS", "r", rows)
        .constant("HEADS", "h", heads)
        .constant("KV_ROW", "x", kv_row)
        .constant("TILE", "t", operands.tile())
        .constant("LANES", "", LANES)
        .tagged(operands.file());
    (variant, rows)
}

impl Builder {
    /// Whether the target's matrices of 8 x 8 can compute attention over the cache.
    pub(super) fn suits_matrices8(&self, cache: &Cache) -> bool {
        self.multiplies_by_eight() && cache.ty.suits_matrices() && subgroups_over(cache).is_some()
    }

    /// Whether they can compute attention over expanded keys and values of these widths.
    pub(super) fn suits_segments8(&self, widths: [usize; 2]) -> bool {
        self.multiplies_by_eight() && subgroups_over_segment(widths, self.target().workgroup_bytes).is_some()
    }

    fn multiplies_by_eight(&self) -> bool {
        let Target { team, matrices, workgroup_bytes, .. } = *self.target_for(KERNEL.name);
        matrices == Matrices::Eight && team == Team::Subgroup && workgroup_bytes >= 32 << 10
    }

    /// The kernel over such keys and values for a batch of queries of `heads` heads, and the number of rows of one head
    /// that a workgroup computes.
    pub(super) fn segments8(&self, heads: usize, widths: [usize; 2]) -> (VariantBuilder, usize) {
        let subgroups = subgroups_over_segment(widths, self.target().workgroup_bytes).unwrap_or_default();
        let (variant, rows) = variant_of(MatrixType::F16, [heads, self.rows()], widths.iter().sum(), subgroups);
        (softmax_files(variant, MatrixType::F16.unit()).file(NAMED_SHARE_OF_HALVES), rows)
    }

    /// The kernel for `rows` queries of `heads` heads.
    fn matrices8(&self, operands: MatrixType, cache: &Cache, [heads, rows]: [usize; 2]) -> Result<Attending> {
        expect_cache(KERNEL.name, self.suits_matrices8(cache))?;
        let (kv_row, subgroups) =
            (Cache::row_values(cache.rank, cache.rotary), subgroups_over(cache).unwrap_or_default());
        let (variant, rows) = variant_of(operands, [heads, rows], kv_row, subgroups);
        let variant = variant
            .constant("RANK", "c", cache.rank)
            .constant("LATENT", "", cache.rank / 4)
            .file(source!("lib/over_latents.wgsl"));
        let (bound, unit) = (operands.bound().max(cache.ty.bound_of_halves()), Some(operands.unit()));
        Ok(Attending { kernel: KERNEL.name, variant, rows, together: true, bound, unit })
    }

    /// As [`Builder::mla_attention`].
    pub(crate) fn mla_attention_matrix8(
        &mut self,
        label: &str,
        q: &Tensor,
        cache: &Cache,
        scale: f32,
        splits: usize,
    ) -> Result<AttentionSplits> {
        let heads = q.shape[1] / self.rows();
        expect_queries(KERNEL.name, q, cache)?;
        let by = self.matrices8(MatrixType::F32, cache, [heads, q.shape[1]])?;
        let parts = self.parts(label, [cache.rank, heads], splits);
        self.attends(&by, q, cache, scale, &parts);
        let variant = pool_files(self.split_files(by.variant.real("SCALE", "f", scale)));
        let variant = variant.file(source!("lib/rows_split.wgsl"));
        let variant = matrix_files(variant, by.unit, (cache, Matrices::Eight));
        let mut bindings = self.bound_queries(q.buffer, cache);
        bindings.extend(self.bound_between(&parts));
        let (rows, blocks) = (q.shape[1].next_multiple_of(SIDE), q.shape[1].div_ceil(by.rows));
        let cost = Cost { activations: q.bytes() + parts.bytes(), ..cache.cost(rows, readings(blocks)) };
        self.step_in_parts(label, variant, bindings, ([blocks, splits, 1], 0), cost)?;
        Ok(parts)
    }

    /// As [`Builder::mla_attention_batch`], with queries and weights as `operands`.
    pub(crate) fn batch_attention_matrix8(
        &mut self,
        operands: MatrixType,
        label: &str,
        attention: &BatchAttention<'_>,
        splits: usize,
    ) -> Result<Tensor> {
        let BatchAttention { q, cache, .. } = *attention;
        let by = self.matrices8(operands, cache, [q.per_row(), q.per_row() * q.rows])?;
        self.attend_rows(label, attention, by, splits)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::kernels::CacheType;

    /// The kernels of attention over a cache on Apple's GPUs: of a token, of four, and of 512.
    fn kernels([heads, rank, rotary]: [usize; 3], ty: CacheType) -> [&'static str; 3] {
        let target = &Target { matrices: Matrices::Eight, ..Target::default() };
        let kv_row = Cache::row_values(rank, rotary);
        let kernel = |mut plan: Builder, tokens: usize| {
            let cache = plan.latent_cache(ty, rank, rotary, 64);
            if tokens > 32 {
                let q = plan.tensor_with_stride("q", [rank + rotary, heads * tokens], kv_row);
                let attention = BatchAttention { q: &q, cache: &cache, scale: 1.0, deep: false };
                plan.mla_attention_batch("attention", &attention).unwrap();
            } else {
                let q = plan.tensor_with_stride("q", [rank + rotary, heads * tokens], kv_row);
                match plan.suits_matrices(&q, &cache) {
                    true => plan.mla_attention_matrix("attention", &q, &cache, 1.0, 8).unwrap(),
                    false => plan.mla_attention("attention", &q, &cache, 1.0, 8).unwrap(),
                };
            }
            plan.finish().steps[0].kernel
        };
        let batch = |tokens: usize| kernel(Builder::for_rows(target, 1, tokens), tokens);
        [kernel(Builder::new(target, 1), 1), batch(4), batch(512)]
    }

    #[test]
    fn macs_attend_by_matrices_over_caches_of_f16() {
        for shape in [[20, 512, 64], [5, 512, 64], [16, 512, 64], [128, 512, 64], [4, 128, 32], [1, 256, 64]] {
            for ty in [CacheType::F16, CacheType::Q8_0] {
                assert_eq!(kernels(shape, ty), [KERNEL.name; 3], "{shape:?}");
            }
        }
        let without = ["mla_attention", "mla_attention", "mla_attention_batch"];
        assert_eq!(kernels([20, 512, 64], CacheType::F32), without);
        for shape in [[20, 512, 48], [20, 36, 10], [20, 1024, 64]] {
            assert_eq!(kernels(shape, CacheType::F16), without, "{shape:?}");
        }
    }
}
