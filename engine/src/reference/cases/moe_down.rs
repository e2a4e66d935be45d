//! The cases of `moe_down`.

use super::{by_turns, columns_for, pairs};
use crate::error::Result;
use crate::kernels::Hidden;
use crate::plan::{Target, Tensor};
use crate::quant::Quant;
use crate::reference::{Case, CaseBuilder};

pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    let case = |(i, quants)| {
        let tokens = [1, 1, 2, 4][i % 4];
        case(&by_turns(target, i, tokens), quants, [45, 100][i % 2], [27, 32][i % 2], tokens)
    };
    pairs(4).into_iter().enumerate().map(case).collect()
}

fn case(
    target: &Target,
    (w_quant, shared_quant): (&'static Quant, &'static Quant),
    wider: usize,
    rows: usize,
    tokens: usize,
) -> Result<Case> {
    let (columns, shared_columns) = (columns_for(w_quant, 45), columns_for(shared_quant, wider));
    let chosen: Vec<[u32; 3]> = (0..tokens as u32).map(|token| [4, 1, 0].map(|expert| (expert + token) % 5)).collect();
    let (shape, shared_shape) = ([columns, rows, 5], [shared_columns, rows, 1]);
    let mut case = CaseBuilder::for_tokens(target, 1, tokens);
    let w = case.weight("w", w_quant, shape)?;
    let shared = case.weight("shared", shared_quant, shared_shape)?;
    let ids = Tensor { shape: [3, tokens], ..case.chosen("ids", chosen.as_flattened()) };
    let width = columns.max(shared_columns);
    let mut hidden = case.noise(width * 4 * tokens);
    for (slot, values) in hidden.chunks_mut(width).enumerate() {
        values[if slot % 4 == 3 { shared_columns } else { columns }..].fill(0.0); // as the first half writes it
    }
    let y = case.plan.tensor("hidden", [width, 4 * tokens]);
    let y = case.rounded_input(&y, "hidden", &hidden);
    let x = case.input("x", [shape[1], tokens]);
    let next = case.norm("norm", shape[1])?;
    let stream = case.plan.moe_down("down", &w, &shared, &Hidden { ids, y }, &x, &next)?;
    case.probe_stream(&stream, &next)?;
    Ok(case.finish(format!(
        "{} {columns}, {} {shared_columns}, {rows} rows, {tokens} tokens",
        w_quant.name, shared_quant.name
    )))
}
