//! The cases of `keep_hidden`, `kept_hidden` and `draft_input`.

use crate::error::Result;
use crate::kernels::errors::NORMED;
use crate::kernels::{HiddenStates, KEPT_ROWS, Kept, Norm};
use crate::plan::{BufferRef, RowHeader, Target};
use crate::reference::vectors::rms_normed;
use crate::reference::{Case, CaseBuilder, OutputType};

const EPSILON: f32 = 1e-5;

/// Sequences with a ring buffer.
const SEQUENCES: usize = 3;

/// The ring buffers, and their initial content.
fn ring(case: &mut CaseBuilder, width: usize) -> (Kept, Vec<f32>) {
    let values = case.noise(width * KEPT_ROWS * SEQUENCES);
    let buffer = BufferRef::Local(case.plan.setting("kept", 4 * values.len() as u64));
    case.fill_bytes(buffer, bytemuck::cast_slice(&values).to_vec());
    (Kept { buffer, width }, values)
}

/// The index of the first value of the entry of a sequence's position.
fn place(sequence: usize, position: usize, width: usize) -> usize {
    (sequence * KEPT_ROWS + position % KEPT_ROWS) * width
}

/// The rows of consecutive tokens from a position on, of one sequence, or each of another one.
fn rows(position: usize, count: usize, apart: bool) -> Vec<RowHeader> {
    let sequence = |row: usize| if apart { row % SEQUENCES } else { SEQUENCES - 1 };
    let rows = RowHeader::consecutive(position, &vec![0; count]).into_iter().enumerate();
    rows.map(|(row, header)| RowHeader { sequence: sequence(row) as u32, ..header }).collect()
}

fn expect(case: &mut CaseBuilder, buffer: BufferRef, first: usize, want: Vec<f64>) {
    let sizes = want.iter().map(|v| v.abs()).collect();
    case.expect_slice(buffer, first, want, sizes, NORMED);
}

pub(super) fn keep(target: &Target) -> Result<Vec<Case>> {
    // Width, rows, capacity in rows, first position, how far ahead of their positions rows are stored, and whether the rows
    // are of different sequences.
    let shapes = [(2048, 1, 1, 31, 1, false), (70, 5, 8, 30, 0, true), (33, 40, 64, 7, 1, false)];
    let case = |(width, count, room, position, ahead, apart): (usize, usize, usize, usize, usize, bool)| {
        let mut case = CaseBuilder::for_tokens(target, 1, room);
        let rows = rows(position, count, apart);
        case.rows(&rows);
        let (x, xs) = case.batch("x", [width, 1], room, count);
        let (weight, ws) = case.vector("norm", width)?;
        let (ring, _) = ring(&mut case, width);
        case.plan.keep_hidden("keep", &x, &Norm { weight, epsilon: EPSILON }, &ring, ahead)?;
        for (row, x) in xs.chunks(width).enumerate().skip(count.saturating_sub(KEPT_ROWS)) {
            let first = place(rows[row].sequence as usize, position + row + ahead, width);
            expect(&mut case, ring.buffer, first, rms_normed(x, &ws, EPSILON));
        }
        Ok(case.finish(format!("{width}, {count} of {room} rows from {position}, {ahead} ahead")))
    };
    shapes.into_iter().map(case).collect()
}

pub(super) fn kept(target: &Target) -> Result<Vec<Case>> {
    let case = |(width, count, room, position, ahead): (usize, usize, usize, usize, usize)| {
        let mut case = CaseBuilder::for_tokens(target, 1, room);
        let rows = rows(position, count, true);
        case.rows(&rows);
        let (ring, values) = ring(&mut case, width);
        let y = case.plan.kept_hidden("kept", &ring, ahead)?;
        for (row, header) in rows.iter().enumerate() {
            let first = place(header.sequence as usize, position + row + ahead, width);
            let want: Vec<f64> = values[first..first + width].iter().map(|v| f64::from(*v)).collect();
            case.expect_at(y.buffer, OutputType::F32, row * y.pitch, want, 0.0);
        }
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
        let (embedding, xs) = case.batch("embedding", [width, 1], room, count);
        let (x_norm, x_weights) = case.vector("enorm", width)?;
        let (h_norm, h_weights) = case.vector("hnorm", width)?;
        let (states, hidden) = if kept {
            let (ring, values) = ring(&mut case, width);
            let first = |row: &RowHeader| place(row.sequence as usize, row.position as usize, width);
            let rows = headers.iter().flat_map(|row| values[first(row)..][..width].to_vec());
            (HiddenStates::Kept(ring), rows.collect())
        } else {
            let (rows, values) = case.batch("hidden", [width, 1], room, count);
            (HiddenStates::Rows(rows), values)
        };
        let norm = |weight| Norm { weight, epsilon: EPSILON };
        let y = case.plan.draft_input("input", (&embedding, &norm(x_norm)), (states, &norm(h_norm)))?;
        for (row, (x, h)) in xs.chunks(width).zip(hidden.chunks(width)).enumerate() {
            for (first, x, weights) in [(0, x, &x_weights), (width, h, &h_weights)] {
                expect(&mut case, y.buffer, row * y.pitch + first, rms_normed(x, weights, EPSILON));
            }
        }
        Ok(case.finish(format!("{width}, {count} of {room} rows{}", if kept { ", kept" } else { "" })))
    };
    [(2048, 1, 1, true), (2048, 1, 1, false), (70, 5, 8, true), (256, 5, 8, false)].into_iter().map(case).collect()
}
