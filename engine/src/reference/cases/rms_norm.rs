//! The cases of `rms_norm`.

use crate::error::Result;
use crate::kernels::errors::NORMED;
use crate::plan::Target;
use crate::reference::vectors::rms_normed;
use crate::reference::{Case, CaseBuilder};

pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    let case = |(width, epsilon, tokens)| {
        let mut case = CaseBuilder::for_tokens(target, 1, tokens);
        let (x, xs) = case.input("x", [width, tokens]);
        let (weight, ws) = case.vector("norm", width)?;
        let y = case.plan.rms_norm("y", &x, &weight, epsilon)?;
        let want = rms_normed(&xs, &ws, epsilon);
        let sizes = want.iter().map(|v| v.abs()).collect();
        case.expect(&y, want, sizes, NORMED);
        Ok(case.finish(format!("{width} epsilon {epsilon}, {tokens} tokens")))
    };
    let alone = [(1, 1e-5, 1), (31, 0.5, 1), (256, 1e-6, 1), (2048, 1e-5, 1), (5000, 0.0, 1)];
    alone.into_iter().chain([(70, 1e-5, 5)]).map(case).collect()
}
