//! The cases of `sum_normed`.

use crate::error::Result;
use crate::kernels::{Routed, Slots, Summands};
use crate::plan::{Target, Tensor};
use crate::reference::{Case, CaseBuilder};

pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    [
        (4, 1, (1, 1), (0, 0)),
        (36, 3, (5, 4), (0, 0)),
        (72, 2, (3, 3), (3, 3)),
        (96, 1, (4, 3), (2, 3)),
        (2048, 16, (4, 3), (4, 4)),
    ]
    .into_iter()
    .flat_map(|shape| [false, true].map(|add| case(target, shape, add)))
    .collect()
}

fn case(
    target: &Target,
    (width, count, (rows, live), (top_k, per_row)): (usize, usize, (usize, usize), (usize, usize)),
    add: bool,
) -> Result<Case> {
    let mut case = CaseBuilder::for_rows(target, 1, rows);
    case.consecutive(0, live);
    let parts = case.batch("parts", [width, count], rows, live);
    let x = case.batch("x", [width, 1], rows, live);
    let norm = case.norm("norm", width)?;
    let tensor = Tensor { shape: [width, rows], ..parts };
    let summands = Summands { tensor, parts: count, apart: parts.stride, first: 0 };
    let mut slots = None;
    if top_k > 0 {
        let y = case.batch("y", [width, per_row], rows, live);
        let [ids, weights] = ["ids", "weights"].map(|name| case.plan.tensor_with_stride(name, [top_k, rows], top_k));
        let shares = case.noise(top_k * live);
        case.fill_bytes(weights.buffer, bytemuck::cast_slice(&shares).to_vec());
        slots = Some(Slots { routed: Routed { ids, weights }, y });
    }
    let h = case.plan.sum_normed("sum", &summands, (&x, add), slots.as_ref(), &norm)?;
    case.allow_between(&[h.buffer]);
    let how = if add { "added" } else { "instead" };
    Ok(case.finish(format!("{width}, {count} parts, {live} of {rows} tokens, {top_k} of {per_row} slots, {how}")))
}
