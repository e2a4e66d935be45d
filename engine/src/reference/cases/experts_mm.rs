//! The cases of `experts_mm`.

use super::{columns_for, pairs};
use crate::error::Result;
use crate::kernels::{ExpertWeights, Gating, Router, Routing};
use crate::plan::{Target, Weight};
use crate::quant::Quant;
use crate::reference::{Case, CaseBuilder};
use std::ops::Range;

/// Which experts tokens select.
#[derive(Debug, Clone, Copy)]
enum Load {
    /// Any.
    Spread,
    /// All tokens select one expert, and none selects another.
    Uneven,
}

/// The formats of gate, up and down.
type Formats = [&'static Quant; 3];

/// Every second case also has shared experts, in other formats.
pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    let formats =
        |first| pairs(first).into_iter().zip(pairs(first + 1)).map(|((gate, up), (_, down))| [gate, up, down]);
    let case = |(i, (formats, shared)): (usize, (Formats, Formats))| {
        let (load, tokens) = ([Load::Spread, Load::Uneven][i / 2 % 2], [(40, 37), (7, 5), (72, 60)][i / 4 % 3]);
        case(target, formats, (i % 2 == 1).then_some(shared), load, tokens)
    };
    formats(1).zip(formats(2)).enumerate().map(case).collect()
}

/// Weights of these names.
fn weights(case: &mut CaseBuilder, names: [&str; 3], formats: Formats, shape: [usize; 3]) -> Result<[Weight; 3]> {
    let [columns, rows, experts] = shape;
    let [gate, up, down] = names;
    Ok([
        case.weight(gate, formats[0], shape)?,
        case.weight(up, formats[1], shape)?,
        case.weight(down, formats[2], [rows, columns, experts])?,
    ])
}

fn experts([gate, up, down]: &[Weight; 3]) -> ExpertWeights<'_> {
    ExpertWeights { gate, up, down }
}

fn case(
    target: &Target,
    formats: Formats,
    of_shared: Option<Formats>,
    load: Load,
    (tokens, count): (usize, usize),
) -> Result<Case> {
    const EXPERTS: usize = 8;
    let widest = |stages: Range<usize>, columns| {
        let quants =
            formats[stages.clone()].iter().chain(of_shared.iter().flat_map(|formats| &formats[stages.clone()]));
        quants.fold(columns, |columns, quant| columns_for(quant, columns))
    };
    let (columns, rows) = (widest(0..2, 44), widest(2..3, 21));
    let routing = Routing { gating: Gating::Sigmoid, top_k: 2, groups: None, normalise: true, scale: 1.8 };
    let mut case = CaseBuilder::for_rows(target, 1, tokens);
    case.consecutive(3, count);
    let selected = weights(&mut case, ["gate", "up", "down"], formats, [columns, rows, EXPERTS])?;
    let names = ["shared_gate", "shared_up", "shared_down"];
    let shared = of_shared.map(|formats| weights(&mut case, names, formats, [columns, rows, 1])).transpose()?;
    let h = case.batch("h", [columns, 1], tokens, count);
    let x = case.batch("x", [columns, 1], tokens, count);
    let mut zs = case.noise(EXPERTS * count);
    if let Load::Uneven = load {
        zs.chunks_mut(EXPERTS).for_each(|zs| (zs[4], zs[1]) = (9.0, -9.0));
    }
    let logits = case.batch_of("logits", [EXPERTS, 1], tokens, &zs);
    let biases: Vec<f32> = case.noise(EXPERTS).into_iter().map(|v| 0.01 * v).collect();
    let bias = case.vector_of("bias", &biases)?;
    let router = Router { logits: logits.into(), bias: &bias, routing };
    let slots = case.plan.experts_mm("moe", &experts(&selected), shared.as_ref().map(experts).as_ref(), &router, &h)?;
    match shared {
        Some(_) => {
            let norm = case.norm("norm", columns)?;
            case.plan.add_experts("moe.sum", &slots, &x, &norm)?;
        }
        None => case.plan.moe_combine("moe.sum", &slots.routed.weights, &slots.y, &x)?,
    }
    case.allow_between(&[]);
    let names = |formats: Formats| formats.map(|quant| quant.name);
    let with = of_shared.map_or(String::new(), |formats| format!(", shared {:?}", names(formats)));
    Ok(case
        .finish(format!("{:?}{with} {columns}x{rows}x{EXPERTS}, {load:?}, {count} of {tokens} tokens", names(formats))))
}
