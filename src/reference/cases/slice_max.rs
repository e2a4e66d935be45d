//! The cases of `slice_max`.

use crate::error::Result;
use crate::kernels::histogram::BINS;
use crate::kernels::slice_max::SLICE;
use crate::plan::Target;
use crate::reference::sampling::slice_words;
use crate::reference::{Case, CaseBuilder, OutputType};

/// The words of the maxima.
fn expected(logits: &[f32]) -> Vec<f64> {
    let slices = logits.chunks(SLICE).zip((0..).step_by(SLICE));
    slices.flat_map(|(slice, first)| slice_words(slice, first).map(f64::from)).collect()
}

/// Makes a case out of noise.
pub(super) type Edit = fn(&mut [f32]);

/// What is special about the logits of a case, how many there are, and how noise becomes them.
pub(super) const EDGES: [(&str, usize, Edit); 9] = [
    ("one", 1, |_| {}),
    ("noise", 2048, |_| {}),
    ("a tie", 1000, |v| (v[17], v[900]) = (5.0, 5.0)),
    ("a tie across slices", 5000, |v| (v[1023], v[1024], v[4999]) = (5.0, 5.0, 5.0)),
    ("all below zero", 1025, |v| v.iter_mut().for_each(|v| *v -= 2.0)),
    ("the last", 154_880, |v| v[154_879] = 9.0),
    ("nothing", 300, |v| v.fill(f32::NAN)),
    ("a number among nothing", 3000, |v| {
        v.fill(f32::NAN);
        v[2047] = -1e30;
    }),
    ("infinities", 300, |v| (v[3], v[4], v[5]) = (f32::INFINITY, f32::NEG_INFINITY, 7.0)),
];

pub(super) fn cases(target: Target) -> Result<Vec<Case>> {
    let case = |(name, count, edit): (&str, usize, Edit)| {
        let mut case = CaseBuilder::new(target, 1);
        let logits = case.plan.tensor("logits", [count, 1]);
        let mut values = case.noise(count);
        edit(&mut values);
        case.fill(&logits, &values);
        let slices = case.plan.slice_max("slices", &logits)?;
        case.expect_at(slices.maxima.buffer, OutputType::U32, 0, expected(&values), 0.0);
        case.expect_at(slices.histogram.buffer, OutputType::U32, 0, vec![0.0; 2 * BINS], 0.0);
        Ok(case.finish(format!("{name}, {count}")))
    };
    EDGES.into_iter().map(case).collect()
}
