//! The cases of `expand_kv`.

use super::mla_attention::AttentionExample;
use super::{columns_for, pairs};
use crate::error::Result;
use crate::gpu::Matrices;
use crate::kernels::{CacheType, LatentWeights};
use crate::plan::Target;
use crate::quant::{QUANTS, Quant};
use crate::reference::{Case, CaseBuilder};

/// The number of KV rows of a segment.
const SEGMENT: usize = 128;

pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    let target = &Target { matrices: Matrices::None, ..target.clone() };
    let odd = [2, 20, 36, 68, 0, 77]; // rank and columns that fill no group
    let ragged = QUANTS.iter().copied().filter(|quant| quant.ragged);
    let ragged = ragged.map(|quant| case(target, (quant, quant), CacheType::F16, odd));
    cases_on(target)?.into_iter().map(Ok).chain(ragged).collect()
}

/// The cases with shapes that any kernel supports.
pub(super) fn cases_on(target: &Target) -> Result<Vec<Case>> {
    let types = [CacheType::F16, CacheType::Q8_0].into_iter().cycle();
    pairs(1)
        .into_iter()
        .zip(types)
        .zip([[2, 96, 64, 80, 0, 100], [3, 64, 64, 48, 1, 171], [1, 192, 64, 256, 2, 384]].into_iter().cycle())
        .map(|((formats, ty), shape)| case(target, formats, ty, shape))
        .collect()
}

/// A case with these numbers of heads, nope, rank and value width, for segment `index` of `tokens` KV rows.
fn case(
    target: &Target,
    (k, v): (&'static Quant, &'static Quant),
    ty: CacheType,
    [heads, nope, rank, width, index, tokens]: [usize; 6],
) -> Result<Case> {
    let (rank, rotary, nope) = (columns_for(v, rank), 16, columns_for(k, nope));
    let mut case = CaseBuilder::for_rows(target, rotary / 2, 64);
    let example = AttentionExample { heads, tokens, rank, rotary, splits: 1, ty };
    case.consecutive(tokens as u32 - 20, 20);
    let cache = example.cache(&mut case);
    let k_b = case.weight("k_b", k, [nope, rank, heads])?;
    let v_b = case.weight("v_b", v, [rank, width, heads])?;
    let by = LatentWeights { k_b: &k_b, v_b: &v_b };
    let expanded = case.plan.expanded("expanded", by, &cache, SEGMENT);
    case.plan.expand_kv("expand_kv", by, &cache, &expanded, index)?;
    let shape = format!("{heads} heads, nope {nope}, value {width}, rank {rank}");
    Ok(case.finish(format!("{} and {}, {ty:?}, {shape}, segment {index} of {tokens} tokens", k.name, v.name)))
}
