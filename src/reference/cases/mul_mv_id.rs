//! The cases of `mul_mv_id`.

use super::{columns_for, in_turn};
use crate::error::Result;
use crate::kernels::matvec;
use crate::plan::Target;
use crate::reference::operand::seen;
use crate::reference::product::dot;
use crate::reference::{Case, CaseBuilder};

pub(super) fn cases(target: Target) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for (quant, (columns, rows, chosen)) in in_turn(&[(96, 21, [3u32, 0, 3].as_slice()), (45, 8, &[5])]) {
        let columns = columns_for(quant, columns);
        let shape = [columns, rows, 6];
        let mut case = CaseBuilder::new(target, 1);
        let (w, ws) = case.weight("experts", quant, shape)?;
        let (x, xs) = case.plain_input("x", [columns, chosen.len()]);
        let ids = case.chosen("ids", chosen);
        let y = case.plan.mul_mv_id("product", &w, &ids, &x)?;
        let xs = seen(&xs, columns, &[quant], target.arithmetic);
        let element = |i: usize| {
            let slot = i / rows;
            dot(&ws, shape, chosen[slot] as usize, i % rows, &xs[slot * columns..][..columns])
        };
        let (want, sizes) = (0..rows * chosen.len()).map(element).unzip();
        case.expect(&y, want, sizes, matvec::bound(target.arithmetic));
        cases.push(case.finish(format!("{} {columns}x{rows}x6 ids {chosen:?}", quant.name)));
    }
    Ok(cases)
}
