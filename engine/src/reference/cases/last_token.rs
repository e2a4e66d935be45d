//! The cases of `last_token`.

use crate::error::Result;
use crate::plan::Target;
use crate::reference::{Case, CaseBuilder};

pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    let case = |(width, count, tokens): (usize, usize, usize)| {
        let mut case = CaseBuilder::for_rows(target, 1, tokens);
        case.consecutive(3, count);
        let x = case.batch("x", [width, 1], tokens, count);
        let y = case.plan.tensor("y", [width, 1]);
        case.plan.last_token("last", &x, &y)?;
        Ok(case.finish(format!("{width}, {count} of {tokens} tokens")))
    };
    [(1, 1, 1), (70, 2, 5), (2048, 5, 5)].into_iter().map(case).collect()
}
