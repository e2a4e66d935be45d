//! The cases of `mul_mv_pair`.

use super::{by_turns, columns_for, pairs};
use crate::error::Result;
use crate::kernels::{Norm, matvec};
use crate::plan::Target;
use crate::quant::Quant;
use crate::reference::operand::seen;
use crate::reference::product::products;
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
    let (first, second) = ([columns, rows, 1], [columns, 3, 1]);
    let mut case = CaseBuilder::for_tokens(target, 1, tokens);
    let (w, ws) = case.weight("w", w_quant, first)?;
    let (v, vs) = case.weight("v", v_quant, second)?;
    let (x, xs) = case.normed_input("x", [columns, tokens])?;
    let (weight, norms) = case.vector("norm", rows)?;
    let next = Norm { weight, epsilon: 1e-5 };
    let (y, z) = case.plan.mul_mv_pair("pair", ["y", "z"], &w, &v, &x, Some(&next))?;
    let xs = seen(&xs, columns, &[w_quant, v_quant], target.arithmetic);
    for (output, (values, shape)) in [y.x, z].iter().zip([(&ws, first), (&vs, second)]) {
        let (want, sizes): (Vec<f64>, Vec<f64>) = products(values, shape, &xs).into_iter().unzip();
        if shape == first {
            case.probe_stream(&y, &next, &want, &norms)?;
        }
        case.expect(output, want, sizes, matvec::bound(target.arithmetic));
    }
    Ok(case.finish(format!("{} {} of {columns} columns, {tokens} tokens", w_quant.name, v_quant.name)))
}
