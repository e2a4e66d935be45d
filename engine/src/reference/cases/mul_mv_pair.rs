//! The cases of `mul_mv_pair`.

use super::{by_turns, columns_for, pairs};
use crate::error::Result;
use crate::plan::Target;
use crate::quant::Quant;
use crate::reference::{Case, CaseBuilder};

pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    pairs(3)
        .into_iter()
        .enumerate()
        .map(|(i, (w, v))| {
            let tokens = [1, 2, 4, 8, 1][i % 5];
            case(&by_turns(target, i, tokens), w, v, [45, 64][i % 2], tokens)
        })
        .collect()
}

fn case(target: &Target, w_quant: &'static Quant, v_quant: &'static Quant, rows: usize, tokens: usize) -> Result<Case> {
    let columns = columns_for(v_quant, columns_for(w_quant, 70));
    let mut case = CaseBuilder::for_tokens(target, 1, tokens);
    let w = case.weight("w", w_quant, [columns, rows, 1])?;
    let v = case.weight("v", v_quant, [columns, 3, 1])?;
    let x = case.normed_input("x", [columns, tokens])?;
    let next = case.norm("norm", rows)?;
    let (y, _) = case.plan.mul_mv_pair("pair", ["y", "z"], &w, &v, &x, Some(&next))?;
    case.probe_stream(&y, &next)?;
    Ok(case.finish(format!("{} {} of {columns} columns, {tokens} tokens", w_quant.name, v_quant.name)))
}
