//! The cases of `mla_attention`.

use super::mla_attention_batch::ChunkExample;
use crate::error::Result;
use crate::kernels::mla_attention::SPAN;
use crate::kernels::{AttentionSplits, Cache, CacheType, ChunkAttention};
use crate::plan::{Batch, BufferRef, Builder, Target, Tensor};
use crate::reference::{Case, CaseBuilder};
use half::f16;

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

pub(super) fn cases(target: Target) -> Result<Vec<Case>> {
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
