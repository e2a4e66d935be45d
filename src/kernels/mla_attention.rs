//! Absorbed multi-head latent attention over the cache, one split of it at a time.

use super::kv_write::{Cache, CacheType};
use super::mla_attention_batch::{ChunkAttention, ChunkExample};
use super::reference::{Attended, Attention, by_token};
use super::{Case, CaseBuilder, Kernel, expect_multiple, expect_shape};
use crate::error::Result;
use crate::plan::{Batch, Bound, BufferRef, Builder, Cost, Target, Team, Tensor, VariantBuilder};
use crate::wgsl::{Source, source};
use half::f16;

const OP: Source = source!("op/mla_attention.wgsl");
const WORKGROUP: usize = 128;
/// Tokens whose scores are held at a time.
pub(super) const SPAN: usize = 32;
/// Heads that share one reading of the cache.
const HEADS: usize = 4;
/// Lanes that share a token's score.
const LANES: usize = 8;
/// Bytes of queries held at a time, which leaves some of the least there may be for what else a workgroup shares.
const QUERY_BYTES: usize = 12 << 10;
/// What errors are bounded by, as parts of outputs of about 1.
pub(super) const BOUND: f64 = 2e-5;
/// Splits of a cache of whatever length: with the head groups of all tokens, enough workgroups for a large GPU.
pub fn splits(tokens: usize) -> usize {
    (128 / tokens).clamp(8, MOST_SPLITS)
}
/// What kernels that make f16 of weights multiply them with: `WEIGHT_UNIT` of their files.
pub(super) const HALF_UNIT: f64 = 64.0;
/// What a merge has room for.
pub(super) const MOST_SPLITS: usize = 64;

pub(super) const KERNEL: Kernel =
    Kernel { name: "mla_attention", op: OP, params: &[], matrices: &[], several: true, cases };

/// What attention leaves of each head and split, for the merge.
pub struct AttentionSplits {
    /// Unnormalised outputs {rank, splits · heads · tokens}.
    pub sums: Tensor,
    /// The score that weights are relative to, the largest or one not far below it, and their sum
    /// {2, splits · heads · tokens}.
    pub stats: Tensor,
    /// How many splits there are.
    pub splits: usize,
    /// Heads of a token.
    pub heads: usize,
}

/// What the kernels of attention differ in.
pub(super) struct Attending {
    /// Its name.
    pub kernel: &'static str,
    /// The variant, up to the files of the splits.
    pub variant: VariantBuilder,
    /// The files behind those.
    pub files: &'static [Source],
    /// Queries that a workgroup works for.
    pub rows: usize,
    /// What errors of outputs of about 1 are bounded by.
    pub bound: f64,
    /// What weights are multiplied with, for f16 to hold small ones.
    pub unit: f64,
}

/// Heads that share one reading of the cache, of `heads` with queries of `KV row` values.
fn heads_together(heads: usize, kv_row: usize) -> usize {
    HEADS.min(heads).min(QUERY_BYTES / (4 * kv_row)).max(1)
}

impl Builder {
    /// The library of the splits, the same for attention and merge.
    pub(super) fn split_files(&self, variant: VariantBuilder) -> VariantBuilder {
        let variant = self.state_files(variant.constant("SPAN", "t", SPAN));
        variant.file(source!("lib/told_splits.wgsl")).file(source!("lib/splits.wgsl"))
    }

    /// The same where a token alone has kernels of its own, which know how many splits there are when they are compiled:
    /// where the host tells, attention took 7.9 us instead of 6.4 on an H100.
    pub(super) fn known_split_files(&self, variant: VariantBuilder, splits: usize) -> VariantBuilder {
        if self.tokens() > 1 {
            return self.split_files(variant);
        }
        let variant = variant.constant("SPAN", "t", SPAN).constant("SPLITS", "s", splits);
        let variant = variant.file(source!("lib/batch.wgsl")).file(source!("lib/one_token.wgsl"));
        variant.file(source!("lib/known_splits.wgsl")).file(source!("lib/splits.wgsl"))
    }

