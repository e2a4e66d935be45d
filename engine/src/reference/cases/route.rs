//! The cases of `route`.

use crate::error::Result;
use crate::kernels::errors::expert_weights;
use crate::kernels::{Gating, Routing};
use crate::plan::Target;
use crate::reference::experts::routed_experts;
use crate::reference::{Case, CaseBuilder, OutputType};

pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for (experts, top_k) in [(8, 2), (64, 4), (5, 5), (160, 6), (1, 1), (257, 8)] {
        for (gating, normalise, scale) in
            [(Gating::Sigmoid, true, 1.8), (Gating::Softmax, false, 1.0), (Gating::Softmax, true, 2.5)]
        {
            cases.push(case(target, experts, Routing { gating, top_k, normalise, scale }, (1, 1))?);
        }
    }
    let routing = |gating, top_k| Routing { gating, top_k, normalise: gating == Gating::Sigmoid, scale: 1.8 };
    for (experts, gating, top_k, tokens) in
        [(8, Gating::Sigmoid, 2, (3, 2)), (64, Gating::Sigmoid, 4, (40, 37)), (160, Gating::Softmax, 6, (9, 9))]
    {
        cases.push(case(target, experts, routing(gating, top_k), tokens)?);
    }
    cases.push(hopeless(target)?);
    Ok(cases)
}

/// The first `count` of `room` tokens.
fn case(target: &Target, experts: usize, routing: Routing, (room, count): (usize, usize)) -> Result<Case> {
    let mut case = CaseBuilder::for_tokens(target, 1, room);
    if room > 1 {
        case.consecutive(0, count);
    }
    let logits = case.plan.tensor("logits", [experts, room]);
    let zs: Vec<f32> = case.noise(experts * count).into_iter().map(|v| 6.0 * v).collect();
    case.fill(&logits, &zs);
    let (bias, biases) = case.vector("bias", experts)?;
    let routed = case.plan.route("route", logits, &bias, routing)?;
    let (ids, weights): (Vec<_>, Vec<_>) = zs.chunks(experts).map(|zs| routed_experts(zs, &biases, routing)).unzip();
    case.expect_at(routed.ids.buffer, OutputType::U32, 0, ids.concat().into_iter().map(|e| e as f64).collect(), 0.0);
    let of_token = |((zs, ids), weights): ((&[f32], &Vec<usize>), &Vec<f64>)| {
        expert_weights(zs, ids, routing).into_iter().zip(weights).map(|(error, weight)| error * weight).collect()
    };
    let errors: Vec<Vec<f64>> = zs.chunks(experts).zip(&ids).zip(&weights).map(of_token).collect();
    case.expect(&routed.weights, weights.concat(), errors.concat(), 1.0);
    Ok(case.finish(format!("{experts} experts, {count} of {room} tokens, {routing:?}")))
}

/// All scores are zero: only the bias selects, and the weights are not NaN.
fn hopeless(target: &Target) -> Result<Case> {
    let mut case = CaseBuilder::new(target, 1);
    let logits = case.plan.tensor("logits", [4, 1]);
    let zs = [-1e30; 4];
    case.fill(&logits, &zs);
    let (bias, biases) = case.vector("bias", 4)?;
    let routing = Routing { gating: Gating::Sigmoid, top_k: 4, normalise: true, scale: 1.0 };
    let routed = case.plan.route("route", logits, &bias, routing)?;
    let (ids, weights) = routed_experts(&zs, &biases, routing);
    case.expect_at(routed.ids.buffer, OutputType::U32, 0, ids.into_iter().map(|e| e as f64).collect(), 0.0);
    case.expect_each(&routed.weights, weights, 1.0, 1e-6);
    Ok(case.finish("logits of -1e30"))
}
