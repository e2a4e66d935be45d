//! Absorbed multi-head latent attention of many rows over the KV cache. Each row attends to the KV rows of its sequence
//! up to its own.

use super::Kernel;
use super::computes::{Attended, Attention};
use super::kv_write::{Cache, pool_files};
use super::mla_attention::{Attending, AttentionSplits, BOUND, expect_queries, matrix_files};
use super::mla_attention_matrix8::MatrixType;
use crate::error::Result;
use crate::plan::{Bound, Builder, Cost, PART_FIELDS, Tensor, VariantBuilder, readings};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/mla_attention_batch.wgsl");
const WORKGROUP: usize = 256;
/// The maximum number of queries in a workgroup, which share its reads of the cache. There are fewer if an invocation
/// would otherwise sum more than OWN_VALUES values. A query belongs to one head of one row.
const MAX_ROWS: usize = 32;
const OWN_VALUES: usize = 64;
/// The number of neighbouring invocations that share the values of a query's output.
const COLUMN_LANES: usize = 64;
/// Up to this many queries a large GPU would be partly idle without splits of the cache; the number of splits then.
const FEW_ROWS: usize = 2048;
const MANY_SPLITS: usize = 16;
/// The number of splits for more queries over a deep cache, so that the last wave of workgroups is short.
const DEEP_SPLITS: usize = 4;

pub(super) const KERNEL: Kernel = Kernel { name: "mla_attention_batch", op: OP, params: PART_FIELDS, matrices: &[] };

/// Attention of many rows, which becomes a step.
pub struct BatchAttention<'a> {
    /// The absorbed queries {rank + rotary, heads} of each row.
    pub q: &'a Tensor,
    /// The cache.
    pub cache: &'a Cache,
    /// The factor on scores.
    pub scale: f32,
    /// Whether the cache may have far more KV rows than the batch. Then dividing it into splits pays off.
    pub deep: bool,
}

/// The number of splits into which attention of `queries` queries divides the cache. `deep` says that the cache may
/// have far more KV rows than the batch has rows.
pub(crate) fn batch_splits(queries: usize, deep: bool) -> usize {
    match queries {
        ..=FEW_ROWS => MANY_SPLITS,
        _ if deep => DEEP_SPLITS,
        _ => 1,
    }
}

impl BatchAttention<'_> {
    /// The number of queries of all rows.
    fn rows(&self) -> usize {
        self.q.per_row() * self.q.rows
    }
}

impl Builder {
    /// The outputs {rank, heads} of attention of every row.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn mla_attention_batch(&mut self, label: &str, attention: &BatchAttention<'_>) -> Result<Tensor> {
        let splits = batch_splits(attention.q.per_row() * self.rows_alone(), attention.deep);
        if self.suits_row_matrices(attention.cache) {
            return self.attention_by_matrices(label, attention, splits);
        }
        if self.suits_matrices8(attention.cache) {
            return self.batch_attention_matrix8(MatrixType::F16, label, attention, splits);
        }
        self.attention_in_splits(label, attention, splits)
    }

    pub(crate) fn attention_in_splits(
        &mut self,
        label: &str,
        attention: &BatchAttention<'_>,
        splits: usize,
    ) -> Result<Tensor> {
        let BatchAttention { q, cache, .. } = *attention;
        let (rank, kv_row) = (cache.rank, Cache::row_values(cache.rank, cache.rotary));
        let (variant, rows) = by_registers(q.per_row(), kv_row, rank);
        let variant =
            variant.constant("RANK", "c", rank).constant("LATENT", "", rank / 4).file(source!("lib/over_latents.wgsl"));
        let variant = cache.chunk_files(variant);
        let by = Attending { kernel: KERNEL.name, variant, rows, together: true, bound: BOUND, unit: None };
        self.attend_rows(label, attention, by, splits)
    }

    /// Appends attention with a kernel whose workgroups compute queries of several rows.
    pub(super) fn attend_rows(
        &mut self,
        label: &str,
        attention: &BatchAttention<'_>,
        by: Attending,
        splits: usize,
    ) -> Result<Tensor> {
        let BatchAttention { q, cache, scale, .. } = *attention;
        expect_queries(by.kernel, q, cache)?;
        let y = self.tensor(label, [cache.rank, q.per_row() * q.rows]);
        let variant = by.variant.constant("Y_STRIDE", "", y.stride / 4).real("SCALE", "f", scale);
        let variant = pool_files(self.split_files(variant));
        let (variant, left, parts) = self.left_rows(label, variant, &y, splits);
        let variant = matrix_files(variant, by.unit, (cache, self.target().matrices));
        let mut bindings = self.bound_queries(q.buffer, cache);
        bindings.extend(left);
        self.align(by.rows, q.per_row());
        let blocks = attention.rows().div_ceil(by.rows);
        let left = parts.as_ref().map_or(y.bytes(), AttentionSplits::bytes);
        let cost = Cost { activations: q.bytes() + left, ..cache.cost(blocks * by.rows, readings(blocks)) };
        let y_of = |y: &Tensor| parts.as_ref().map_or(Attended::Whole(*y), |parts| Attended::Splits(parts.into()));
        let unit = by.unit.map_or(1.0, f64::from);
        let reference = Attention { q: *q, cache: *cache, scale, y: y_of(&y), bound: by.bound, unit };
        self.computes(by.kernel, reference);
        self.step_in_parts(label, variant, bindings, ([blocks, splits, 1], 0), cost)?;
        if let Some(parts) = parts {
            self.mla_merge(&format!("{label}.merge"), &parts, &y)?;
        }
        Ok(y)
    }

    /// Adds the file that writes the outputs, or the splits' results. Also returns its bindings, and the splits to
    /// merge.
    fn left_rows(
        &mut self,
        label: &str,
        variant: VariantBuilder,
        y: &Tensor,
        splits: usize,
    ) -> (VariantBuilder, Vec<Bound>, Option<AttentionSplits>) {
        if splits == 1 {
            return (variant.tagged((source!("lib/rows_whole.wgsl"), "whole")), vec![self.bound("y", y.buffer)], None);
        }
        let parts = self.parts(label, [y.shape[0], y.per_row()], splits);
        let bound = self.bound_between(&parts).into();
        (variant.file(source!("lib/rows_split.wgsl")), bound, Some(parts))
    }
}

/// The kernel for queries of `heads` heads over KV rows of `kv_row` values, with values of width `value`, and the
/// number of queries that a workgroup computes.
pub(super) fn by_registers(heads: usize, kv_row: usize, value: usize) -> (VariantBuilder, usize) {
    let rows = rows_together(value);
    let lanes = COLUMN_LANES.min((value / 4).next_power_of_two()).max(WORKGROUP / rows);
    let variant = VariantBuilder::new(KERNEL.name, OP, WORKGROUP)
        .constant("ROWS", "r", rows)
        .constant("HEADS", "h", heads)
        .constant("KV_ROW", "x", kv_row)
        .constant("COLUMN_LANES", "l", lanes);
    (variant, rows)
}

/// The number of queries of a workgroup: a power of two.
fn rows_together(value: usize) -> usize {
    let most = (OWN_VALUES * WORKGROUP / value).clamp(1, MAX_ROWS);
    1 << most.ilog2()
}
