//! The cases of `mla_attention`.

use crate::error::Result;
use crate::kernels::kv_blocks::BlockRow;
use crate::kernels::{AttentionSplits, BatchAttention, Cache, CacheType};
use crate::plan::{Builder, PAGE, RowHeader, Target, Tensor};
use crate::reference::{Case, CaseBuilder};
use half::f16;

/// Seeded latents and queries, for the cases of attention and merge.
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
    /// Fills a cache and the queries of its last tokens, as many as the case has, with noise.
    pub(super) fn inputs(&self, case: &mut CaseBuilder) -> (Tensor, Cache) {
        let count = case.plan.rows();
        let q = self.queries(case, count, count);
        let cache = self.cache(case);
        case.consecutive((self.tokens - count) as u32, count);
        (q, cache)
    }

    /// Absorbed queries of up to `room` tokens, of noise for the first `count`.
    fn queries(&self, case: &mut CaseBuilder, room: usize, count: usize) -> Tensor {
        let (width, kv_row) = (self.rank + self.rotary, Cache::row_values(self.rank, self.rotary));
        let q = case.plan.tensor_with_stride("q", [width, self.heads * room], kv_row);
        let noise: Vec<f32> = case.noise(width * self.heads * count).into_iter().map(|v| 4.0 * v).collect();
        case.fill_first(&q, &noise);
        q
    }

    /// A cache of noise.
    pub(super) fn cache(&self, case: &mut CaseBuilder) -> Cache {
        let Self { rank, rotary, tokens, ty, .. } = *self;
        let noise = case.noise((rank + rotary) * tokens);
        let cache = case.cache(ty, rank, rotary, tokens);
        let row_bytes = ty.row_bytes(rank, rotary);
        let mut bytes = vec![0; row_bytes * (CaseBuilder::kv_index(0, tokens) + PAGE)];
        for (t, values) in noise.chunks_exact(rank + rotary).enumerate() {
            let halves = || values.iter().map(|v| f16::from_f32(*v));
            let packed: Vec<u8> = match ty {
                CacheType::F16 => halves().flat_map(f16::to_le_bytes).collect(),
                CacheType::F32 => halves().flat_map(|v| v.to_f32().to_le_bytes()).collect(),
                CacheType::Q8_0 => BlockRow { rank, rotary }.packed(values),
            };
            bytes[row_bytes * CaseBuilder::kv_index(t, tokens)..][..packed.len()].copy_from_slice(&packed);
        }
        case.fill_bytes(cache.buffer, bytes);
        cache
    }

    /// The case of attention over splits, appended by `attend`, and of their merge, for the last `count` tokens.
    pub(super) fn joined_case(
        &self,
        target: &Target,
        count: usize,
        attend: impl FnOnce(&mut Builder, &Tensor, &Cache) -> Result<AttentionSplits>,
    ) -> Result<Case> {
        let Self { heads, tokens, rank, rotary, splits, .. } = *self;
        let mut case = CaseBuilder::for_tokens(target, 1, count);
        let (q, cache) = self.inputs(&mut case);
        let parts = attend(&mut case.plan, &q, &cache)?;
        let y = case.plan.tensor("y", [rank, heads * count]);
        case.plan.mla_merge("merge", &parts, &y)?;
        case.allow(parts.sums.buffer);
        case.allow(parts.stats.buffer);
        let shape = format!("rank {rank}, rotary {rotary}, {splits} splits");
        Ok(case.finish(format!("{:?}, {heads} heads, {count} of {tokens} tokens, {shape}", self.ty)))
    }

    /// The case of attention of the last `count` tokens in a batch of up to `room`, appended by `attend`.
    pub(super) fn batch_case(
        &self,
        target: &Target,
        (room, count): (usize, usize),
        attend: impl FnOnce(&mut Builder, &BatchAttention<'_>) -> Result<Tensor>,
    ) -> Result<Case> {
        let Self { heads, tokens, rank, rotary, splits, ty } = *self;
        let position = tokens - count;
        let rows = RowHeader::consecutive(position, &vec![0; count]);
        let tokens = format!("{count} of {room} tokens after {position}");
        let name = format!("{ty:?}, {heads} heads, {tokens}, rank {rank}, rotary {rotary}, {splits} splits");
        self.case_of_rows(target, (room, &rows), name, attend)
    }

    /// The case of attention of rows of two sequences, of `count` tokens each: the last ones of the example, and tokens
    /// of a sequence whose KV rows begin with the example's second page.
    pub(super) fn case_of_two(
        &self,
        target: &Target,
        count: usize,
        attend: impl FnOnce(&mut Builder, &BatchAttention<'_>) -> Result<Tensor>,
    ) -> Result<Case> {
        let Self { heads, tokens, rank, splits, ty, .. } = *self;
        let first = RowHeader::consecutive(tokens - count, &vec![0; count]);
        let second = RowHeader::consecutive(tokens - PAGE - count - 3, &vec![0; count]).into_iter();
        let second = second.map(|row| RowHeader { sequence: 1, first_page: 1, ..row });
        let rows: Vec<RowHeader> = first.into_iter().chain(second).collect();
        let name = format!("{ty:?}, {heads} heads, two sequences of {count} tokens, rank {rank}, {splits} splits");
        self.case_of_rows(target, (rows.len(), &rows), name, attend)
    }

    fn case_of_rows(
        &self,
        target: &Target,
        (room, rows): (usize, &[RowHeader]),
        name: String,
        attend: impl FnOnce(&mut Builder, &BatchAttention<'_>) -> Result<Tensor>,
    ) -> Result<Case> {
        let mut case = CaseBuilder::for_rows(target, 1, room);
        case.rows(rows);
        let cache = self.cache(&mut case);
        let q = self.queries(&mut case, room, rows.len());
        let y = attend(&mut case.plan, &BatchAttention { q: &q, cache: &cache, scale: SCALE, deep: false })?;
        case.allow_between(&[y.buffer]);
        Ok(case.finish(name))
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
        example.batch_case(target, (room, count), |b, a| {
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
    let (q, cache) = example.inputs(&mut case);
    case.plan.mla_attention("attention", &q, &cache, SCALE, splits)?;
    Ok(case.finish(format!("{ty:?}, {heads} heads, {tokens} tokens, rank {rank}, rotary {rotary}, {splits} splits")))
}
