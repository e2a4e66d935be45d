//! The cases of `moe_sum`.

use crate::error::Result;
use crate::plan::Target;
use crate::reference::{Case, CaseBuilder};

pub(super) fn cases(target: Target) -> Result<Vec<Case>> {
    let case = |(width, slots): (usize, usize)| {
        let mut case = CaseBuilder::new(target, 1);
        let (weights, ws) = case.input("weights", [slots, 1]);
        let (y, ys) = case.input("y", [width, slots]);
        let (x, xs) = case.input("x", [width, 1]);
        case.plan.moe_sum("sum", &weights, &y, &x)?;
        let element = |i: usize| {
            let terms = (0..slots).map(|s| ws[s] as f64 * ys[s * width + i] as f64);
            let start = (xs[i] as f64, xs[i].abs() as f64);
            terms.fold(start, |(sum, size), term| (sum + term, size + term.abs()))
        };
        let (want, sizes) = (0..width).map(element).unzip();
        case.expect(&x, want, sizes, 1e-6);
        Ok(case.finish(format!("{slots} x {width}")))
    };
    [(1, 1), (70, 3), (2048, 4)].into_iter().map(case).collect()
}
