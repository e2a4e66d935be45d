//! The cases of `rms_norm` and `rms_norm_rounded`.

use crate::error::Result;
use crate::kernels::Norm;
use crate::plan::{Target, Team};
use crate::quant::{Arithmetic, Q4_0};
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

/// No cases of float products, for which nothing is rounded, and none for an adapter without subgroup operations.
pub(super) fn rounded(target: &Target) -> Result<Vec<Case>> {
    let target = &Target { team: Team::Subgroup, ..target.clone() };
    if target.arithmetic == Arithmetic::Float || !target.fusions.round || target.subgroup < 2 {
        return Ok(Vec::new());
    }
    let case = |(width, epsilon, tokens)| {
        let mut case = CaseBuilder::for_tokens(target, 1, tokens);
        let x = case.input("x", [width, tokens]);
        let weight = case.vector("norm", width)?;
        let w = case.weight("w", &Q4_0, [width, 16, 1])?;
        if let Some(input) = case.plan.rms_norm_rounded("y", &x, &Norm { weight, epsilon }, &w)? {
            case.probe(&input)?;
        }
        Ok(case.finish(format!("{width} epsilon {epsilon}, {tokens} tokens")))
    };
    let shapes = [(32, 0.5, 1), (2048, 1e-5, 1), (5120, 1e-6, 1), (96, 0.0, 5), (2048, 1e-5, 3)];
    shapes.into_iter().map(case).collect()
}
