//! The cases of `experts_mm`.

use super::{columns_for, pairs};
use crate::error::Result;
use crate::kernels::{ExpertWeights, Gating, Router, Routing};
use crate::plan::Target;
use crate::quant::Quant;
use crate::reference::{Case, CaseBuilder};

/// Which experts tokens select.
#[derive(Debug, Clone, Copy)]
enum Load {
    /// Any.
    Spread,
    /// All tokens select one expert, and none selects another.
    Uneven,
}

pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    let formats = pairs(1).into_iter().zip(pairs(2)).map(|((gate, up), (_, down))| [gate, up, down]);
    let case = |(i, formats)| case(target, formats, [Load::Spread, Load::Uneven][i % 2], [(40, 37), (7, 5)][i / 2 % 2]);
    formats.enumerate().map(case).collect()
}

fn case(target: &Target, formats: [&'static Quant; 3], load: Load, (tokens, count): (usize, usize)) -> Result<Case> {
    const EXPERTS: usize = 6;
    let widest = |quants: &[&Quant], columns| quants.iter().fold(columns, |columns, quant| columns_for(quant, columns));
    let (columns, rows) = (widest(&formats[..2], 44), widest(&formats[2..], 21));
    let routing = Routing { gating: Gating::Sigmoid, top_k: 2, normalise: true, scale: 1.8 };
    let mut case = CaseBuilder::for_rows(target, 1, tokens);
    case.consecutive(3, count);
    let (shape, back) = ([columns, rows, EXPERTS], [rows, columns, EXPERTS]);
    let gate = case.weight("gate", formats[0], shape)?;
    let up = case.weight("up", formats[1], shape)?;
    let down = case.weight("down", formats[2], back)?;
    let h = case.batch("h", [columns, 1], tokens, count);
    let x = case.batch("x", [columns, 1], tokens, count);
    let mut zs = case.noise(EXPERTS * count);
    if let Load::Uneven = load {
        zs.chunks_mut(EXPERTS).for_each(|zs| (zs[4], zs[1]) = (9.0, -9.0));
    }
    let logits = case.batch_of("logits", [EXPERTS, 1], tokens, &zs);
    let biases: Vec<f32> = case.noise(EXPERTS).into_iter().map(|v| 0.01 * v).collect();
    let bias = case.vector_of("bias", &biases)?;
    let experts = ExpertWeights { gate: &gate, up: &up, down: &down };
    let router = Router { logits: logits.into(), bias: &bias, routing };
    let slots = case.plan.experts_mm("moe", &experts, &router, &h)?;
    case.plan.moe_combine("moe.sum", &slots.routed.weights, &slots.y, &x)?;
    case.allow_between(&[]);
    let names = formats.map(|quant| quant.name);
    Ok(case.finish(format!("{names:?} {columns}x{rows}x{EXPERTS}, {load:?}, {count} of {tokens} tokens")))
}
