//! The cases of `rms_norm`.

use crate::error::Result;
use crate::kernels::Norm;
use crate::plan::Target;
use crate::reference::{Case, CaseBuilder};

pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    let case = |(width, epsilon, tokens)| {
        let mut case = CaseBuilder::for_tokens(target, 1, tokens);
        let x = case.input("x", [width, tokens]);
        let weight = case.vector("norm", width)?;
        case.plan.rms_norm("y", &x, &Norm { weight, epsilon })?;
        Ok(case.finish(format!("{width} epsilon {epsilon}, {tokens} tokens")))
    };
    let alone = [(1, 1e-5, 1), (31, 0.5, 1), (256, 1e-6, 1), (2048, 1e-5, 1), (5000, 0.0, 1)];
    alone.into_iter().chain([(70, 1e-5, 5)]).map(case).collect()
}
