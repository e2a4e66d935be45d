//! The cases of `moe_down`.

use super::{by_turns, columns_for, pairs, wide};
use crate::error::Result;
use crate::kernels::{Hidden, Norm, matvec};
use crate::plan::{Target, Tensor};
use crate::quant::Quant;
use crate::reference::operand::seen;
use crate::reference::product::dot;
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
    let (w, ws) = case.weight("w", w_quant, shape)?;
    let (shared, shareds) = case.weight("shared", shared_quant, shared_shape)?;
    let ids = Tensor { shape: [3, tokens], ..case.chosen("ids", chosen.as_flattened()) };
    let width = columns.max(shared_columns);
    let mut hidden = case.noise(width * 4 * tokens);
    for (slot, values) in hidden.chunks_mut(width).enumerate() {
        values[if slot % 4 == 3 { shared_columns } else { columns }..].fill(0.0); // as the first half writes it
    }
    let y = case.plan.tensor("hidden", [width, 4 * tokens]);
    let y = case.rounded_input(&y, "hidden", &hidden);
    let (x, before) = case.input("x", [shape[1], tokens]);
    let (weight, norms) = case.vector("norm", shape[1])?;
    let next = Norm { weight, epsilon: 1e-5 };
    let stream = case.plan.moe_down("down", &w, &shared, &Hidden { ids, y }, &x, &next)?;
    let slot = |slot: usize, columns: usize| {
        seen(&wide(&hidden[slot * width..][..columns]), columns, &[w_quant, shared_quant], target.arithmetic)
    };
    let element = |i: usize| {
        let (token, row) = (i / rows, i % rows);
        let of_chosen = |(s, &e): (usize, &u32)| dot(&ws, shape, e as usize, row, &slot(4 * token + s, columns));
        let shared = dot(&shareds, shared_shape, 0, row, &slot(4 * token + 3, shared_columns));
        let before = (before[i] as f64, before[i].abs() as f64);
        let terms = chosen[token].iter().enumerate().map(of_chosen).chain([shared, before]);
        terms.fold((0.0, 0.0), |sum, term| (sum.0 + term.0, sum.1 + term.1))
    };
    let (want, sizes): (Vec<f64>, Vec<f64>) = (0..rows * tokens).map(element).unzip();
    case.probe_stream(&stream, &next, &want, &norms)?;
    case.expect(&x, want, sizes, matvec::bound(target.arithmetic));
    Ok(case.finish(format!(
        "{} {columns}, {} {shared_columns}, {rows} rows, {tokens} tokens",
        w_quant.name, shared_quant.name
    )))
}
