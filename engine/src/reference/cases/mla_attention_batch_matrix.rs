//! The cases of `mla_attention_batch_matrix`.

use super::mla_attention_batch::{batch_cases, cases_of_two};
use crate::error::Result;
use crate::gpu::Matrices;
use crate::kernels::CacheType::{F16, Q8_0};
use crate::plan::{Target, Team};
use crate::reference::Case;

pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    let target = &Target { matrices: Matrices::Sixteen, team: Team::Subgroup, subgroup: 32, ..target.clone() };
    let shapes = [
        [1, 0, 1, 1, 128, 64, 1],
        [20, 0, 16, 16, 512, 64, 1],
        [20, 700, 37, 64, 512, 64, 1],
        [20, 450, 7, 8, 512, 64, 3],
        [37, 129, 11, 16, 256, 64, 16],
    ];
    let mut cases = Vec::new();
    for (ty, shapes) in [(F16, &shapes[..]), (Q8_0, &shapes[2..])] {
        cases.extend(batch_cases(target, ty, shapes, |b, a, splits| b.attention_by_matrices("attention", a, splits))?);
    }
    let two = [[20, 300, 16, 512, 64, 1], [4, 420, 32, 256, 64, 3]];
    cases.extend(cases_of_two(target, F16, &two, |b, a, splits| b.attention_by_matrices("attention", a, splits))?);
    Ok(cases)
}
