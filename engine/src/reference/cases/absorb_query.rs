//! The cases of `absorb_query`.

use super::{by_turns, columns_for, in_turn};
use crate::error::Result;
use crate::plan::Target;
use crate::quant::Quant;
use crate::reference::{Case, CaseBuilder};

pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    let shapes = in_turn(&[(3, 24, 8, 20, 1), (2, 192, 64, 36, 1), (3, 24, 8, 20, 4)]).into_iter();
    shapes
        .enumerate()
        .map(|(i, (quant, (heads, nope, rotary, rank, tokens)))| {
            let target = by_turns(target, i, tokens);
            case(&target, quant, [heads, columns_for(quant, nope), rotary, rank, tokens])
        })
        .collect()
}

fn case(target: &Target, quant: &'static Quant, [heads, nope, rotary, rank, tokens]: [usize; 5]) -> Result<Case> {
    let mut case = CaseBuilder::rotated(target, rotary / 2, 1234, (tokens, tokens));
    let w = case.weight("w", quant, [nope, rank, heads])?;
    let q = case.plan.tensor("q", [nope + rotary, heads * tokens]);
    let queries = case.noise((nope + rotary) * heads * tokens);
    let q = case.rounded_input(&q, "q", &queries);
    let y = case.plan.tensor("y", [rank + rotary, heads * tokens]);
    case.plan.absorb_query("absorb", &w, &q, &y)?;
    Ok(case.finish(format!("{} {heads} heads, nope {nope}, rotary {rotary}, rank {rank}, {tokens} tokens", quant.name)))
}
