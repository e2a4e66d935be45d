//! The cases of `moe_combine`.

use crate::error::Result;
use crate::kernels::errors::SUM;
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
    let (y, ys) = case.batch("y", [width, slots], tokens, count);
    let (x, xs) = case.batch("x", [width, 1], tokens, count);
    case.plan.moe_combine("sum", &weights, &y, &x)?;
    let element = |i: usize| {
        let (token, value) = (i / width, i % width);
        let slot = |k: usize| token * slots + k;
        let terms = (0..slots).map(|k| ws[slot(k)] as f64 * ys[slot(k) * width + value] as f64);
        let start = (xs[i] as f64, xs[i].abs() as f64);
        terms.fold(start, |(sum, size), term| (sum + term, size + term.abs()))
    };
    let (want, sizes) = (0..width * count).map(element).unzip();
    case.expect_batch(&x, want, sizes, SUM);
    Ok(case.finish(format!("{slots} x {width}, {count} of {tokens} tokens")))
}
