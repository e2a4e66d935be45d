//! The cases of `mla_attention_matrix8`.

use super::mla_attention::{AttentionExample, SCALE, joined};
use super::mla_attention_batch::{batch_cases, cases_of_two};
use super::mla_attention_expanded;
use crate::error::Result;
use crate::gpu::Matrices;
use crate::kernels::CacheType;
use crate::kernels::mla_attention_matrix8::MatrixType;
use crate::plan::{Target, Team};
use crate::reference::Case;

pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    let target = &Target { matrices: Matrices::Eight, team: Team::Subgroup, subgroup: 32, ..target.clone() };
    // Heads, tokens, rank, rotary, splits: models' shapes and others, idle splits, several tiles in one.
    let alone = [
        (16, 1, 128, 64, 2),
        (20, 33, 512, 64, 64),
        (20, 170, 512, 64, 3),
        (5, 129, 256, 64, 2),
        (4, 70, 128, 32, 3),
        (16, 70, 512, 64, 2),
    ];
    let few = [[20, 61, 3, 4, 512, 64, 4], [5, 0, 2, 2, 128, 32, 64]]; // rows, in a token's steps
    let batches = [
        [1, 0, 1, 1, 128, 64, 1],
        [20, 90, 3, 64, 512, 64, 1],
        [16, 50, 2, 8, 512, 64, 3],
        [5, 129, 11, 16, 256, 64, 16],
        [4, 30, 40, 64, 128, 32, 1],
    ];
    let mut cases = Vec::new();
    for ty in [CacheType::F16, CacheType::Q8_0] {
        for (heads, tokens, rank, rotary, splits) in alone {
            let example = AttentionExample { heads, tokens, rank, rotary, splits, ty };
            cases.push(
                example.joined_case(target, 1, |b, q, cache| {
                    b.mla_attention_matrix8("attention", q, cache, SCALE, splits)
                })?,
            );
        }
        cases.extend(batch_cases(target, ty, &few, |b, a, splits| {
            joined(b, a, |b, q| b.mla_attention_matrix8("attention", q, a.cache, SCALE, splits))
        })?);
        for operands in [MatrixType::F16, MatrixType::F32] {
            let mut by_type = batch_cases(target, ty, &batches, |b, a, splits| {
                b.batch_attention_matrix8(operands, "attention", a, splits)
            })?;
            by_type.iter_mut().for_each(|case| case.name.push_str(&format!(", by {operands:?}")));
            cases.extend(by_type);
        }
    }
    let two = [[20, 300, 8, 512, 64, 1], [4, 330, 16, 256, 64, 3]];
    cases.extend(cases_of_two(target, CacheType::F16, &two, |b, a, splits| {
        b.batch_attention_matrix8(MatrixType::F16, "attention", a, splits)
    })?);
    cases.extend(mla_attention_expanded::cases_on(target, &[])?);
    Ok(cases)
}
