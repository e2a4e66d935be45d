//! The cases of `mla_attention_matrix8`.

use super::mla_attention::{Example, SCALE};
use super::mla_attention_batch::ChunkExample;
use crate::error::Result;
use crate::gpu::Matrices;
use crate::kernels::mla_attention_matrix8::MatrixType;
use crate::kernels::{CacheType, ChunkAttention};
use crate::plan::{Builder, Target, Team};
use crate::reference::{Case, CaseBuilder};

pub(super) fn cases(target: Target) -> Result<Vec<Case>> {
    let target = Target { matrices: Matrices::Eight, team: Team::Subgroup, subgroup: 32, ..target };
    // Heads, tokens, rank, rotary, splits: of models' own shapes and others, idle splits, several tiles in one.
    let alone = [
        (16, 1, 128, 64, 2),
        (20, 33, 512, 64, 64),
        (20, 170, 512, 64, 3),
        (5, 129, 256, 64, 2),
        (4, 70, 128, 32, 3),
        (16, 70, 512, 64, 2),
    ];
    // Heads, tokens before, of the chunk, room, rank, rotary, splits: of few tokens, in a token's steps.
    let few = [(20, 61, 3, 4, 512, 64, 4), (5, 0, 2, 2, 128, 32, 64)];
    let chunks = [
        (1, 0, 1, 1, 128, 64, 1),
        (20, 90, 3, 64, 512, 64, 1),
        (16, 50, 2, 8, 512, 64, 3),
        (5, 129, 11, 16, 256, 64, 16),
        (4, 30, 40, 64, 128, 32, 1),
    ];
    let mut cases = alone.into_iter().map(|shape| alone_case(target, shape)).collect::<Result<Vec<_>>>()?;
    for (heads, position, count, room, rank, rotary, splits) in few {
        let example = ChunkExample { heads, position, count, room, rank, rotary, ty: CacheType::F16 };
        let parts = |b: &mut Builder, a: &ChunkAttention<'_>| {
            b.joined(a, |b, q| b.mla_attention_matrix8("attention", q, a.cache, SCALE, splits))
        };
        cases.push(example.case(target, MatrixType::F32.bound(), parts)?);
    }
    for operands in [MatrixType::F16, MatrixType::F32] {
        for (heads, position, count, room, rank, rotary, splits) in chunks {
            let example = ChunkExample { heads, position, count, room, rank, rotary, ty: CacheType::F16 };
            let append =
                |b: &mut Builder, a: &ChunkAttention<'_>| b.chunk_attention_of(operands, "attention", a, splits);
            let mut case = example.case(target, operands.bound(), append)?;
            case.name.push_str(&format!(", {splits} splits, by {operands:?}"));
            cases.push(case);
        }
    }
    Ok(cases)
}

/// With the merge behind it, against softmax over the whole cache: what lies in between is relative to scores that
/// depend on the tiles.
fn alone_case(
    target: Target,
    (heads, tokens, rank, rotary, splits): (usize, usize, usize, usize, usize),
) -> Result<Case> {
    let example = Example { heads, tokens, rank, rotary, splits, ty: CacheType::F16 };
    let mut case = CaseBuilder::new(target, 1);
    let (q, cache, queries, latents) = example.inputs(&mut case);
    let parts = case.plan.mla_attention_matrix8("attention", &q, &cache, SCALE, splits)?;
    let y = case.plan.tensor("y", [rank, heads]);
    case.plan.mla_merge("merge", &parts, &y)?;
    let want: Vec<f64> = (0..heads).flat_map(|head| example.output(&queries, &latents, head)).collect();
    case.allow(parts.sums.buffer);
    case.allow(parts.stats.buffer);
    let sizes = vec![1.0; want.len()];
    case.expect(&y, want, sizes, MatrixType::F32.bound());
    Ok(case.finish(format!("{heads} heads, {tokens} tokens, rank {rank}, rotary {rotary}, {splits} splits")))
}
