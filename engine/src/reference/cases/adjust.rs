//! The cases of `adjust`.

use crate::error::Result;
use crate::kernels::{Adjustment, Penalties, Sampling};
use crate::plan::{BufferRef, Plan, RowHeader, Target};
use crate::reference::{Case, CaseBuilder};

/// The numbers of logits and of adjustments, and the newest token if the GPU sampled it: one that is listed, one that
/// is not, the last.
const SHAPES: [(usize, usize, Option<u32>); 8] = [
    (1, 0, None),
    (1, 1, Some(0)),
    (300, 0, Some(7)),
    (300, 5, Some(0)),
    (300, 5, Some(299)),
    (5000, 700, Some(699 * 7)),
    (5000, 700, None),
    (154_880, 64, Some(154_879)),
];

pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    let alone = SHAPES.into_iter().map(|shape| (shape, None, 1));
    let others = [(SHAPES[3], Some(2), 1), (SHAPES[5], Some(699), 1), (SHAPES[4], Some(1), 3)];
    alone.chain(others).map(|(shape, banned, rows)| case(target, shape, banned, rows)).collect()
}

/// Adjusts the logits of `rows` rows, in a buffer for one more.
fn case(
    target: &Target,
    (count, listed, newest): (usize, usize, Option<u32>),
    banned: Option<usize>,
    rows: usize,
) -> Result<Case> {
    let mut case = CaseBuilder::for_tokens(target, 2, if rows == 1 { 1 } else { rows + 2 });
    let logits = case.plan.tensor("logits", [count, case.plan.rows()]);
    case.plan.room_for_sequences(rows);
    let local = BufferRef::Local(case.plan.adjust("adjust", &logits, rows * listed + 1)?);
    let (mut batch, mut sampled, mut ways, mut all) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let values: Vec<f32> = case.noise(count * rows).iter().map(|value| 10.0 * value).collect();
    case.fill(&logits, &values);
    for row in 0..rows as u32 {
        let biases = case.noise(listed);
        let entry = |(&bias, i): (&f32, usize)| {
            let bias = if Some(i) == banned {
                f32::NEG_INFINITY
            } else if i % 3 == 0 {
                0.0
            } else {
                4.0 * bias
            };
            Adjustment { token: (i * 7 % count) as u32, count: i as u32 % 4, bias }
        };
        let entries: Vec<Adjustment> = biases.iter().zip(0..).map(entry).collect();
        let penalties = Penalties { repeat: 1.3 + row as f32, presence: 0.7, frequency: -0.2 };
        let token = if newest.is_some() { RowHeader::sampled(row as usize) } else { 3 };
        let (first_adjustment, adjustments) = (all.len() as u32, listed as u32);
        batch.push(RowHeader { token, sequence: row, first_adjustment, adjustments, ..RowHeader::default() });
        sampled.push([newest.unwrap_or_default(), 0, 0]);
        ways.push(Sampling::GREEDY.penalised(penalties));
        all.extend(entries);
    }
    case.rows(&batch);
    case.fill_bytes(BufferRef::Local(Plan::SAMPLED), bytemuck::cast_slice(&sampled).to_vec());
    case.fill_bytes(BufferRef::Local(Plan::SAMPLING), bytemuck::cast_slice(&ways).to_vec());
    case.fill_bytes(local, bytemuck::cast_slice(&all).to_vec());
    Ok(case.finish(format!("{rows} of {count}, {listed} listed, newest {newest:?}, banned {banned:?}")))
}
