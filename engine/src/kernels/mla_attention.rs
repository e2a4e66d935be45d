//! Absorbed multi-head latent attention of few rows over the KV cache. The KV rows are divided into splits, which
//! different workgroups compute and another step merges.

use super::computes::{Attended, Attention};
use super::errors::ATTENDED;
use super::kv_write::{Cache, pool_files};
use super::{Kernel, expect_multiple, expect_shape};
use crate::error::Result;
use crate::gpu::Matrices;
use crate::plan::{Bound, BufferRef, Builder, Cost, Target, Team, Tensor, VariantBuilder};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/mla_attention.wgsl");
/// The maximum number of invocations in a workgroup.
const WORKGROUP: usize = 128;
/// The number of KV rows in a tile, whose scores are in workgroup memory at once.
pub(crate) const SPAN: usize = 32;
/// The number of heads of a workgroup, which share its reads of the cache.
const HEADS: usize = 4;
/// The number of lanes that compute a score together.
const LANES: usize = 8;
/// The maximum number of bytes of queries in a workgroup. That leaves some of the 16 KiB that every device has for
/// other arrays.
const QUERY_BYTES: usize = 12 << 10;
/// The largest error of outputs of about 1.
pub(crate) const BOUND: f64 = ATTENDED;
/// The number of splits of the cache, whatever its length, unless a number was chosen for the adapter: enough to keep
/// the adapter's workgroups busy, since every group of heads of every row has a workgroup for each split.
pub fn splits(target: &Target, rows: usize) -> usize {
    let least = (target.workgroups / 16).max(1); // for any number of rows, because the context may be deep
    target.choices.splits(rows).unwrap_or((target.workgroups / rows).clamp(least, MAX_SPLITS))
}
/// The factor on attention's weights before kernels convert them to f16: drivers flush f16 below 6e-5 to zero.
pub(super) const HALF_UNIT: f32 = 64.0;
/// The maximum number of splits that can be merged.
pub(super) const MAX_SPLITS: usize = 64;

pub(super) const KERNEL: Kernel = Kernel { name: "mla_attention", op: OP, params: &[], matrices: &[] };

/// The results of attention for each head and split, to be merged.
pub struct AttentionSplits {
    /// Unnormalised outputs {rank, splits · heads · tokens}.
    pub sums: Tensor,
    /// For each of them, the score that weights are relative to (the largest or one slightly below it) and the sum of
    /// weights {2, splits · heads · tokens}.
    pub stats: Tensor,
    /// The number of splits.
    pub splits: usize,
    /// The number of heads of a token.
    pub heads: usize,
}

/// The properties of one of the attention kernels, from which `Builder::attend` and `Builder::attend_rows` make a step.
pub(super) struct Attending {
    /// The kernel's name.
    pub kernel: &'static str,
    /// Its shader up to the files of splits and pages.
    pub variant: VariantBuilder,
    /// The number of queries that a workgroup computes. A query belongs to one head of one row.
    pub rows: usize,
    /// Whether these may belong to several rows of the batch.
    pub together: bool,
    /// The largest error of outputs of about 1.
    pub bound: f64,
    /// The factor on weights in matrices: 1, or a larger one so that f16 can represent small weights. `None` for a
    /// kernel without matrices.
    pub unit: Option<f32>,
}

/// Adds the files of online softmax and for loading KV rows, which the kernels with matrices (those with a `unit`)
/// share.
pub(super) fn matrix_files(
    variant: VariantBuilder,
    unit: Option<f32>,
    (cache, matrices): (&Cache, Matrices),
) -> VariantBuilder {
    let Some(unit) = unit else { return variant };
    cache.share_files(softmax_files(variant, unit), matrices)
}

/// Adds the file of online softmax.
pub(super) fn softmax_files(variant: VariantBuilder, unit: f32) -> VariantBuilder {
    variant.real("WEIGHT_UNIT", "", unit).file(source!("lib/online_softmax.wgsl"))
}

/// The number of heads of a workgroup, for `heads` heads with queries of `kv_row` values.
fn heads_together(heads: usize, kv_row: usize) -> usize {
    HEADS.min(heads).min(QUERY_BYTES / (4 * kv_row)).max(1)
}

/// The number of invocations of a workgroup for latents of `rank` values: one for each chunk of four, within limits.
fn workgroup(rank: usize) -> usize {
    (rank / 4).next_power_of_two().clamp(Target::MIN_WORKGROUP, WORKGROUP)
}

impl Builder {
    /// Adds the files that define splits, for attention and for the step that merges them.
    pub(super) fn split_files(&self, variant: VariantBuilder) -> VariantBuilder {
        let variant = self.batch_files(variant).constant("SPAN", "t", SPAN).constant("SPLITS", "", 0);
        variant.file(source!("lib/splits.wgsl"))
    }

