//! The cases of `mul_mv_places`.

use super::columns_for;
use super::moe_gate_up_grouped::{FORMS, TOKENS};
use crate::error::Result;
use crate::plan::{Choices, Grouping, RowRange, StepChoice, Target, Team, Tiling};
use crate::quant::{Arithmetic, Q4_0, QUANTS, Quant};
use crate::reference::{Case, CaseBuilder};

/// Columns at least, and rows. With 8 places, the last are not staged all at once.
const SHAPES: [[usize; 2]; 4] = [[45, 21], [260, 64], [45, 48], [1400, 32]];

/// Every format, and every number of tokens in one of them, alternately without and with a norm before the product and
/// a sum after it. If the target says how to group, all cases do so. There are no cases of float products, and none for
/// an adapter without subgroup operations: the kernel is for neither.
pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    if target.arithmetic == Arithmetic::Float || target.subgroup < 2 {
        return Ok(Vec::new());
    }
    let usual: &Quant = &Q4_0;
    let formats = TOKENS.iter().map(|_| usual).chain(QUANTS.iter().copied());
    formats.enumerate().map(|(i, quant)| case(target, i, quant)).collect()
}

fn case(target: &Target, i: usize, quant: &'static Quant) -> Result<Case> {
    let (lanes, rows, workgroup, places) = FORMS[i % FORMS.len()];
    let tiling = Tiling { lanes, rows, workgroup, columns: 1, direct: false };
    let tilings = vec![StepChoice { step: "product".to_owned(), rows: RowRange::ALL, choice: tiling }];
    let grouping = target.choices.grouping.or(Some(Grouping { from: 2, slots: 0, rows: places.max(2) }));
    let choices = Choices { tilings, grouping, ..Choices::clone(&target.choices) };
    let target = &Target { team: Team::Subgroup, choices: choices.into(), workgroups: 1, ..target.clone() };
    let ((count, tokens), [columns, rows]) = (TOKENS[i % TOKENS.len()], SHAPES[i % SHAPES.len()]);
    let (columns, adds) = (columns_for(quant, columns.next_multiple_of(32)), i % 2 == 1);
    let mut case = CaseBuilder::for_tokens(target, 1, tokens);
    if count < tokens {
        case.consecutive(0, count);
    }
    let w = case.weight("w", quant, [columns, rows, 1])?;
    let x = case.normed_rounded_input("input", [columns, tokens])?;
    if adds {
        let y = case.input("y", [rows, tokens]);
        let next = case.norm("norm", rows)?;
        let stream = case.plan.mul_mv_add("product", &w, &x, &y, &next)?;
        if count == tokens {
            case.probe_stream(&stream, &next)?;
        } else if let Some(rounded) = stream.rounded {
            case.allow(rounded.buffer);
        }
    } else {
        case.plan.mul_mv("product", &w, &x)?;
    }
    Ok(case
        .finish(format!("{} of {columns} columns, {rows} rows, {count} of {tokens} tokens, adds {adds}", quant.name)))
}
