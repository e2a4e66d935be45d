//! The cases of `moe_gate_up`.

use super::{by_turns, columns_for, pairs};
use crate::error::Result;
use crate::kernels::{ExpertGroups, GateUp, Gating, Router, Routing, Selection};
use crate::plan::Target;
use crate::quant::Quant;
use crate::reference::{Case, CaseBuilder};

/// Where a case selects the experts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum By {
    Workgroups,
    /// Like `Workgroups`, but only among the experts of the best groups.
    WorkgroupsWithinGroups,
    Route,
    /// In the step `route`, and the input was rounded to bytes by a previous step.
    Grouped,
}

/// Workgroups select the experts for every format, and in some batches among groups; the step `route` selects them for
/// some batches.
pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    let formats = pairs(1).into_iter().zip(pairs(2)).map(|((first, second), (_, third))| [first, first, second, third]);
    let formats: Vec<_> = formats.collect();
    let case = |by, i: usize| {
        let (rows, tokens) = ([(21, 30), (32, 48), (21, 11), (48, 16)][i % 4], [1, 2, 1, 4, 8][i % 5]);
        case(&by_turns(target, i, tokens), by, formats[i], [45, rows.0, rows.1], (tokens, tokens))
    };
    let every = (0..formats.len()).map(|i| case(By::Workgroups, i));
    every.chain((0..5).map(|i| case(By::Route, i))).chain((0..5).map(|i| case(By::WorkgroupsWithinGroups, i))).collect()
}

/// A case of at least `columns` columns, and of `count` tokens in a batch of up to `tokens`.
pub(super) fn case(
    target: &Target,
    by: By,
    formats: [&'static Quant; 4],
    [columns, rows, shared_rows]: [usize; 3],
    (tokens, count): (usize, usize),
) -> Result<Case> {
    let columns = formats.iter().fold(columns, |columns, quant| columns_for(quant, columns));
    let (shape, shared) = ([columns, rows, 6], [columns, shared_rows, 1]);
    let groups = (by == By::WorkgroupsWithinGroups).then_some(ExpertGroups { count: 3, used: 2 });
    let routing = Routing { gating: Gating::Sigmoid, top_k: 3, groups, normalise: true, scale: 1.8 };
    let mut case = CaseBuilder::for_tokens(target, 1, tokens);
    if count < tokens {
        case.consecutive(0, count);
    }
    let names = ["gate", "up", "shared_gate", "shared_up"];
    let shapes = [shape, shape, shared, shared];
    let made = (0..4).map(|i| case.weight(names[i], formats[i], shapes[i])).collect::<Result<Vec<_>>>()?;
    let x = match by {
        By::Grouped => case.normed_rounded_input("x", [columns, tokens])?,
        By::Workgroups | By::WorkgroupsWithinGroups | By::Route => case.normed_input("x", [columns, tokens])?,
    };
    let logits = case.input("logits", [shape[2], tokens]);
    let bias = case.vector("bias", shape[2])?;
    let weights = GateUp { gate: &made[0], up: &made[1], shared_gate: &made[2], shared_up: &made[3] };
    let router = Router { logits: logits.into(), bias: &bias, routing };
    let routed = match by {
        By::Workgroups | By::WorkgroupsWithinGroups => None,
        By::Route | By::Grouped => Some(case.plan.route("route", router.logits, router.bias, routing)?),
    };
    let selection = routed.as_ref().map_or(Selection::Each(&router), Selection::Made);
    let hidden = case.plan.moe_gate_up("hidden", &weights, &selection, &x)?;
    if count == tokens {
        case.probe(&hidden.y)?;
    }
    if routed.is_some() {
        case.allow_between(&[hidden.ids.buffer, hidden.y.tensor.buffer]);
    }
    let [first, _, third, fourth] = formats.map(|quant| quant.name);
    Ok(case.finish(format!("{first} and {third} {fourth} of {columns} columns, {count} of {tokens} tokens, by {by:?}")))
}
