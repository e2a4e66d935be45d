//! The cases of `accept`.

use crate::error::Result;
use crate::kernels::{DRAFTING, MAX_DRAFTS, VERIFIED_ROWS};
use crate::plan::{BufferRef, Plan, RowHeader, Target};
use crate::reference::{Case, CaseBuilder};

/// The tokens that were sampled after each row of a sequence, and the drafts in its rows after the first.
type Verified = (&'static [u32], &'static [u32]);

/// None, none accepted, some, all, a correct one after a wrong one, and as many as possible.
const ALONE: [Verified; 6] = [
    (&[5], &[]),
    (&[5, 6, 7], &[4, 6]),
    (&[5, 6, 7, 8], &[5, 6, 9]),
    (&[5, 6, 7, 8], &[5, 6, 7]),
    (&[0, 0, 0], &[1, 0]),
    (&[9; MAX_DRAFTS + 1], &[9; MAX_DRAFTS]),
];
/// Several sequences: without drafts between others, and as many rows as possible.
const TOGETHER: [&[Verified]; 3] = [
    &[(&[5, 6, 7], &[5, 4]), (&[8], &[]), (&[7, 7], &[7])],
    &[(&[5], &[]), (&[5], &[])],
    &[(&[9; MAX_DRAFTS + 1], &[9; MAX_DRAFTS]), (&[9; MAX_DRAFTS + 1], &[8; MAX_DRAFTS])],
];

pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    let alone = ALONE.iter().map(std::slice::from_ref);
    alone.chain(TOGETHER).map(|verified| case(target, verified)).collect()
}

fn case(target: &Target, verified: &[Verified]) -> Result<Case> {
    // Sequences from the second on are verified. The entries of their rows follow those of the sequences.
    const SEQUENCES: usize = 4;
    let entries = SEQUENCES + VERIFIED_ROWS + SEQUENCES * DRAFTING;
    let mut case = CaseBuilder::for_tokens(target, 1, VERIFIED_ROWS);
    case.plan.room_for_sequences(entries);
    let (mut rows, mut places) = (Vec::new(), vec![0; entries]);
    for (sequence, (sampled, drafts)) in (1..).zip(verified) {
        let tokens: Vec<u32> = std::iter::once(3).chain(drafts.iter().copied()).collect();
        for (row, token) in RowHeader::consecutive(7, &tokens).into_iter().zip(*sampled) {
            let result = (SEQUENCES + rows.len()) as u32;
            places[result as usize] = *token;
            rows.push(RowHeader { sequence, result, ..row });
        }
    }
    case.rows(&rows);
    let words: Vec<u32> = places.into_iter().flat_map(|token| [token, 100 + token, 200 + token]).collect();
    let buffer = BufferRef::Local(Plan::SAMPLED);
    case.fill_bytes(buffer, bytemuck::cast_slice(&words).to_vec());
    case.plan.accept("accept")?;
    Ok(case.finish(format!("sampled tokens and drafts {verified:?}")))
}