    /// Attention of the absorbed queries q {rank + rotary, heads of every token}, scores times `scale`, over every
    /// token up to each one's own position, the cache cut into `splits`.
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
        let (rank, heads) = (cache.rank, q.shape[1] / self.tokens());
        let kv_row = Cache::row_values(rank, cache.rotary);
        let shared = heads_together(heads, kv_row);
        let most = self.target().lanes(WORKGROUP);
        let lanes = if self.target().team == Team::Subgroup { LANES.min(most) } else { most };
        let variant = VariantBuilder::new(KERNEL.name, OP, WORKGROUP)
            .constant("HEADS", "h", shared)
            .constant("ALL_HEADS", "of", heads)
            .constant("KV_ROW", "x", kv_row / 4)
            .constant("LATENT", "c", rank / 4)
            .constant("CHUNKS", "", rank.div_ceil(4 * WORKGROUP))
            .real("SCALE", "f", scale)
            .tagged(cache.ty.file())
            .team(self.target().team, lanes);
        let by = Attending { kernel: KERNEL.name, variant, files: &[], rows: shared, bound: BOUND, unit: 1.0 };
        self.attend(label, by, q, cache, scale, splits)
    }

    /// Appends attention of q {rank + rotary, heads of every token} by a kernel whose workgroups work for one token's.
    pub(super) fn attend(
        &mut self,
        label: &str,
        by: Attending,
        q: &Tensor,
        cache: &Cache,
        scale: f32,
        splits: usize,
    ) -> Result<AttentionSplits> {
        let (heads, tokens) = (q.shape[1] / self.tokens(), self.tokens());
        expect_queries(by.kernel, q, cache)?;
        let parts = self.parts(label, [cache.rank, heads], splits);
        self.attends(&by, q, cache, scale, &parts);
        let variant = self.known_split_files(by.variant, splits);
        let variant = by.files.iter().copied().fold(variant, VariantBuilder::file);
        let mut bindings = self.bound_queries(q.buffer, cache);
        bindings.extend(self.bound_between(&parts));
        let grid = [heads.div_ceil(by.rows), splits, tokens];
        // A split's workgroups, each for some of the heads, stand beside each other.
        let cost = Cost { activations: q.bytes() + parts.bytes(), ..cache.cost(grid[0] * by.rows * tokens, tokens) };
        self.step_in_parts(label, variant, bindings, (grid, 0), cost)?;
        Ok(parts)
    }

    /// Tells what the next step of a kernel leaves of attention.
    pub(super) fn attends(&mut self, by: &Attending, q: &Tensor, cache: &Cache, scale: f32, parts: &AttentionSplits) {
        let (q, y) = (by_token(q, self.tokens()), Attended::Splits(parts.into()));
        self.computes(by.kernel, Attention { q, cache: *cache, scale, y, bound: by.bound, unit: by.unit });
    }

    /// Room for what attention leaves of every token's heads {rank, heads}.
    pub(super) fn parts(&mut self, label: &str, [rank, heads]: [usize; 2], splits: usize) -> AttentionSplits {
        self.split(splits);
        let slots = splits * heads * self.tokens();
        let sums = self.tensor_with_stride(&format!("{label}.sums"), [rank, slots], rank);
        let stats = self.tensor_with_stride(&format!("{label}.stats"), [2, slots], 2);
        AttentionSplits { sums, stats, splits, heads }
    }

    /// What attention reads, bound.
    pub(super) fn bound_queries(&self, q: BufferRef, cache: &Cache) -> Vec<Bound> {
        vec![self.bound_state(), self.bound("q", q), self.bound("cache", cache.buffer)]
    }

    /// What it leaves for the merge, bound.
    pub(super) fn bound_between(&self, parts: &AttentionSplits) -> [Bound; 2] {
        [self.bound("parts", parts.sums.buffer), self.bound("stats", parts.stats.buffer)]
    }
}

/// An error unless queries {rank + rotary, n} and the cache fit together.
pub(super) fn expect_queries(op: &'static str, q: &Tensor, cache: &Cache) -> Result<()> {
    expect_shape(op, "q", q.shape[0], cache.rank + cache.rotary)?;
    expect_shape(op, "q's stride", q.stride, Cache::row_values(cache.rank, cache.rotary))?;
    expect_multiple(op, "latent", cache.rank, 4)
}

