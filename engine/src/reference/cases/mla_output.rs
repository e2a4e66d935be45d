//! The cases of `mla_output`.

use super::mla_attention::{AttentionExample, SCALE};
use super::{by_turns, columns_for};
use crate::error::Result;
use crate::kernels::{CacheType, Input};
use crate::plan::Target;
use crate::quant::{QUANTS, Quant};
use crate::reference::{Case, CaseBuilder};

pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    let case = |(i, quant): (usize, &&'static Quant)| {
        let tokens = [1, 1, 4, 1, 2][i % 5];
        case(&by_turns(target, i, tokens), quant, [1, 3, 64][i % 3], [21, 48][i % 2], tokens)
    };
    QUANTS.iter().enumerate().map(case).collect()
}

fn case(target: &Target, quant: &'static Quant, splits: usize, rows: usize, tokens: usize) -> Result<Case> {
    let rank = columns_for(quant, 36);
    let example = AttentionExample { heads: 3, tokens: 150, rank, rotary: 10, splits, ty: CacheType::F16 };
    let shape = [rank, rows, example.heads];
    let mut case = CaseBuilder::for_tokens(target, 1, tokens);
    let (q, cache) = example.inputs(&mut case);
    let w = case.weight("w", quant, shape)?;
    let y = case.plan.tensor("y", [shape[1], example.heads * tokens]);
    let parts = case.plan.mla_attention("attention", &q, &cache, SCALE, splits)?;
    let rounded = case.plan.mla_output("output", &w, &parts, &y)?;
    case.allow(parts.sums.buffer);
    case.allow(parts.stats.buffer);
    case.probe(&Input { tensor: y, norm: None, rounded })?;
    Ok(case.finish(format!("{} {rank}x{}, {splits} splits, {tokens} tokens", quant.name, shape[1])))
}
