//! The cases of `query_up_kv_write`.

use super::kv_write::KvRowCase;
use super::{by_turns, columns_for};
use crate::error::Result;
use crate::kernels::{CacheType, Input};
use crate::plan::Target;
use crate::quant::{QUANTS, Quant};
use crate::reference::Case;

pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    let case = |(i, quant): (usize, &&'static Quant)| {
        let ty = [CacheType::F16, CacheType::F32, CacheType::Q8_0][i % 3];
        let tokens = [1, 2, 4, 8][i % 4];
        case(&by_turns(target, i, tokens), quant, ty, i % 3 > 0, [37, 48][i / 2 % 2], tokens)
    };
    QUANTS.iter().enumerate().map(case).collect()
}

fn case(
    target: &Target,
    quant: &'static Quant,
    ty: CacheType,
    normed: bool,
    rows: usize,
    tokens: usize,
) -> Result<Case> {
    let columns = columns_for(quant, 70);
    let shape = [columns, rows, 1];
    let rank = if ty == CacheType::Q8_0 { 160 } else { 132 };
    let kv_row = KvRowCase { ty, rank, rotary: 34, position: 17, tokens, room: tokens };
    let mut case = kv_row.start(target);
    let w = case.weight("w", quant, shape)?;
    let x = if normed { case.normed_input("x", [columns, tokens])? } else { case.plain_input("x", [columns, tokens]) };
    let y = case.plan.tensor("y", [rows, tokens]);
    let inputs = kv_row.inputs(&mut case)?;
    let rounded = case.plan.query_up_kv_write("query", &w, &x, &y, &inputs.kv, &inputs.norm, &inputs.cache)?;
    case.probe(&Input { tensor: y, norm: None, rounded })?;
    Ok(case.finish(format!("{} {columns}x{rows}, normed {normed}, {ty:?}, {tokens} tokens", quant.name)))
}
