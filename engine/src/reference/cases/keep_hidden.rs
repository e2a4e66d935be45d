//! The cases of `keep_hidden`, `kept_hidden` and `draft_input`.

use crate::error::Result;
use crate::kernels::{HiddenStates, KEPT_ROWS, Kept};
use crate::plan::{BufferRef, RowHeader, Target};
use crate::reference::{Case, CaseBuilder};

/// Sequences with a ring buffer.
const SEQUENCES: usize = 3;

/// The ring buffers, with noise.
fn ring(case: &mut CaseBuilder, width: usize) -> Kept {
    let values = case.noise(width * KEPT_ROWS * SEQUENCES);
    let buffer = BufferRef::Local(case.plan.setting("kept", 4 * values.len() as u64));
    case.fill_bytes(buffer, bytemuck::cast_slice(&values).to_vec());
    Kept { buffer, width }
}

/// The rows of consecutive tokens from a position on, of one sequence, or each of another one.
fn rows(position: usize, count: usize, apart: bool) -> Vec<RowHeader> {
    let sequence = |row: usize| if apart { row % SEQUENCES } else { SEQUENCES - 1 };
    let rows = RowHeader::consecutive(position, &vec![0; count]).into_iter().enumerate();
    rows.map(|(row, header)| RowHeader { sequence: sequence(row) as u32, ..header }).collect()
}

pub(super) fn keep(target: &Target) -> Result<Vec<Case>> {
    // Width, rows, capacity in rows, first position, how far ahead of their positions rows are stored, and whether the
    // rows are of different sequences.
    let shapes = [(2048, 1, 1, 31, 1, false), (70, 5, 8, 30, 0, true), (33, 40, 64, 7, 1, false)];
    let case = |(width, count, room, position, ahead, apart): (usize, usize, usize, usize, usize, bool)| {
        let mut case = CaseBuilder::for_tokens(target, 1, room);
        let rows = rows(position, count, apart);
        case.rows(&rows);
        let x = case.batch("x", [width, 1], room, count);
        let norm = case.norm("norm", width)?;
        let ring = ring(&mut case, width);
        case.plan.keep_hidden("keep", &x, &norm, &ring, ahead)?;
        Ok(case.finish(format!("{width}, {count} of {room} rows from {position}, {ahead} ahead")))
    };
    shapes.into_iter().map(case).collect()
}

pub(super) fn kept(target: &Target) -> Result<Vec<Case>> {
    let case = |(width, count, room, position, ahead): (usize, usize, usize, usize, usize)| {
        let mut case = CaseBuilder::for_tokens(target, 1, room);
        let rows = rows(position, count, true);
        case.rows(&rows);
        let ring = ring(&mut case, width);
        case.plan.kept_hidden("kept", &ring, ahead)?;
        Ok(case.finish(format!("{width}, {count} of {room} rows from {position}, {ahead} ahead")))
    };
    [(2048, 1, 1, 31, 1), (70, 1, 1, 64, 0), (70, 3, 4, 30, 1)].into_iter().map(case).collect()
}

pub(super) fn draft_input(target: &Target) -> Result<Vec<Case>> {
    let case = |(width, count, room, kept): (usize, usize, usize, bool)| {
        const POSITION: usize = 29;
        let mut case = CaseBuilder::for_tokens(target, 1, room);
        let headers = rows(POSITION, count, true);
        case.rows(&headers);
        let embedding = case.batch("embedding", [width, 1], room, count);
        let [x_norm, h_norm] = [case.norm("enorm", width)?, case.norm("hnorm", width)?];
        let states = match kept {
            true => HiddenStates::Kept(ring(&mut case, width)),
            false => HiddenStates::Rows(case.batch("hidden", [width, 1], room, count)),
        };
        case.plan.draft_input("input", (&embedding, &x_norm), (states, &h_norm))?;
        Ok(case.finish(format!("{width}, {count} of {room} rows{}", if kept { ", kept" } else { "" })))
    };
    [(2048, 1, 1, true), (2048, 1, 1, false), (70, 5, 8, true), (256, 5, 8, false)].into_iter().map(case).collect()
}
