//! The cases of `sample`.

use super::slice_max::{EDGES, Edit};
use crate::error::Result;
use crate::kernels::Sampling;
use crate::plan::{BufferRef, Plan, RowHeader, Target};
use crate::reference::{Case, CaseBuilder};

/// Sampling parameters: temperature, `top_k`, `top_p`, `min_p`.
const WAYS: [(f32, usize, f32, f32); 12] = [
    (1.0, 0, 1.0, 0.0),
    (1.0, 0, 0.95, 0.0),
    (0.6, 40, 0.95, 0.05),
    (2.0, 7, 1.0, 0.0),
    (1.0, 1, 1.0, 0.0),
    (1e6, 300, 1.0, 0.0),
    (1.5, 503, 0.3, 0.0),
    (1.0, 0, 0.0, 0.0),
    (1.0, 0, 0.5, 0.0),
    (1e6, 0, 1.0, 0.1),
    (f32::MAX, 1_000_000, 0.999, 1.0),
    (f32::MIN_POSITIVE, 0, 1.0, 0.0),
];

/// A name for the logits, their number, and how they are made from noise.
const SHAPES: [(&str, usize, Edit); 8] = [
    ("spread", 3000, |v| v.iter_mut().for_each(|v| *v *= 10.0)),
    ("peaked", 2000, |v| v.iter_mut().for_each(|v| *v = 40.0 * v.powi(5))),
    ("flat", 5003, |v| v.fill(0.25)),
    ("nearly flat", 4097, |v| v.iter_mut().for_each(|v| *v *= 0.01)),
    ("steps", 1500, |v| v.iter_mut().for_each(|v| *v = (4.0 * *v).round())),
    ("far apart", 40, |v| v.iter_mut().for_each(|v| *v *= 1e38)),
    ("some numbers", 2500, |v| v.iter_mut().step_by(3).for_each(|v| *v = f32::NAN)),
    ("a vocabulary", 154_880, |v| v.iter_mut().for_each(|v| *v = 24.0 * v.powi(9))),
];

pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    let way = |(temperature, top_k, top_p, min_p)| Sampling::draw(temperature, top_k, top_p, min_p, 1 << 32 | 7);
    let edges = EDGES.into_iter().flat_map(|edge| [Sampling::GREEDY, way(WAYS[1])].map(|sampling| (edge, sampling)));
    let ways = SHAPES.into_iter().flat_map(|shape| WAYS.map(|some| (shape, way(some))));
    let alone = ways.chain(edges).zip(0..).map(|((logits, sampling), position)| {
        let mut case = CaseBuilder::new(target, 1);
        steps(&mut case, logits, &[(position, 0)], &[sampling])?;
        Ok(case.finish(format!("{}, {}, {sampling:?}", logits.0, logits.1)))
    });
    let several = [SHAPES[0], SHAPES[2], EDGES[4]].into_iter().map(|logits| {
        let mut case = CaseBuilder::for_tokens(target, 3, 5);
        let rows = [(9, 2), (8, 0), (7, 3), (7, 1)];
        steps(&mut case, logits, &rows, &[way(WAYS[0]), way(WAYS[2]), Sampling::GREEDY, way(WAYS[9])])?;
        Ok(case.finish(format!("{}, {}, 4 of 5 rows", logits.0, logits.1)))
    });
    alone.chain(several).collect()
}

/// The steps for rows, given the position and the sequence of each. `ways` are the sequences' sampling parameters.
fn steps(
    case: &mut CaseBuilder,
    (_, count, edit): (&str, usize, Edit),
    rows: &[(u32, u32)],
    ways: &[Sampling],
) -> Result<()> {
    let logits = case.plan.tensor("logits", [count, case.plan.rows()]);
    let mut values = case.noise(count * rows.len());
    values.chunks_mut(count).for_each(edit);
    case.fill(&logits, &values);
    case.plan.room_for_sequences(ways.len());
    let header = |&(position, sequence)| RowHeader { position, sequence, result: sequence, ..RowHeader::default() };
    case.rows(&rows.iter().map(header).collect::<Vec<_>>());
    case.fill_bytes(BufferRef::Local(Plan::SAMPLING), bytemuck::cast_slice(ways).to_vec());
    let slices = case.plan.slice_max("slices", &logits)?;
    case.plan.histogram("histogram", &logits, &slices)?;
    case.plan.sample("sample", &logits, &slices)
}
