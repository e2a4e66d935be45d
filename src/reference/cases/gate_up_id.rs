//! The cases of `gate_up_id`.

use super::{columns_for, pairs};
use crate::error::Result;
use crate::kernels::matvec;
use crate::plan::Target;
use crate::quant::Quant;
use crate::reference::operand::seen;
use crate::reference::product::{dot, gated};
use crate::reference::{Case, CaseBuilder};

pub(super) fn cases(target: Target) -> Result<Vec<Case>> {
    pairs(5).into_iter().map(|(gate, up)| case(target, gate, up)).collect()
}

fn case(target: Target, gate_quant: &'static Quant, up_quant: &'static Quant) -> Result<Case> {
    let chosen: [u32; 3] = [4, 1, 0];
    let columns = columns_for(up_quant, columns_for(gate_quant, 45));
    let shape = [columns, 11, 5];
    let mut case = CaseBuilder::new(target, 1);
    let (gate, gates) = case.weight("gate", gate_quant, shape)?;
    let (up, ups) = case.weight("up", up_quant, shape)?;
    let (x, xs) = case.normed_input("x", [columns, 1])?;
    let ids = case.chosen("ids", &chosen);
    let y = case.plan.gate_up_id("y", &gate, &up, &ids, &x)?;
    let xs = seen(&xs, columns, &[gate_quant, up_quant], target.arithmetic);
    let element = |i: usize| {
        let (expert, row) = (chosen[i / shape[1]] as usize, i % shape[1]);
        gated(dot(&gates, shape, expert, row, &xs), dot(&ups, shape, expert, row, &xs))
    };
    let (want, sizes) = (0..shape[1] * chosen.len()).map(element).unzip();
    case.expect(&y, want, sizes, matvec::bound(target.arithmetic));
    Ok(case.finish(format!("{} {} {columns}x{}x5 ids {chosen:?}", gate_quant.name, up_quant.name, shape[1])))
}
