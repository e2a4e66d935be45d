//! The cases of `mla_attention`.

use crate::error::Result;
use crate::kernels::kv_blocks::BlockRow;
use crate::kernels::mla_attention::{BOUND, SPAN};
use crate::kernels::{AttentionSplits, BatchAttention, Cache, CacheType};
use crate::plan::{BufferRef, Builder, PAGE, Target, Tensor};
use crate::reference::{Case, CaseBuilder, product};
use half::f16;

/// Seeded latents, queries and the attention over them, for the cases of attention and merge.
pub(super) struct AttentionExample {
    pub heads: usize,
    pub tokens: usize,
    pub rank: usize,
    pub rotary: usize,
    pub splits: usize,
    pub ty: CacheType,
}

/// The factor on the scores of the examples.
pub(super) const SCALE: f32 = 0.125;

impl AttentionExample {
    /// Fills a cache and the queries of its last tokens, as many as the case has, with noise. Returns the queries, the
    /// cache, and the values of both.
    pub(super) fn inputs(&self, case: &mut CaseBuilder) -> (Tensor, Cache, Vec<f32>, Vec<f32>) {
        let kv_row = Cache::row_values(self.rank, self.rotary);
        let count = case.plan.rows();
        let q = case.plan.tensor_with_stride("q", [self.rank + self.rotary, self.heads * count], kv_row);
        let queries = self.queries(case, q.buffer, self.heads * count);
        let (cache, latents) = self.cache(case);
        case.consecutive((self.tokens - count) as u32, count);
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
        let noise = case.noise(width * self.tokens);
        let cache = case.cache(self.ty, self.rank, self.rotary, self.tokens);
        if self.ty == CacheType::Q8_0 {
            return (cache, self.blocks(case, &cache, &noise));
        }
        let latents: Vec<f16> = noise.into_iter().map(f16::from_f32).collect();
        let mut kv_rows = vec![f16::ZERO; kv_row * (CaseBuilder::kv_index(0, self.tokens) + PAGE)];
        for (t, from) in latents.chunks_exact(width).enumerate() {
            kv_rows[kv_row * CaseBuilder::kv_index(t, self.tokens)..][..width].copy_from_slice(from);
        }
        let latents: Vec<f32> = latents.into_iter().map(f16::to_f32).collect();
        case.fill_bytes(
            cache.buffer,
            match self.ty {
                CacheType::F32 => kv_rows.iter().flat_map(|v| v.to_f32().to_le_bytes()).collect(),
                _ => bytemuck::cast_slice(&kv_rows).to_vec(),
            },
        );
        (cache, latents)
    }

    /// Fills a cache with noise in blocks, and returns its rounded values.
    fn blocks(&self, case: &mut CaseBuilder, cache: &Cache, noise: &[f32]) -> Vec<f32> {
        let row = BlockRow { rank: self.rank, rotary: self.rotary };
        let mut bytes = vec![0; row.bytes() * (CaseBuilder::kv_index(0, self.tokens) + PAGE)];
        let mut latents = Vec::with_capacity(noise.len());
        for (t, values) in noise.chunks_exact(self.rank + self.rotary).enumerate() {
            let packed = row.packed(values);
            bytes[row.bytes() * CaseBuilder::kv_index(t, self.tokens)..][..packed.len()].copy_from_slice(&packed);
            latents.extend(row.unpacked(&packed).into_iter().map(|v| v as f32));
        }
        case.fill_bytes(cache.buffer, bytes);
        latents
    }

    /// Scores of a head against tokens `from..to`.
    pub(super) fn scores(&self, q: &[f32], latents: &[f32], head: usize, from: usize, to: usize) -> Vec<f64> {
        let width = self.rank + self.rotary;
        let q = &q[head * width..][..width];
        let dot = |t: usize| product::sum_of_products(q, &latents[t * width..][..width]);
        (from..to).map(|t| dot(t) * SCALE as f64).collect()
    }

    /// The attention of the heads of the last `count` tokens, each over the tokens up to its own.
    pub(super) fn outputs(&self, q: &[f32], latents: &[f32], count: usize) -> Vec<f64> {
        let seen_by = |query: usize| self.tokens - count + query / self.heads + 1;
        (0..self.heads * count).flat_map(|query| self.output_over(q, latents, query, seen_by(query))).collect()
    }

    /// The attention of a head over the first tokens.
    fn output_over(&self, q: &[f32], latents: &[f32], head: usize, tokens: usize) -> Vec<f64> {
        let scores = self.scores(q, latents, head, 0, tokens);
        let top = scores.iter().copied().fold(f64::MIN, f64::max);
        let total: f64 = scores.iter().map(|s| (s - top).exp()).sum();
        let weights: Vec<f64> = scores.iter().map(|s| (s - top).exp() / total).collect();
        self.weighted(&weights, latents, 0)
    }

    /// Σ weight · latent over the tokens that begin at `from`.
    pub(super) fn weighted(&self, weights: &[f64], latents: &[f32], from: usize) -> Vec<f64> {
        let mut sums = vec![0.0; self.rank];
        for (weight, latent) in weights.iter().zip(latents.chunks_exact(self.rank + self.rotary).skip(from)) {
            product::add_scaled(&mut sums, *weight, &latent[..self.rank]);
        }
        sums
    }

