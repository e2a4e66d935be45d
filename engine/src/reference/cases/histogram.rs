//! The cases of `histogram`.

use super::slice_max::{Edit, in_rows, logits};
use crate::error::Result;
use crate::plan::Target;
use crate::reference::{Case, CaseBuilder};

pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    let case = |(rows, (name, count, edit)): (usize, (&str, usize, Edit))| {
        let mut case = CaseBuilder::for_tokens(target, 1, rows);
        let logits = logits(&mut case, (count, edit), 20.0);
        let slices = case.plan.slice_max("slices", &logits)?;
        case.plan.histogram("histogram", &logits, &slices)?;
        Ok(case.finish(format!("{name}, {rows} of {count}")))
    };
    in_rows().map(case).collect()
}