/// Seeded latents, queries and the attention over them, for the cases of attention and merge.
pub(super) struct Example {
    pub heads: usize,
    pub tokens: usize,
    pub rank: usize,
    pub rotary: usize,
    pub splits: usize,
    pub ty: CacheType,
}

/// On the scores of the examples.
pub(super) const SCALE: f32 = 0.125;

impl Example {
    /// Fills a cache and the queries of its last tokens, as many as the case has, with noise: the queries, the cache,
    /// and both as values.
    pub(super) fn inputs(&self, case: &mut CaseBuilder) -> (Tensor, Cache, Vec<f32>, Vec<f32>) {
        let kv_row = Cache::row_values(self.rank, self.rotary);
        let count = case.plan.tokens();
        let q = case.plan.tensor_with_stride("q", [self.rank + self.rotary, self.heads * count], kv_row);
        let queries = self.queries(case, q.buffer, self.heads * count);
        let (cache, latents) = self.cache(case);
        match count {
            1 => case.state(1, self.tokens as u32 - 1, &[]),
            _ => case.chunk((self.tokens - count) as u32, count),
        }
        (q, cache, queries, latents)
    }

    /// Fills the first `count` of absorbed queries with noise.
    pub(super) fn queries(&self, case: &mut CaseBuilder, q: BufferRef, count: usize) -> Vec<f32> {
        let (width, kv_row) = (self.rank + self.rotary, Cache::row_values(self.rank, self.rotary));
        let queries: Vec<f32> = case.noise(width * count).into_iter().map(|v| 4.0 * v).collect();
        let mut kv_rows = vec![0f32; kv_row * count];
        for (to, from) in kv_rows.chunks_exact_mut(kv_row).zip(queries.chunks_exact(width)) {
            to[..width].copy_from_slice(from);
        }
        case.fill_bytes(q, bytemuck::cast_slice(&kv_rows).to_vec());
        queries
    }

    /// A cache of noise.
    pub(super) fn cache(&self, case: &mut CaseBuilder) -> (Cache, Vec<f32>) {
        let (width, kv_row) = (self.rank + self.rotary, Cache::row_values(self.rank, self.rotary));
        let latents: Vec<f16> = case.noise(width * self.tokens).into_iter().map(f16::from_f32).collect();
        let mut kv_rows = vec![f16::ZERO; kv_row * self.tokens];
        for (to, from) in kv_rows.chunks_exact_mut(kv_row).zip(latents.chunks_exact(width)) {
            to[..width].copy_from_slice(from);
        }
        let latents: Vec<f32> = latents.into_iter().map(f16::to_f32).collect();
        let cache = case.plan.latent_cache(self.ty, self.rank, self.rotary, self.tokens);
        case.fill_bytes(
            cache.buffer,
            match self.ty {
                CacheType::F16 => bytemuck::cast_slice(&kv_rows).to_vec(),
                CacheType::F32 => kv_rows.iter().flat_map(|v| v.to_f32().to_le_bytes()).collect(),
            },
        );
        (cache, latents)
    }

    /// Scores of a head against tokens `from..to`.
    pub(super) fn scores(&self, q: &[f32], latents: &[f32], head: usize, from: usize, to: usize) -> Vec<f64> {
        let width = self.rank + self.rotary;
        let q = &q[head * width..][..width];
        let dot = |t: usize| q.iter().zip(&latents[t * width..]).map(|(&a, &b)| a as f64 * b as f64).sum::<f64>();
        (from..to).map(|t| dot(t) * SCALE as f64).collect()
    }

    /// The attention of a head over all tokens.
    pub(super) fn output(&self, q: &[f32], latents: &[f32], head: usize) -> Vec<f64> {
        self.output_over(q, latents, head, self.tokens)
    }

