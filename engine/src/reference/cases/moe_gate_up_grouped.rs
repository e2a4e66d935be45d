//! The cases of `moe_gate_up_grouped`.

use super::moe_gate_up::{By, case};
use super::pairs;
use crate::error::Result;
use crate::plan::{Choices, Grouping, RowRange, StepChoice, Target, Team, Tiling};
use crate::quant::{Arithmetic, Q4_0, Quant};
use crate::reference::Case;

/// The number of tokens in a batch, and the maximum that its plan is for.
pub(super) const TOKENS: [(usize, usize); 9] =
    [(9, 9), (16, 16), (33, 64), (2, 2), (31, 32), (64, 64), (3, 3), (32, 32), (8, 16)];
/// Lanes and rows of a team (those of experts have one row), invocations, and vectors that share decoded weights. The
/// last but one is what attn_output of the model has on an H100.
pub(super) const FORMS: [(usize, usize, usize, usize); 7] = [
    (16, 2, 64, 4),
    (16, 1, 128, 8),
    (16, 4, 128, 2),
    (16, 2, 256, 1),
    (16, 1, 64, 4),
    (32, 4, 512, 8),
    (8, 2, 256, 8),
];
/// Columns at least, rows, and rows of the shared experts.
const SHAPES: [[usize; 3]; 3] = [[45, 16, 32], [260, 32, 48], [45, 48, 16]];
/// So many columns that they are not staged all at once with 8 slots.
const LONG: [usize; 3] = [1400, 16, 16];

/// Every format, and every number of tokens in one of them. If the target says how to group, all cases do so. There are
/// no cases of float products, and none for an adapter without subgroup operations: the kernel is for neither.
pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    if target.arithmetic == Arithmetic::Float || target.subgroup < 2 {
        return Ok(Vec::new());
    }
    let formats = pairs(1).into_iter().zip(pairs(2)).map(|((first, second), (_, third))| [first, first, second, third]);
    let usual: [&Quant; 4] = [&Q4_0; 4];
    let all = (0..TOKENS.len()).map(|_| usual).chain(formats);
    all.enumerate().map(|(i, formats)| grouped(target, i, formats)).collect()
}

fn grouped(target: &Target, i: usize, formats: [&'static Quant; 4]) -> Result<Case> {
    let (lanes, rows, workgroup, places) = FORMS[i % FORMS.len()];
    let tiling = Tiling { lanes, rows, workgroup, columns: 1, direct: false };
    let tilings = vec![StepChoice { step: "hidden".to_owned(), rows: RowRange::ALL, choice: tiling }];
    let grouping = target.choices.grouping.or(Some(Grouping { from: 2, slots: places, rows: 0 }));
    let choices = Choices { tilings, grouping, ..Choices::clone(&target.choices) };
    let target = Target { team: Team::Subgroup, choices: choices.into(), ..target.clone() };
    let (count, tokens) = TOKENS[i % TOKENS.len()];
    let shape = if i < TOKENS.len() && places == 8 { LONG } else { SHAPES[i % SHAPES.len()] };
    case(&target, By::Grouped, formats, shape, (tokens, count))
}
