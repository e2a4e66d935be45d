//! The cases of `gate_up`.

use super::{by_turns, columns_for, pairs};
use crate::error::Result;
use crate::plan::Target;
use crate::quant::Quant;
use crate::reference::{Case, CaseBuilder};

pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    let case = |(i, (gate, up))| {
        let tokens = [1, 2, 1, 4, 8][i % 5];
        case(&by_turns(target, i, tokens), [gate, up], i % 2 == 1, [21, 32, 48][i % 3], tokens)
    };
    pairs(1).into_iter().enumerate().map(case).collect()
}

fn case(target: &Target, quants: [&'static Quant; 2], normed: bool, rows: usize, tokens: usize) -> Result<Case> {
    let columns = quants.iter().fold(70, |columns, quant| columns_for(quant, columns));
    let shape = [columns, rows, 1];
    let mut case = CaseBuilder::for_tokens(target, 1, tokens);
    let gate = case.weight("gate", quants[0], shape)?;
    let up = case.weight("up", quants[1], shape)?;
    let x = if normed { case.normed_input("x", [columns, tokens])? } else { case.plain_input("x", [columns, tokens]) };
    let y = case.plan.gate_up("gated", &gate, &up, &x)?;
    case.probe(&y)?;
    let how = if normed { " normed" } else { "" };
    Ok(case.finish(format!("{} {} {columns}x{rows}{how}, {tokens} tokens", quants[0].name, quants[1].name)))
}
