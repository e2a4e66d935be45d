//! The cases of `advance` and `draft`.

use super::super::drafting::{likeliest, next_row};
use crate::error::Result;
use crate::kernels::VERIFIED_ROWS;
use crate::kernels::slice_max::SLICE;
use crate::plan::{BatchHeader, BufferRef, Plan, RowHeader, Target};
use crate::reference::{Case, CaseBuilder, OutputType};

/// The number of sequences, whose entries come before those of verified rows.
const SEQUENCES: usize = 2;
/// The word after the entries of verified rows.
const DRAFTING: usize = (SEQUENCES + VERIFIED_ROWS) * Plan::SAMPLED_WORDS;

/// Sets the buffer of sampled tokens: how many drafts were accepted, and how many were made since.
fn sampled(case: &mut CaseBuilder, accepted: u32, made: u32) {
    let words: Vec<u32> = (0..DRAFTING as u32).chain([accepted, made]).collect();
    case.plan.room_for_sequences(SEQUENCES + 2 * VERIFIED_ROWS);
    case.fill_bytes(BufferRef::Local(Plan::SAMPLED), bytemuck::cast_slice(&words).to_vec());
}

pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    let case = |(pairs, accepted, made): (usize, u32, u32)| {
        const ROOM: usize = 9;
        let mut case = CaseBuilder::new(target, pairs);
        sampled(&mut case, accepted, made);
        let candidates = case.plan.advance("advance", ROOM, 7)?;
        let header = BatchHeader { submission: 5, ..BatchHeader::default() };
        let (mut bytes, mut rows) = (bytemuck::bytes_of(&header).to_vec(), Vec::new());
        for row in 0..ROOM as u32 {
            let (position, sequence, result) = (30 + row, 1, SEQUENCES as u32);
            rows.push(RowHeader { token: row, position, sequence, result, first_page: 3, ..RowHeader::default() });
            let rotations: Vec<u32> = (0..2 * pairs as u32).map(|word| 1000 * row + word).collect();
            bytes.extend_from_slice(bytemuck::bytes_of(&rows[row as usize]));
            bytes.extend_from_slice(bytemuck::cast_slice(&rotations));
        }
        case.fill_bytes(candidates, bytes);
        let (next, number) = next_row(&rows, accepted, made);
        let header = BatchHeader { count: 1, longest: next.position + 1, splits: 7, submission: 5 };
        let mut want: Vec<u32> = bytemuck::cast_slice(bytemuck::bytes_of(&header)).to_vec();
        want.extend_from_slice(bytemuck::cast_slice(bytemuck::bytes_of(&next)));
        want.extend((0..2 * pairs as u32).map(|word| 1000 * number as u32 + word));
        let want = want.into_iter().map(f64::from).collect();
        case.expect_at(BufferRef::Local(Plan::BATCH), OutputType::U32, 0, want, 0.0);
        Ok(case.finish(format!("{pairs} pairs, {accepted} accepted, {made} made")))
    };
    [(32, 0, 0), (3, 2, 0), (32, 3, 2), (40, 0, 8)].into_iter().map(case).collect()
}

pub(super) fn draft(target: &Target) -> Result<Vec<Case>> {
    let case = |(slices, made): (usize, u32)| {
        let mut case = CaseBuilder::new(target, 1);
        let logits = case.plan.tensor("logits", [slices * SLICE, 1]);
        let values = case.noise(slices * SLICE);
        case.fill(&logits, &values);
        case.rows(&[RowHeader { result: SEQUENCES as u32, ..RowHeader::default() }]);
        sampled(&mut case, 1, made);
        let slices = case.plan.slice_max("slices", &logits)?;
        case.allow(slices.maxima.buffer);
        case.allow(slices.histogram.buffer);
        case.plan.draft("draft", &slices)?;
        let maxima = values.iter().zip(0..).flat_map(|(value, token)| [value.to_bits(), token]).collect::<Vec<u32>>();
        let want = [1, made + 1, likeliest(&maxima)].map(f64::from);
        let buffer = BufferRef::Local(Plan::SAMPLED);
        case.expect_at(buffer, OutputType::U32, DRAFTING, want[..2].to_vec(), 0.0);
        let place = DRAFTING + Plan::SAMPLED_WORDS + made as usize;
        case.expect_at(buffer, OutputType::U32, place, want[2..].to_vec(), 0.0);
        Ok(case.finish(format!("{} slices, {made} made", slices.count())))
    };
    [(1, 0), (3, 2), (152, 14)].into_iter().map(case).collect()
}
