//! The cases of `copy`.

use crate::error::Result;
use crate::kernels::copy::{CHUNKS, WORKGROUP};
use crate::plan::Target;
use crate::reference::{Case, CaseBuilder};

pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    let case = |length: usize| {
        let mut case = CaseBuilder::new(target, 1);
        let from = case.input("from", [length, 1]);
        let to = case.plan.tensor("to", [length, 1]);
        case.plan.copy("copy", &from, &to)?;
        Ok(case.finish(format!("{length}")))
    };
    [4, 1000, 4 * CHUNKS * WORKGROUP, 5 * 4 * CHUNKS * WORKGROUP / 2 + 12].into_iter().map(case).collect()
}
