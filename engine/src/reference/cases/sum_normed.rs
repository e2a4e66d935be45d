//! The cases of `sum_normed`.

use crate::error::Result;
use crate::kernels::errors::{NORMED, SUM};
use crate::kernels::{Norm, Routed, Slots, Summands};
use crate::plan::{Target, Tensor};
use crate::reference::vectors::rms_normed;
use crate::reference::{Case, CaseBuilder};

pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    [(4, 1, (1, 1), 0), (36, 3, (5, 4), 0), (72, 2, (3, 3), 3), (2048, 16, (4, 3), 4)]
        .into_iter()
        .flat_map(|shape| [false, true].map(|add| case(target, shape, add)))
        .collect()
}

fn case(
    target: &Target,
    (width, count, (rows, live), top_k): (usize, usize, (usize, usize), usize),
    add: bool,
) -> Result<Case> {
    let mut case = CaseBuilder::for_rows(target, 1, rows);
    case.consecutive(0, live);
    let (parts, values) = case.batch("parts", [width, count], rows, live);
    let (x, xs) = case.batch("x", [width, 1], rows, live);
    let (weight, weights) = case.vector("norm", width)?;
    let summands = Summands { tensor: Tensor { shape: [width, rows], ..parts }, parts: count, apart: parts.stride };
    let (mut slots, mut experts, mut shares) = (None, Vec::new(), Vec::new());
    if top_k > 0 {
        let (y, ys) = case.batch("y", [width, top_k], rows, live);
        let [ids, weights] = ["ids", "weights"].map(|name| case.plan.tensor_with_stride(name, [top_k, rows], top_k));
        shares = case.noise(top_k * live);
        case.fill_bytes(weights.buffer, bytemuck::cast_slice(&shares).to_vec());
        (slots, experts) = (Some(Slots { routed: Routed { ids, weights }, y }), ys);
    }
    let norm = Norm { weight, epsilon: 1e-5 };
    let h = case.plan.sum_normed("sum", &summands, (&x, add), slots.as_ref(), &norm)?;
    let (mut want, mut sizes) = (Vec::new(), Vec::new());
    for (i, before) in xs.iter().enumerate() {
        let (row, value) = (i / width, i % width);
        let of_parts = (0..count).map(|part| f64::from(values[(row * count + part) * width + value]));
        let slot = |rank: usize| {
            f64::from(shares[row * top_k + rank]) * f64::from(experts[(row * top_k + rank) * width + value])
        };
        let start = if add { f64::from(*before) } else { 0.0 };
        let terms: Vec<f64> = of_parts.chain((0..top_k).map(slot)).chain([start]).collect();
        want.push(terms.iter().sum::<f64>());
        sizes.push(terms.iter().map(|term| term.abs()).sum::<f64>());
    }
    let sums: Vec<f32> = want.iter().map(|value| *value as f32).collect();
    let normed = rms_normed(&sums, &weights, norm.epsilon);
    let scaled =
        normed.iter().zip(&want).zip(&sizes).map(|((normed, sum), size)| (normed / sum).abs() * size).collect();
    case.expect_batch(&h, normed, scaled, SUM + NORMED);
    case.expect_batch(&x, want, sizes, SUM);
    case.allow_between();
    let how = if add { "added" } else { "instead" };
    Ok(case.finish(format!("{width}, {count} parts, {live} of {rows} tokens, {top_k} slots, {how}")))
}
