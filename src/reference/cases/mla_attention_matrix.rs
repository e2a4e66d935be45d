//! The cases of `mla_attention_matrix`.

use super::mla_attention::{Example, SCALE};
use super::mla_attention_batch::ChunkExample;
use crate::error::Result;
use crate::gpu::Matrices;
use crate::kernels::mla_attention_matrix::bound;
use crate::kernels::{CacheType, ChunkAttention};
use crate::plan::{Builder, Target, Team};
use crate::reference::{Case, CaseBuilder};

/// With the merge behind it, against softmax over the whole cache: of the model's own shape and of others, with idle
/// splits and with several tiles in one. What lies in between is relative to scores that depend on the tiles.
pub(super) fn cases(target: Target) -> Result<Vec<Case>> {
    let target = Target { matrices: Matrices::Sixteen, subgroup: 32, ..target };
    let shapes = [(16, 1, 128, 64, 2), (20, 33, 512, 64, 64), (20, 450, 512, 64, 3), (37, 129, 256, 64, 2)];
    let alone = shapes.into_iter().map(|shape| case(target, shape));
    let chunks = [(20, 61, 3, 4, 512, 64, 4), (16, 0, 2, 2, 128, 64, 64)];
    let bound = bound(target.arithmetic);
    let chunk = |(heads, position, count, room, rank, rotary, splits)| {
        let example = ChunkExample { heads, position, count, room, rank, rotary, ty: CacheType::F16 };
        let parts = |b: &mut Builder, a: &ChunkAttention<'_>| {
            b.joined(a, |b, q| b.mla_attention_matrix("attention", q, a.cache, SCALE, splits))
        };
        example.case(Target { team: Team::Subgroup, ..target }, bound, parts)
    };
    alone.chain(chunks.into_iter().map(chunk)).collect()
}

fn case(target: Target, (heads, tokens, rank, rotary, splits): (usize, usize, usize, usize, usize)) -> Result<Case> {
    let example = Example { heads, tokens, rank, rotary, splits, ty: CacheType::F16 };
    let target = Target { team: Team::Subgroup, ..target };
    let mut case = CaseBuilder::new(target, 1);
    let (q, cache, queries, latents) = example.inputs(&mut case);
    let parts = case.plan.mla_attention_matrix("attention", &q, &cache, SCALE, splits)?;
    let y = case.plan.tensor("y", [rank, heads]);
    case.plan.mla_merge("merge", &parts, &y)?;
    let want: Vec<f64> = (0..heads).flat_map(|head| example.output(&queries, &latents, head)).collect();
    case.allow(parts.sums.buffer);
    case.allow(parts.stats.buffer);
    let sizes = vec![1.0; want.len()];
    case.expect(&y, want, sizes, bound(target.arithmetic));
    Ok(case.finish(format!("{heads} heads, {tokens} tokens, rank {rank}, rotary {rotary}, {splits} splits")))
}
