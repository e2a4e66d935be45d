//! The cases of `mla_attention_batch`.

use super::mla_attention::AttentionExample;
use crate::error::Result;
use crate::kernels::CacheType;
use crate::plan::Target;
use crate::reference::Case;

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
        let example = AttentionExample { heads, tokens: position + count, rank, rotary, splits, ty };
        example.chunk_case(target, (room, count), 2e-5, |b, a| b.attention_in_splits("attention", a, splits))
    };
    shapes.into_iter().map(case).collect()
}
