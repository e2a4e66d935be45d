//! The cases of `mla_attention_batch`.

use super::mla_attention::AttentionExample;
use super::mla_attention_expanded;
use crate::error::Result;
use crate::gpu::Matrices;
use crate::kernels::{BatchAttention, CacheType};
use crate::plan::{Builder, Target, Tensor};
use crate::reference::Case;

pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    use CacheType::{F16, F32, Q8_0};
    let shapes = [
        (1, 0, 1, 1, 8, 2, F16, 1),
        (5, 3, 13, 16, 36, 10, F32, 1),
        (20, 70, 7, 8, 512, 64, F16, 1),
        (20, 30, 5, 5, 512, 64, F32, 3),
        (3, 150, 40, 64, 132, 18, F16, 16),
        (2, 1, 3, 4, 4096, 8, F16, 2),
        (1, 0, 2, 2, 8192, 8, F16, 1),
        (20, 70, 7, 8, 512, 64, Q8_0, 1),
        (3, 250, 13, 16, 96, 10, Q8_0, 2),
    ];
    let case = |(heads, position, count, room, rank, rotary, ty, splits)| {
        let example = AttentionExample { heads, tokens: position + count, rank, rotary, splits, ty };
        example.batch_case(target, (room, count), |b, a| b.attention_in_splits("attention", a, splits))
    };
    let mut over_latents = shapes.into_iter().map(case).collect::<Result<Vec<_>>>()?;
    let two = [[4, 300, 8, 36, 10, 1], [20, 320, 16, 512, 64, 3]];
    over_latents.extend(cases_of_two(target, F16, &two, |b, a, splits| b.attention_in_splits("attention", a, splits))?);
    let target = &Target { matrices: Matrices::None, ..target.clone() };
    let narrow = [2, 3, 37, 20, 4, 36, 128];
    let over_segments = mla_attention_expanded::cases_on(target, &[narrow])?;
    Ok(over_latents.into_iter().chain(over_segments).collect())
}

/// The cases of attention of two sequences, appended by `attend`, of these shapes: heads, tokens in the cache, tokens
/// of each sequence, rank, rotary and splits. A workgroup must not have queries of both.
pub(super) fn cases_of_two(
    target: &Target,
    ty: CacheType,
    shapes: &[[usize; 6]],
    attend: impl Fn(&mut Builder, &BatchAttention<'_>, usize) -> Result<Tensor>,
) -> Result<Vec<Case>> {
    let case = |&[heads, tokens, count, rank, rotary, splits]: &[usize; 6]| {
        let example = AttentionExample { heads, tokens, rank, rotary, splits, ty };
        example.case_of_two(target, count, |b, a| attend(b, a, splits))
    };
    shapes.iter().map(case).collect()
}

/// The cases of attention over a cache, appended by `attend`, for batches of these shapes: heads, tokens before the
/// batch, tokens of the batch, its capacity in rows, rank, rotary and splits.
pub(super) fn batch_cases(
    target: &Target,
    ty: CacheType,
    shapes: &[[usize; 7]],
    attend: impl Fn(&mut Builder, &BatchAttention<'_>, usize) -> Result<Tensor>,
) -> Result<Vec<Case>> {
    let case = |&[heads, position, count, room, rank, rotary, splits]: &[usize; 7]| {
        let example = AttentionExample { heads, tokens: position + count, rank, rotary, splits, ty };
        example.batch_case(target, (room, count), |b, a| attend(b, a, splits))
    };
    shapes.iter().map(case).collect()
}