    /// The case of attention over splits, appended by `attend`, and of their merge, for the last `count` tokens, within
    /// `bound` for values of about 1. The splits themselves are not compared, because they are relative to scores that
    /// depend on the kernel's tiles.
    pub(super) fn joined_case(
        &self,
        target: &Target,
        count: usize,
        bound: f64,
        attend: impl FnOnce(&mut Builder, &Tensor, &Cache) -> Result<AttentionSplits>,
    ) -> Result<Case> {
        let Self { heads, tokens, rank, rotary, splits, .. } = *self;
        let mut case = CaseBuilder::for_tokens(target, 1, count);
        let (q, cache, queries, latents) = self.inputs(&mut case);
        let parts = attend(&mut case.plan, &q, &cache)?;
        let y = case.plan.tensor("y", [rank, heads * count]);
        case.plan.mla_merge("merge", &parts, &y)?;
        case.allow(parts.sums.buffer);
        case.allow(parts.stats.buffer);
        case.expect_each(&y, self.outputs(&queries, &latents, count), 1.0, bound);
        let shape = format!("rank {rank}, rotary {rotary}, {splits} splits");
        Ok(case.finish(format!("{:?}, {heads} heads, {count} of {tokens} tokens, {shape}", self.ty)))
    }

    /// The case of attention of the last `count` tokens in a batch of up to `room`, appended by `attend`, within
    /// `bound` for values of about 1.
    pub(super) fn batch_case(
        &self,
        target: &Target,
        (room, count): (usize, usize),
        bound: f64,
        attend: impl FnOnce(&mut Builder, &BatchAttention<'_>) -> Result<Tensor>,
    ) -> Result<Case> {
        let Self { heads, tokens, rank, rotary, splits, ty } = *self;
        let position = tokens - count;
        let mut case = CaseBuilder::for_rows(target, 1, room);
        case.consecutive(position as u32, count);
        let (cache, latents) = self.cache(&mut case);
        let (width, stride) = (rank + rotary, Cache::row_values(rank, rotary));
        let q = case.plan.tensor_with_stride("q", [width, heads * room], stride);
        let queries = self.queries(&mut case, q.buffer, heads * count);
        let y = attend(&mut case.plan, &BatchAttention { q: &q, cache: &cache, scale: SCALE, deep: false })?;
        let want = self.outputs(&queries, &latents, count);
        let sizes = vec![1.0; want.len()];
        case.expect_batch(&y, want, sizes, bound);
        case.allow_between();
        let tokens = format!("{count} of {room} tokens after {position}");
        Ok(case.finish(format!("{ty:?}, {heads} heads, {tokens}, rank {rank}, rotary {rotary}, {splits} splits")))
    }
}

/// Examples of several shapes: one head, heads that do not fill their last group, idle splits, the model's shape.
pub(super) fn examples() -> Vec<AttentionExample> {
    use CacheType::{F16, F32, Q8_0};
    let shapes = [
        (1, 1, 8, 2, 1, F16),
        (5, 70, 36, 10, 4, F32),
        (20, 33, 512, 64, 2, F16),
        (20, 40, 512, 64, 2, F32),
        (3, 450, 132, 18, 64, F16),
        (4, 129, 128, 32, 3, F16),
        (20, 33, 512, 64, 2, Q8_0),
        (5, 129, 96, 10, 3, Q8_0),
        (1, 1, 32, 2, 1, Q8_0),
    ];
    let example =
        |(heads, tokens, rank, rotary, splits, ty)| AttentionExample { heads, tokens, rank, rotary, splits, ty };
    shapes.into_iter().map(example).collect()
}

pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    use CacheType::{F16, F32, Q8_0};
    let alone = examples().into_iter().map(|example| case(target, &example));
    let batches = [
        (5, 61, 3, 4, 36, 10, F32, 4),
        (20, 30, 2, 2, 512, 64, F16, 2),
        (3, 0, 8, 8, 132, 18, F16, 64),
        (5, 250, 8, 8, 160, 18, Q8_0, 4),
    ];
    let batch = |(heads, position, count, room, rank, rotary, ty, splits)| {
        let example = AttentionExample { heads, tokens: position + count, rank, rotary, splits, ty };
        example.batch_case(target, (room, count), BOUND, |b, a| {
            joined(b, a, |b, q| b.mla_attention("attention", q, a.cache, SCALE, splits))
        })
    };
    alone.chain(batches.into_iter().map(batch)).collect()
}

/// The merged outputs of attention of a batch with splits.
pub(super) fn joined(
    plan: &mut Builder,
    attention: &BatchAttention<'_>,
    attend: impl FnOnce(&mut Builder, &Tensor) -> Result<AttentionSplits>,
) -> Result<Tensor> {
    let (q, rank) = (attention.q, attention.cache.rank);
    let parts = attend(plan, q)?;
    let y = plan.tensor("y", [rank, q.per_row() * q.rows]);
    plan.mla_merge("merge", &parts, &y)?;
    Ok(y)
}

fn case(target: &Target, example: &AttentionExample) -> Result<Case> {
    let AttentionExample { heads, tokens, rank, rotary, splits, ty } = *example;
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
        case.expect_from(parts.sums.buffer, slot * parts.sums.stride, sums, size, BOUND);
        case.expect_from(parts.stats.buffer, slot * parts.stats.stride, vec![top, total], size, BOUND);
    }
    Ok(case.finish(format!("{ty:?}, {heads} heads, {tokens} tokens, rank {rank}, rotary {rotary}, {splits} splits")))
}
