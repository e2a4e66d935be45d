//! The cases of `mla_attention_matrix8`.

use super::mla_attention::{AttentionExample, SCALE, joined};
use crate::error::Result;
use crate::gpu::Matrices;
use crate::kernels::CacheType;
use crate::kernels::mla_attention_matrix8::MatrixType;
use crate::plan::{Target, Team};
use crate::reference::Case;

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
    let mut cases = Vec::new();
    for (heads, tokens, rank, rotary, splits) in alone {
        let example = AttentionExample { heads, tokens, rank, rotary, splits, ty: CacheType::F16 };
        cases.push(example.joined_case(target, 1, MatrixType::F32.bound(), |b, q, cache| {
            b.mla_attention_matrix8("attention", q, cache, SCALE, splits)
        })?);
    }
    for (heads, position, count, room, rank, rotary, splits) in few {
        let example = AttentionExample { heads, tokens: position + count, rank, rotary, splits, ty: CacheType::F16 };
        cases.push(example.chunk_case(target, (room, count), MatrixType::F32.bound(), |b, a| {
            joined(b, a, |b, q| b.mla_attention_matrix8("attention", q, a.cache, SCALE, splits))
        })?);
    }
    for operands in [MatrixType::F16, MatrixType::F32] {
        for (heads, position, count, room, rank, rotary, splits) in chunks {
            let example =
                AttentionExample { heads, tokens: position + count, rank, rotary, splits, ty: CacheType::F16 };
            let mut case = example.chunk_case(target, (room, count), operands.bound(), |b, a| {
                b.chunk_attention_of(operands, "attention", a, splits)
            })?;
            case.name.push_str(&format!(", by {operands:?}"));
            cases.push(case);
        }
    }
    Ok(cases)
}
