//! The cases of `mul_mv`.

use super::{by_turns, columns_for, in_turn, pairs};
use crate::error::Result;
use crate::kernels::mul_mv::Write;
use crate::kernels::rounded::Epilogue;
use crate::plan::Target;
use crate::quant::{Arithmetic, Quant};
use crate::reference::{Case, CaseBuilder};

/// A product in a case: the weight's shape, the number of vectors for each matrix, and what is done to them.
#[derive(Clone, Copy)]
struct ProductExample {
    shape: [usize; 3],
    tokens: usize,
    write: Write,
    normed: bool,
}

pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    use Write::{Add, Replace};
    let mut cases = Vec::new();
    let shapes = [
        ([96, 5, 1], 1, Replace, false),
        ([1024, 33, 2], 1, Replace, false),
        ([70, 17, 3], 2, Replace, false),
        ([7, 9, 1], 4, Replace, false),
        ([64, 19, 1], 8, Add, false),
        ([300, 12, 1], 1, Replace, true),
        ([64, 19, 1], 1, Add, false),
        ([300, 12, 1], 8, Replace, true),
        ([300, 260, 1], 2, Replace, true),
        ([96, 5, 1], 6, Add, false),
    ];
    let example = |(shape, tokens, write, normed)| ProductExample { shape, tokens, write, normed };
    for (turn, (quant, example)) in in_turn(&shapes.map(example)).into_iter().enumerate() {
        cases.push(case(&by_turns(target, turn, example.tokens), quant, example)?);
    }
    for (i, &(quant, _)) in pairs(1).iter().enumerate() {
        let tokens = [1, 2, 4, 8][i % 4];
        cases.push(stream_case(&by_turns(target, i, tokens), quant, [64, [32, 64, 96][i % 3], 1], tokens)?);
    }
    // More rows than workgroups in one dimension of the grid, and a row of several tiles.
    let plain = |shape, tokens| ProductExample { shape, tokens, write: Replace, normed: false };
    if target.arithmetic == Arithmetic::Float {
        cases.push(case(target, &crate::quant::Q4_0, plain([32, 32 * 65535 + 13, 1], 1))?);
    }
    for (turn, tokens) in [(0, 1), (1, 4), (2, 1), (3, 1), (6, 4)] {
        let target = by_turns(target, turn, tokens);
        let example = ProductExample { normed: true, ..plain([15_008, 9, 1], tokens) };
        cases.push(case(&target, &crate::quant::Q4_0, example)?);
    }
    Ok(cases)
}

fn case(target: &Target, quant: &'static Quant, example: ProductExample) -> Result<Case> {
    let ProductExample { shape, tokens, write, normed } = example;
    let shape = [columns_for(quant, shape[0]), shape[1], shape[2]];
    let [columns, rows, matrices] = shape;
    let vectors = matrices * tokens;
    let mut case = CaseBuilder::for_tokens(target, 1, tokens);
    let w = case.weight("w", quant, shape)?;
    let x =
        if normed { case.normed_input("x", [columns, vectors])? } else { case.plain_input("x", [columns, vectors]) };
    let y = case.input("y", [rows, vectors]);
    case.plan.mul_mv_step("product", &w, &x, &y, write, Epilogue::default())?;
    let how = [(write == Write::Add, " added"), (normed, " normed")];
    let how: String = how.into_iter().filter(|(on, _)| *on).map(|(_, how)| how).collect();
    Ok(case.finish(format!("{} {columns}x{rows}x{matrices}{how}, {tokens} tokens", quant.name)))
}

/// A product that is added to the residual stream, and what it writes for the following product.
fn stream_case(target: &Target, quant: &'static Quant, shape: [usize; 3], tokens: usize) -> Result<Case> {
    let shape = [columns_for(quant, shape[0]), shape[1], 1];
    let mut case = CaseBuilder::for_tokens(target, 1, tokens);
    let w = case.weight("w", quant, shape)?;
    let x = case.plain_input("x", [shape[0], tokens]);
    let y = case.input("y", [shape[1], tokens]);
    let next = case.norm("norm", shape[1])?;
    let stream = case.plan.mul_mv_add("product", &w, &x, &y, &next)?;
    case.probe_stream(&stream, &next)?;
    Ok(case.finish(format!("{} {}x{} onto the stream, {tokens} tokens", quant.name, shape[0], shape[1])))
}
