//! The cases of `sample`.

use super::slice_max::{EDGES, Edit};
use crate::error::Result;
use crate::kernels::Sampling;
use crate::plan::{BufferRef, Plan, Target};
use crate::reference::sampling::choice;
use crate::reference::{Case, CaseBuilder, OutputType};

/// Ways to choose: temperature, `top_k`, `top_p`, `min_p`.
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

/// What logits look like, how many there are, and how noise becomes them.
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

pub(super) fn cases(target: Target) -> Result<Vec<Case>> {
    let case = |(name, count, edit): (&str, usize, Edit), sampling: Sampling, position: u32| {
        let mut case = CaseBuilder::new(target, 1);
        let logits = case.plan.tensor("logits", [count, 1]);
        let mut values = case.noise(count);
        edit(&mut values);
        case.fill(&logits, &values);
        case.state(0, position, &[]);
        let slices = case.plan.slice_max("slices", &logits)?;
        case.allow(slices.maxima.buffer);
        case.allow(slices.histogram.buffer);
        case.plan.histogram("histogram", &logits, &slices)?;
        let local = BufferRef::Local(case.plan.sample("sample", &logits, &slices)?);
        case.fill_bytes(local, bytemuck::bytes_of(&sampling).to_vec());
        let words = choice(&values, &sampling, position).map(f64::from);
        case.expect_at(BufferRef::Local(Plan::TOKENS), OutputType::U32, 0, words.to_vec(), 0.0);
        Ok(case.finish(format!("{name}, {count}, {sampling:?}")))
    };
    let way = |(temperature, top_k, top_p, min_p)| Sampling::draw(temperature, top_k, top_p, min_p, 1 << 32 | 7);
    let edges = EDGES.into_iter().flat_map(|edge| [Sampling::GREEDY, way(WAYS[1])].map(|sampling| (edge, sampling)));
    let ways = SHAPES.into_iter().flat_map(|shape| WAYS.map(|some| (shape, way(some))));
    ways.chain(edges).zip(0..).map(|((logits, sampling), position)| case(logits, sampling, position)).collect()
}
