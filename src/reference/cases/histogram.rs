//! The cases of `histogram`.

use super::slice_max::{Edit, in_rows, logits};
use crate::error::Result;
use crate::kernels::histogram::BINS;
use crate::plan::Target;
use crate::reference::sampling::binned;
use crate::reference::{Case, CaseBuilder, OutputType};

pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    let case = |(rows, (name, count, edit)): (usize, (&str, usize, Edit))| {
        let mut case = CaseBuilder::for_tokens(target, 1, rows);
        let (logits, values) = logits(&mut case, (count, edit), 20.0);
        let slices = case.plan.slice_max("slices", &logits)?;
        case.allow(slices.maxima.buffer);
        case.plan.histogram("histogram", &logits, &slices)?;
        for (row, values) in values.chunks(count).enumerate() {
            let [counts, deficits] = binned(values);
            case.expect_at(slices.histogram.buffer, OutputType::U32, 2 * BINS * row, counts, 0.0);
            case.expect_at(slices.histogram.buffer, OutputType::U32, 2 * BINS * row + BINS, deficits, 1e-4);
        }
        Ok(case.finish(format!("{name}, {rows} of {count}")))
    };
    in_rows().map(case).collect()
}
