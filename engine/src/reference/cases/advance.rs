//! The cases of `advance` and `draft`.

use super::super::drafting::drafting_of;
use crate::error::Result;
use crate::kernels::slice_max::SLICE;
use crate::kernels::{DRAFTING, VERIFIED_ROWS};
use crate::plan::{BatchHeader, BufferRef, Plan, RowHeader, Target};
use crate::reference::{Case, CaseBuilder};

/// The number of sequences, whose entries come before those of verified rows.
const SEQUENCES: usize = 4;
const FIRST: u32 = SEQUENCES as u32;

/// Sets the buffer of sampled tokens: of sequences from the second on how many drafts were accepted, and how many were
/// made since.
fn sampled(case: &mut CaseBuilder, counts: &[(u32, u32)]) {
    let entries = SEQUENCES + VERIFIED_ROWS + SEQUENCES * DRAFTING;
    let mut words: Vec<u32> = (0..(entries * Plan::SAMPLED_WORDS) as u32).collect();
    for (sequence, (accepted, made)) in (1..).zip(counts) {
        let drafting = drafting_of(FIRST, sequence);
        (words[drafting], words[drafting + 1]) = (*accepted, *made);
    }
    case.plan.room_for_sequences(entries);
    case.fill_bytes(BufferRef::Local(Plan::SAMPLED), bytemuck::cast_slice(&words).to_vec());
}

fn for_rows(target: &Target, pairs: usize, rows: usize) -> CaseBuilder {
    if rows == 1 { CaseBuilder::new(target, pairs) } else { CaseBuilder::for_tokens(target, pairs, rows) }
}

pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    let case = |(pairs, counts): (usize, &[(u32, u32)])| {
        const EACH: u32 = 9;
        let room = counts.len().next_power_of_two();
        let mut case = for_rows(target, pairs, room);
        sampled(&mut case, counts);
        let candidates = case.plan.advance("advance", room * EACH as usize, 7)?;
        let header =
            BatchHeader { count: counts.len() as u32 * EACH, splits: EACH, submission: 5, ..BatchHeader::default() };
        let mut bytes = bytemuck::bytes_of(&header).to_vec();
        for sequence in 1..=counts.len() as u32 {
            let candidate = |row: u32| {
                let (token, position) = (row, 30 * sequence + row);
                RowHeader { token, position, sequence, result: FIRST, first_page: 3, ..RowHeader::default() }
            };
            let rows: Vec<RowHeader> = (0..EACH).map(candidate).collect();
            let rotations = |row: u32| (0..2 * pairs as u32).map(move |word| 1000 * (row + EACH * sequence) + word);
            for (row, number) in rows.iter().zip(0..) {
                bytes.extend_from_slice(bytemuck::bytes_of(row));
                bytes.extend_from_slice(bytemuck::cast_slice(&rotations(number).collect::<Vec<u32>>()));
            }
        }
        case.fill_bytes(candidates, bytes);
        Ok(case.finish(format!("{pairs} pairs, accepted and made {counts:?}")))
    };
    let shapes: [(usize, &[(u32, u32)]); 5] =
        [(32, &[(0, 0)]), (3, &[(2, 0)]), (32, &[(3, 2)]), (40, &[(0, 8)]), (3, &[(1, 0), (0, 4), (5, 3)])];
    shapes.into_iter().map(case).collect()
}

pub(super) fn draft(target: &Target) -> Result<Vec<Case>> {
    let case = |(slices, made): (usize, &[u32])| {
        let mut case = for_rows(target, 1, made.len());
        let logits = case.batch("logits", [slices * SLICE, 1], made.len(), made.len());
        let row = |sequence: u32| RowHeader { sequence, result: FIRST, ..RowHeader::default() };
        case.rows(&(1..=made.len() as u32).map(row).collect::<Vec<_>>());
        sampled(&mut case, &made.iter().map(|made| (1, *made)).collect::<Vec<_>>());
        let slices = case.plan.slice_max("slices", &logits)?;
        case.allow(slices.maxima.buffer);
        case.allow(slices.histogram.buffer);
        case.plan.draft("draft", &slices)?;
        Ok(case.finish(format!("{} slices, {made:?} made", slices.count())))
    };
    let shapes: [(usize, &[u32]); 4] = [(1, &[0]), (3, &[2]), (152, &[14]), (5, &[1, 0])];
    shapes.into_iter().map(case).collect()
}
