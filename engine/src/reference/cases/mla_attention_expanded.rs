//! The cases of `mla_attention_expanded`, including the expansion of the keys and values.

use super::columns_for;
use super::expand_kv_matrix::able;
use super::mla_attention::{AttentionExample, SCALE};
use crate::error::Result;
use crate::kernels::mla_attention_expanded::Segments;
use crate::kernels::{CacheType, LatentWeights};
use crate::plan::Target;
use crate::quant::{F16, Q4_0, QUANTS, Quant};
use crate::reference::{Case, CaseBuilder};

pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    let target = &able(target);
    let types = [CacheType::F16, CacheType::Q8_0, CacheType::F16].into_iter().cycle();
    let formats = QUANTS.iter().map(|quant| (&Q4_0, *quant));
    formats
        .zip(types)
        .zip(SHAPES.into_iter().cycle())
        .map(|((formats, ty), shape)| case(target, formats, ty, shape))
        .collect()
}

/// Heads, tokens before the batch, tokens of the batch, nope, rotary, value width, KV rows of a segment.
const SHAPES: [[usize; 7]; 4] = [
    [2, 0, 40, 32, 32, 64, 128],
    [1, 0, 200, 192, 64, 256, 256],
    [3, 300, 131, 96, 32, 32, 128],
    [2, 125, 150, 192, 64, 256, 128],
];

/// The cases of another kernel, with these shapes and `more`.
pub(super) fn cases_on(target: &Target, more: &[[usize; 7]]) -> Result<Vec<Case>> {
    let types = [CacheType::F16, CacheType::F16, CacheType::Q8_0].into_iter().cycle();
    let shapes = SHAPES.iter().chain(more).zip(types);
    shapes.map(|(shape, ty)| case(target, (&F16, &F16), ty, *shape)).collect()
}

fn case(
    target: &Target,
    (k, v): (&'static Quant, &'static Quant),
    ty: CacheType,
    [heads, position, count, nope, rotary, width, length]: [usize; 7],
) -> Result<Case> {
    let (rank, tokens, room) = (columns_for(v, 64), position + count, count.next_multiple_of(32));
    let mut case = CaseBuilder::for_rows(target, rotary / 2, room);
    case.rotated_tokens(position as u32, count);
    let example = AttentionExample { heads, tokens, rank, rotary, splits: 1, ty };
    let cache = example.cache(&mut case);
    let k_b = case.weight("k_b", k, [nope, rank, heads])?;
    let v_b = case.weight("v_b", v, [rank, width, heads])?;
    let q = case.batch("q", [nope + rotary, heads], room, count);
    let by = LatentWeights { k_b: &k_b, v_b: &v_b };
    let segments = Segments { length, count: tokens.div_ceil(length) };
    let y = case.plan.mla_attention_expanded("attention", by, (&q, &cache, SCALE), segments)?;
    case.allow_between(&[y.buffer]);
    let shape = format!("nope {nope}, rotary {rotary}, value {width}");
    Ok(case.finish(format!(
        "{} expanded, {ty:?}, {heads} heads, {count} of {room} tokens after {position}, {shape}, segments of {length}",
        v.name
    )))
}