    /// The same for kernels that only plans of a single row use. They are compiled for a number of splits: with the
    /// number in the batch, attention took 7.9 us instead of 6.4 on an H100.
    pub(super) fn known_split_files(&self, variant: VariantBuilder, splits: usize) -> VariantBuilder {
        if self.rows() > 1 {
            return self.split_files(variant);
        }
        let variant = self.batch_files_of(variant, true).constant("SPAN", "t", SPAN).constant("SPLITS", "s", splits);
        variant.file(source!("lib/splits.wgsl"))
    }

    /// Attention of the absorbed queries q {rank + rotary, heads of every token}, with scores times `scale`, over the
    /// tokens up to each one's own position. The cache is divided into `splits`.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn mla_attention(
        &mut self,
        label: &str,
        q: &Tensor,
        cache: &Cache,
        scale: f32,
        splits: usize,
    ) -> Result<AttentionSplits> {
        let (rank, heads) = (cache.rank, q.shape[1] / self.rows());
        let kv_row = Cache::row_values(rank, cache.rotary);
        let shared = heads_together(heads, kv_row);
        let workgroup = workgroup(rank);
        let target = self.target_for(KERNEL.name);
        let most = target.lanes(workgroup);
        let lanes = if target.team == Team::Subgroup { LANES.min(most) } else { most };
        let variant = VariantBuilder::new(KERNEL.name, OP, workgroup)
            .constant("HEADS", "h", shared)
            .constant("ALL_HEADS", "of", heads)
            .constant("KV_ROW", "x", kv_row / 4)
            .constant("LATENT", "c", rank / 4)
            .constant("CHUNKS", "", rank.div_ceil(4 * workgroup))
            .real("SCALE", "f", scale);
        let variant = cache.chunk_files(variant).team(target.team, lanes);
        let by = Attending { kernel: KERNEL.name, variant, rows: shared, together: false, bound: BOUND, unit: None };
        self.attend(label, by, q, cache, scale, splits)
    }

    /// Appends attention of q {rank + rotary, heads of every row} with a kernel whose workgroups each compute some
    /// heads.
    pub(super) fn attend(
        &mut self,
        label: &str,
        by: Attending,
        q: &Tensor,
        cache: &Cache,
        scale: f32,
        splits: usize,
    ) -> Result<AttentionSplits> {
        let (heads, tokens) = (q.shape[1] / self.rows(), self.rows());
        expect_queries(by.kernel, q, cache)?;
        let parts = self.parts(label, [cache.rank, heads], splits);
        self.attends(&by, q, cache, scale, &parts);
        let variant = matrix_files(
            pool_files(self.known_split_files(by.variant, splits)),
            by.unit,
            (cache, self.target().matrices),
        );
        let mut bindings = self.bound_queries(q.buffer, cache);
        bindings.extend(self.bound_between(&parts));
        let (heads, times) = if by.together { (heads * tokens, 1) } else { (heads, tokens) };
        let grid = [heads.div_ceil(by.rows), splits, times];
        // The workgroups of a split, each for some of the heads, are neighbours in the grid and read the same KV rows.
        let cost = Cost { activations: q.bytes() + parts.bytes(), ..cache.cost(grid[0] * by.rows * times, times) };
        self.step_in_parts(label, variant, bindings, (grid, 0), cost)?;
        Ok(parts)
    }

    /// Records that the next step computes this attention.
    pub(super) fn attends(&mut self, by: &Attending, q: &Tensor, cache: &Cache, scale: f32, parts: &AttentionSplits) {
        let (q, y, unit) = (*q, Attended::Splits(parts.into()), by.unit.map_or(1.0, f64::from));
        self.computes(by.kernel, Attention { q, cache: *cache, scale, y, bound: by.bound, unit });
    }

    /// Buffers for the splits' results for every row's heads {rank, heads}.
    pub(super) fn parts(&mut self, label: &str, [rank, heads]: [usize; 2], splits: usize) -> AttentionSplits {
        self.split(splits);
        let slots = splits * heads * self.rows();
        let sums = self.tensor_with_stride(&format!("{label}.sums"), [rank, slots], rank);
        let stats = self.tensor_with_stride(&format!("{label}.stats"), [2, slots], 2);
        AttentionSplits { sums, stats, splits, heads }
    }

    /// The bindings of what attention reads.
    pub(super) fn bound_queries(&self, q: BufferRef, cache: &Cache) -> Vec<Bound> {
        vec![self.bound_batch(), self.bound_pages(), self.bound("q", q), self.bound("cache", cache.buffer)]
    }

    /// The bindings of the splits' results.
    pub(super) fn bound_between(&self, parts: &AttentionSplits) -> [Bound; 2] {
        [self.bound("parts", parts.sums.buffer), self.bound("stats", parts.stats.buffer)]
    }
}

/// Fails unless queries {rank + rotary, n} and the cache fit together.
pub(super) fn expect_queries(op: &'static str, q: &Tensor, cache: &Cache) -> Result<()> {
    expect_shape(op, "q", q.shape[0], cache.rank + cache.rotary)?;
    expect_shape(op, "q's stride", q.stride, Cache::row_values(cache.rank, cache.rotary))?;
    expect_multiple(op, "latent", cache.rank, 4)
}
