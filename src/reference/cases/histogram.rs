//! The cases of `histogram`.

use super::slice_max::{EDGES, Edit};
use crate::error::Result;
use crate::kernels::histogram::BINS;
use crate::plan::Target;
use crate::reference::sampling::binned;
use crate::reference::{Case, CaseBuilder, OutputType};

pub(super) fn cases(target: Target) -> Result<Vec<Case>> {
    let case = |(name, count, edit): (&str, usize, Edit)| {
        let mut case = CaseBuilder::new(target, 1);
        let logits = case.plan.tensor("logits", [count, 1]);
        let mut values: Vec<f32> = case.noise(count).into_iter().map(|v| 20.0 * v).collect();
        edit(&mut values);
        case.fill(&logits, &values);
        let slices = case.plan.slice_max("slices", &logits)?;
        case.allow(slices.maxima.buffer);
        case.plan.histogram("histogram", &logits, &slices)?;
        let [counts, deficits] = binned(&values);
        case.expect_at(slices.histogram.buffer, OutputType::U32, 0, counts, 0.0);
        case.expect_at(slices.histogram.buffer, OutputType::U32, BINS, deficits, 1e-4);
        Ok(case.finish(format!("{name}, {count}")))
    };
    EDGES.into_iter().map(case).collect()
}
