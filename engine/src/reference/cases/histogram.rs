//! The cases of `histogram`.

use super::slice_max::{Edit, in_rows, logits};
use crate::error::Result;
use crate::kernels::errors::deficit;
use crate::kernels::histogram::{BINS, scale};
use crate::plan::{BufferRef, Target};
use crate::reference::sampling::binned;
use crate::reference::{Case, CaseBuilder, Expected, OutputType};

pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    let case = |(rows, (name, count, edit)): (usize, (&str, usize, Edit))| {
        let mut case = CaseBuilder::for_tokens(target, 1, rows);
        let (logits, values) = logits(&mut case, (count, edit), 20.0);
        let slices = case.plan.slice_max("slices", &logits)?;
        case.allow(slices.maxima.buffer);
        case.plan.histogram("histogram", &logits, &slices)?;
        for (row, values) in values.chunks(count).enumerate() {
            let [counts, deficits] = binned(values);
            case.expect_at(slices.histogram.buffer, OutputType::U32, 2 * BINS * row, counts.clone(), 0.0);
            let most = |(bin, tokens): (usize, &f64)| tokens * (1.0 + deficit(bin) * f64::from(scale(count)));
            let BufferRef::Local(local) = slices.histogram.buffer else { continue };
            case.expect_values(Expected {
                local,
                kind: OutputType::U32,
                places: (2 * BINS * row + BINS..2 * BINS * (row + 1)).collect(),
                values: deficits,
                magnitudes: counts.iter().enumerate().map(most).collect(),
                bound: 1.0,
            });
        }
        Ok(case.finish(format!("{name}, {rows} of {count}")))
    };
    in_rows().map(case).collect()
}
