//! The cases of `slice_max`.

use crate::error::Result;
use crate::plan::{Target, Tensor};
use crate::reference::{Case, CaseBuilder};

/// Changes noise for a case.
pub(super) type Edit = fn(&mut [f32]);

/// What is special about the logits of a case, their number, and how they are made from noise. Nothing is special about
/// the first: of cases with equal shaders, a sample of the cases takes the first one.
pub(super) const EDGES: [(&str, usize, Edit); 9] = [
    ("noise", 2048, |_| {}),
    ("one", 1, |_| {}),
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

pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    let case = |(rows, (name, count, edit)): (usize, (&str, usize, Edit))| {
        let mut case = CaseBuilder::for_tokens(target, 1, rows);
        let logits = logits(&mut case, (count, edit), 1.0);
        case.plan.slice_max("slices", &logits)?;
        Ok(case.finish(format!("{name}, {rows} of {count}")))
    };
    in_rows().map(case).collect()
}

/// The edge cases with one row, and some with several rows.
pub(super) fn in_rows() -> impl Iterator<Item = (usize, (&'static str, usize, Edit))> {
    EDGES.map(|edge| (1, edge)).into_iter().chain([(3, EDGES[0]), (2, EDGES[4])])
}

/// Logits of all rows of a case, made from noise up to `size`.
pub(super) fn logits(case: &mut CaseBuilder, (count, edit): (usize, Edit), size: f32) -> Tensor {
    let logits = case.plan.tensor("logits", [count, case.plan.rows()]);
    let mut values: Vec<f32> = case.noise(count * case.plan.rows()).into_iter().map(|v| size * v).collect();
    values.chunks_mut(count).for_each(edit);
    case.fill(&logits, &values);
    logits
}
