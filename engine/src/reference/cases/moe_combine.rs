//! The cases of `moe_combine`.

use crate::error::Result;
use crate::plan::Target;
use crate::reference::{Case, CaseBuilder};

pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    [(4, 1, (1, 1)), (33, 2, (3, 3)), (72, 3, (5, 4)), (2048, 4, (8, 7))]
        .into_iter()
        .map(|shape| case(target, shape))
        .collect()
}

fn case(target: &Target, (width, slots, (tokens, count)): (usize, usize, (usize, usize))) -> Result<Case> {
    let mut case = CaseBuilder::for_rows(target, 1, tokens);
    case.consecutive(0, count);
    let weights = case.plan.tensor_with_stride("weights", [slots, tokens], slots);
    let ws = case.noise(slots * count);
    case.fill_bytes(weights.buffer, bytemuck::cast_slice(&ws).to_vec());
    let y = case.batch("y", [width, slots], tokens, count);
    let x = case.batch("x", [width, 1], tokens, count);
    case.plan.moe_combine("sum", &weights, &y, &x)?;
    Ok(case.finish(format!("{slots} x {width}, {count} of {tokens} tokens")))
}
