//! The cases of `mul_mm`.

use super::experts_mm;
use super::{columns_for, in_turn, pairs};
use crate::error::Result;
use crate::gpu::Matrices;
use crate::plan::Target;
use crate::quant::{F32, QUANTS, Quant};
use crate::reference::{Case, CaseBuilder};

pub(super) fn by_registers(target: &Target) -> Result<Vec<Case>> {
    cases(&Target { matrices: Matrices::None, ..target.clone() })
}

pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    let shapes = [
        ([96, 70, 1], (80, 67), false),
        ([160, 33, 2], (16, 16), false),
        ([70, 64, 3], (7, 5), false),
        ([64, 130, 1], (130, 129), true),
        ([800, 72, 2], (40, 37), true),
    ];
    for (quant, (shape, tokens, add)) in in_turn(&shapes) {
        cases.push(case(target, quant, shape, tokens, add)?);
    }
    cases.push(case(target, &F32, [800, 72, 2], (40, 37), true)?);
    let two = [([72, 136], (40, 37)), ([200, 64], (7, 5))];
    for ((w, other), (rows, tokens)) in pairs(1).into_iter().chain([(&F32, &F32); 2]).zip(two.into_iter().cycle()) {
        cases.extend(case_of_pair(target, [w, other], rows, tokens)?);
    }
    for (i, quant) in QUANTS.iter().enumerate() {
        let shape = [([24, 70, 8], (40, 37)), ([64, 33, 4], (7, 5)), ([192, 512, 64], (20, 17))][i % 3];
        cases.extend(rotating_case(target, quant, shape.0, shape.1)?);
    }
    for (gate, up) in pairs(1) {
        cases.push(gated_case(target, gate, up, [45, 43])?);
    }
    for (gate, up) in pairs(1).into_iter().take(3) {
        cases.push(gated_case(target, gate, up, [800, 44])?); // workgroups share a tile
    }
    cases.extend(experts_mm::cases(target)?);
    Ok(cases)
}

pub(super) fn case(
    target: &Target,
    quant: &'static Quant,
    [columns, rows, stacks]: [usize; 3],
    (tokens, count): (usize, usize),
    add: bool,
) -> Result<Case> {
    let shape = [columns_for(quant, columns), rows, stacks];
    let mut case = CaseBuilder::for_rows(target, 1, tokens);
    case.consecutive(9, count);
    let w = case.weight("w", quant, shape)?;
    let x = case.batch("x", [shape[0], stacks], tokens, count);
    let y = case.batch("y", [rows, stacks], tokens, count);
    match add {
        true => case.plan.mul_mm_add("product", &w, &x, &y)?,
        false => case.plan.mul_mm_into("product", &w, &x, &y)?,
    }
    let how = if add { " added" } else { "" };
    case.allow_between(&[]);
    Ok(case.finish(format!("{} {}x{rows}x{stacks} {count} of {tokens} tokens{how}", quant.name, shape[0])))
}

/// Two matrices of these formats and numbers of rows times the same vectors in one step, if that leaves parts.
fn case_of_pair(
    target: &Target,
    quants: [&'static Quant; 2],
    rows: [usize; 2],
    (tokens, count): (usize, usize),
) -> Result<Option<Case>> {
    let columns = quants.iter().fold(800, |columns, quant| columns_for(quant, columns));
    let mut case = CaseBuilder::for_rows(target, 1, tokens);
    case.consecutive(9, count);
    let w = case.weight("w", quants[0], [columns, rows[0], 1])?;
    let other = case.weight("other", quants[1], [columns, rows[1], 1])?;
    let x = case.batch("x", [columns, 1], tokens, count);
    let Some(parts) = case.plan.mul_mm_pair("product", [&w, &other], &x)? else { return Ok(None) };
    for (name, parts) in [("y", parts.0), ("z", parts.1)] {
        let y = case.batch(name, [parts.tensor.shape[0], 1], tokens, count);
        let norm = case.norm(&format!("{name}.norm"), y.shape[0])?;
        case.plan.sum_normed(&format!("{name}.sum"), &parts, (&y, false), None, &norm)?;
    }
    case.allow_between(&[]);
    let names = quants.map(|quant| quant.name);
    Ok(Some(case.finish(format!("{names:?} {columns}x{rows:?}, {count} of {tokens} tokens"))))
}

/// Products of the first `nope` values of the queries of two heads, followed by the rest, rotated.
fn rotating_case(
    target: &Target,
    quant: &'static Quant,
    [nope, rank, rotary]: [usize; 3],
    (tokens, count): (usize, usize),
) -> Result<Option<Case>> {
    let nope = columns_for(quant, nope);
    let mut case = CaseBuilder::for_rows(target, rotary / 2, tokens);
    case.rotated_tokens(1234, count);
    let w = case.weight("w", quant, [nope, rank, 2])?;
    let q = case.batch("q", [nope + rotary, 2], tokens, count);
    let y = case.plan.tensor("y", [rank + rotary, 2 * tokens]);
    if !case.plan.mul_mm_rotating("product", &w, &q, &y)? {
        return Ok(None);
    }
    case.allow_between(&[y.buffer]);
    let name = quant.name;
    Ok(Some(case.finish(format!("{name} {nope}x{rank}, {rotary} values rotated, {count} of {tokens} tokens"))))
}

pub(super) fn gated_case(
    target: &Target,
    gate_quant: &'static Quant,
    up_quant: &'static Quant,
    size: [usize; 2],
) -> Result<Case> {
    gated_case_of(target, [gate_quant, up_quant], size, 1.0)
}

/// Gated products, many of which are beyond the range of f16: the next product may read them as such.
pub(super) fn beyond_half(target: &Target, quant: &'static Quant, columns: usize) -> Result<Case> {
    gated_case_of(target, [quant; 2], [columns, 44], 150.0)
}

/// Gated products of vectors of noise times `factor`.
fn gated_case_of(
    target: &Target,
    [gate_quant, up_quant]: [&'static Quant; 2],
    [columns, rows]: [usize; 2],
    factor: f32,
) -> Result<Case> {
    let (tokens, count) = (40, 35);
    let shape = [columns_for(up_quant, columns_for(gate_quant, columns)), rows, 1];
    let mut case = CaseBuilder::for_rows(target, 1, tokens);
    case.consecutive(9, count);
    let gate = case.weight("gate", gate_quant, shape)?;
    let up = case.weight("up", up_quant, shape)?;
    let xs: Vec<f32> = case.noise(shape[0] * count).into_iter().map(|x| factor * x).collect();
    let x = case.batch_of("x", [shape[0], 1], tokens, &xs);
    let y = case.plan.gate_up_mm("y", &gate, &up, &x)?;
    case.allow_between(&[y.buffer]);
    let quants = format!("{} and {}", gate_quant.name, up_quant.name);
    let beyond = if factor > 1.0 { ", values beyond f16" } else { "" };
    Ok(case.finish(format!("{quants} {}x{rows}, {count} of {tokens} tokens{beyond}", shape[0])))
}
