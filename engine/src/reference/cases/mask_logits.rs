//! The cases of `mask_logits`.

use crate::error::Result;
use crate::kernels::mask_words;
use crate::plan::{BufferRef, Target};
use crate::reference::{Case, CaseBuilder};

/// The numbers of logits and of rows.
const SHAPES: [(usize, usize); 6] = [(1, 1), (31, 1), (33, 3), (1024, 1), (5003, 2), (154_880, 1)];

pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    SHAPES.into_iter().map(|(count, rows)| case(target, count, rows)).collect()
}

/// Masks that differ from row to row, with bits set beyond the last token.
fn case(target: &Target, count: usize, rows: usize) -> Result<Case> {
    let mut case = CaseBuilder::for_tokens(target, 2, rows);
    let logits = case.input("logits", [count, rows]);
    let masked = case.plan.tensor("masked", [count, rows]);
    let mask = case.plan.mask_logits("mask", &logits, &masked)?;
    let words = mask_words(count);
    let bits: Vec<u32> = case.noise(words * rows).iter().map(|value| value.to_bits() ^ value.to_bits() << 9).collect();
    case.fill_bytes(BufferRef::Local(mask), bytemuck::cast_slice(&bits).to_vec());
    Ok(case.finish(format!("{rows} of {count}")))
}