    /// The attention of a head over the first tokens.
    pub(super) fn output_over(&self, q: &[f32], latents: &[f32], head: usize, tokens: usize) -> Vec<f64> {
        let scores = self.scores(q, latents, head, 0, tokens);
        let top = scores.iter().copied().fold(f64::MIN, f64::max);
        let total: f64 = scores.iter().map(|s| (s - top).exp()).sum();
        let weights: Vec<f64> = scores.iter().map(|s| (s - top).exp() / total).collect();
        self.weighted(&weights, latents, 0)
    }

    /// Σ weight · latent over tokens from `from` on.
    pub(super) fn weighted(&self, weights: &[f64], latents: &[f32], from: usize) -> Vec<f64> {
        let width = self.rank + self.rotary;
        let value = |c: usize| weights.iter().zip(from..).map(|(w, t)| w * latents[t * width + c] as f64).sum();
        (0..self.rank).map(value).collect()
    }
}

/// Of several shapes: one head, heads that do not fill their last group, idle splits, the model's own.
pub(super) fn examples() -> Vec<Example> {
    use CacheType::{F16, F32};
    let shapes = [
        (1, 1, 8, 2, 1, F16),
        (5, 70, 36, 10, 4, F32),
        (20, 33, 512, 64, 2, F16),
        (20, 40, 512, 64, 2, F32),
        (3, 450, 132, 18, 64, F16),
        (4, 129, 128, 32, 3, F16),
    ];
    let example = |(heads, tokens, rank, rotary, splits, ty)| Example { heads, tokens, rank, rotary, splits, ty };
    shapes.into_iter().map(example).collect()
}

fn cases(target: Target) -> Result<Vec<Case>> {
    use CacheType::{F16, F32};
    let alone = examples().into_iter().map(|example| case(target, &example));
    let chunks = [(5, 61, 3, 4, 36, 10, F32, 4), (20, 30, 2, 2, 512, 64, F16, 2), (3, 0, 8, 8, 132, 18, F16, 64)];
    let chunk = |(heads, position, count, room, rank, rotary, ty, splits)| {
        let example = ChunkExample { heads, position, count, room, rank, rotary, ty };
        example.case(target, 2e-5, |b, a| b.joined(a, |b, q| b.mla_attention("attention", q, a.cache, SCALE, splits)))
    };
    alone.chain(chunks.into_iter().map(chunk)).collect()
}

impl Builder {
    /// What attention that leaves parts gives for a chunk, joined.
    pub(super) fn joined(
        &mut self,
        attention: &ChunkAttention<'_>,
        parts: impl FnOnce(&mut Self, &Tensor) -> Result<AttentionSplits>,
    ) -> Result<Batch> {
        let (q, rank) = (attention.q, attention.cache.rank);
        let parts = parts(self, &q.vectors()?)?;
        let y = self.batch("y", [rank, q.stacks], q.tokens);
        self.mla_merge("merge", &parts, &y.vectors()?)?;
        Ok(y)
    }
}

fn case(target: Target, example: &Example) -> Result<Case> {
    let Example { heads, tokens, rank, rotary, splits, ty } = *example;
    let mut case = CaseBuilder::new(target, 1);
    let (q, cache, queries, latents) = example.inputs(&mut case);
    let parts = case.plan.mla_attention("attention", &q, &cache, SCALE, splits)?;
    let length = SPAN * tokens.div_ceil(SPAN).div_ceil(splits);
    for slot in 0..heads * splits {
        let (head, from) = (slot / splits, slot % splits * length);
        let to = tokens.min(from + length);
        if from >= to {
            continue; // an idle split writes nothing
        }
        let scores = example.scores(&queries, &latents, head, from, to);
        let top = scores.iter().copied().fold(f64::MIN, f64::max);
        let weights: Vec<f64> = scores.iter().map(|s| (s - top).exp()).collect();
        let total: f64 = weights.iter().sum();
        let sums = example.weighted(&weights, &latents, from);
        let size = total.max(top.abs());
        case.expect_from(parts.sums.buffer, slot * parts.sums.stride, sums, size, 2e-5);
        case.expect_from(parts.stats.buffer, slot * parts.stats.stride, vec![top, total], size, 2e-5);
    }
    Ok(case.finish(format!("{ty:?}, {heads} heads, {tokens} tokens, rank {rank}, rotary {rotary}, {splits} splits")))
}
