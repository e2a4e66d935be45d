//! The cases of `mla_attention_batch_matrix`.

use super::mla_attention::AttentionExample;
use crate::error::Result;
use crate::gpu::Matrices;
use crate::kernels::CacheType;
use crate::kernels::mla_attention_batch_matrix::BOUND;
use crate::plan::{Target, Team};
use crate::reference::Case;

pub(super) fn cases(target: Target) -> Result<Vec<Case>> {
    let target = Target { matrices: Matrices::Sixteen, team: Team::Subgroup, subgroup: 32, ..target };
    let shapes = [
        (1, 0, 1, 1, 128, 64, 1),
        (20, 0, 16, 16, 512, 64, 1),
        (20, 700, 37, 64, 512, 64, 1),
        (20, 450, 7, 8, 512, 64, 3),
        (37, 129, 11, 16, 256, 64, 16),
    ];
    let case = |(heads, position, count, room, rank, rotary, splits)| {
        let example = AttentionExample { heads, tokens: position + count, rank, rotary, splits, ty: CacheType::F16 };
        example.chunk_case(target, (room, count), BOUND, |b, a| b.attention_by_matrices("attention", a, splits))
    };
    shapes.into_iter().map(case).collect()
}
