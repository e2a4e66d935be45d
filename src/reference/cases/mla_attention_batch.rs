//! The cases of `mla_attention_batch`.

use super::mla_attention::{Example, SCALE};
use crate::error::Result;
use crate::kernels::{Cache, CacheType, ChunkAttention};
use crate::plan::{Batch, Builder, Target};
use crate::reference::{Case, CaseBuilder};

/// A chunk somewhere in a sequence, in a case of whichever kernel attends for it.
pub(super) struct ChunkExample {
    pub heads: usize,
    /// Tokens before the chunk, of the chunk, and for which there is room.
    pub position: usize,
    pub count: usize,
    pub room: usize,
    pub rank: usize,
    pub rotary: usize,
    pub ty: CacheType,
}

impl ChunkExample {
    /// The case of attention appended by `append`, right within `bound` of values of about 1.
    pub fn case(
        &self,
        target: Target,
        bound: f64,
        append: impl FnOnce(&mut Builder, &ChunkAttention<'_>) -> Result<Batch>,
    ) -> Result<Case> {
        let Self { heads, position, count, room, rank, rotary, ty } = *self;
        let example = Example { heads, tokens: position + count, rank, rotary, splits: 1, ty };
        let mut case = CaseBuilder::for_chunk(target, 1, room);
        case.chunk(position as u32, count);
        let (cache, latents) = example.cache(&mut case);
        let (width, stride) = (rank + rotary, Cache::row_values(rank, rotary));
        let q = case.plan.batch_with_stride("q", [width, heads], room, stride);
        let queries = example.queries(&mut case, q.buffer, heads * count);
        let y = append(&mut case.plan, &ChunkAttention { q: &q, cache: &cache, scale: SCALE, deep: false })?;
        let row = |row: usize| example.output_over(&queries, &latents, row, position + row / heads + 1);
        let want: Vec<f64> = (0..heads * count).flat_map(row).collect();
        let sizes = vec![1.0; want.len()];
        case.expect_batch(&y, want, sizes, bound);
        case.allow_between();
        let tokens = format!("{count} of {room} tokens after {position}");
        Ok(case.finish(format!("{ty:?}, {heads} heads, {tokens}, rank {rank}, rotary {rotary}")))
    }
}

pub(super) fn cases(target: Target) -> Result<Vec<Case>> {
    use CacheType::{F16, F32};
    let shapes = [
        (1, 0, 1, 1, 8, 2, F16, 1),
        (5, 3, 13, 16, 36, 10, F32, 1),
        (20, 70, 7, 8, 512, 64, F16, 1),
        (20, 30, 5, 5, 512, 64, F32, 3),
        (3, 150, 40, 64, 132, 18, F16, 16),
        (2, 1, 3, 4, 4096, 8, F16, 2),
        (1, 0, 2, 2, 8192, 8, F16, 1),
    ];
    let case = |(heads, position, count, room, rank, rotary, ty, splits)| {
        let example = ChunkExample { heads, position, count, room, rank, rotary, ty };
        let append = |b: &mut Builder, a: &ChunkAttention<'_>| b.attention_in_splits("attention", a, splits);
        let mut case = example.case(target, 2e-5, append)?;
        case.name.push_str(&format!(", {splits} splits"));
        Ok(case)
    };
    shapes.into_iter().map(case).collect()
}
