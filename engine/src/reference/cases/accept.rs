//! The cases of `accept`.

use crate::error::Result;
use crate::kernels::VERIFIED_ROWS;
use crate::plan::{BufferRef, Plan, RowHeader, Target};
use crate::reference::sampling::accepted;
use crate::reference::{Case, CaseBuilder, OutputType};

/// The tokens that were sampled after each row, and the drafts in the rows after the first: none, none accepted, some,
/// all, a correct one after a wrong one, and as many as possible.
const SHAPES: [(&[u32], &[u32]); 6] = [
    (&[5], &[]),
    (&[5, 6, 7], &[4, 6]),
    (&[5, 6, 7, 8], &[5, 6, 9]),
    (&[5, 6, 7, 8], &[5, 6, 7]),
    (&[0, 0, 0], &[1, 0]),
    (&[9; VERIFIED_ROWS], &[9; VERIFIED_ROWS - 1]),
];

pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    SHAPES.into_iter().map(|(sampled, drafts)| case(target, sampled, drafts)).collect()
}

fn case(target: &Target, sampled: &[u32], drafts: &[u32]) -> Result<Case> {
    // The second of two sequences is verified. The entries of its rows follow those of the sequences.
    const SEQUENCES: usize = 2;
    let mut case = CaseBuilder::for_tokens(target, 1, VERIFIED_ROWS);
    case.plan.room_for_sequences(SEQUENCES + VERIFIED_ROWS + 1);
    let tokens: Vec<u32> = std::iter::once(3).chain(drafts.iter().copied()).collect();
    let mut rows = RowHeader::consecutive(7, &tokens);
    for (row, result) in rows.iter_mut().zip(SEQUENCES as u32..) {
        (row.sequence, row.result) = (1, result);
    }
    case.rows(&rows);
    let places = [2, 1].into_iter().chain(sampled.iter().copied());
    let words: Vec<u32> = places.flat_map(|token| [token, 100 + token, 200 + token]).collect();
    let buffer = BufferRef::Local(Plan::SAMPLED);
    case.fill_bytes(buffer, bytemuck::cast_slice(&words).to_vec());
    case.plan.accept("accept")?;
    let count = accepted(drafts, sampled.iter().copied());
    let last = Plan::SAMPLED_WORDS * (SEQUENCES + count);
    let expected = words[last..last + Plan::SAMPLED_WORDS].iter().map(|word| f64::from(*word)).collect();
    case.expect_at(buffer, OutputType::U32, Plan::SAMPLED_WORDS, expected, 0.0);
    let counted = Plan::SAMPLED_WORDS * (SEQUENCES + VERIFIED_ROWS);
    case.expect_at(buffer, OutputType::U32, counted, vec![count as f64, 0.0], 0.0);
    Ok(case.finish(format!("{} of {} drafts", count, drafts.len())))
}
