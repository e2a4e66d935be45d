//! The cases of `keep_hidden`, `kept_hidden` and `draft_input`.

use crate::error::Result;
use crate::kernels::errors::NORMED;
use crate::kernels::{HiddenStates, KEPT_ROWS, Kept, Norm};
use crate::plan::{BufferRef, Target};
use crate::reference::vectors::rms_normed;
use crate::reference::{Case, CaseBuilder};

const EPSILON: f32 = 1e-5;

/// A ring buffer, and its initial content.
fn ring(case: &mut CaseBuilder, width: usize) -> (Kept, Vec<f32>) {
    let values = case.noise(width * KEPT_ROWS);
    let buffer = BufferRef::Local(case.plan.setting("kept", 4 * values.len() as u64));
    case.fill_bytes(buffer, bytemuck::cast_slice(&values).to_vec());
    (Kept { buffer, width }, values)
}

/// The index of the first value of a position's entry.
fn place(position: usize, width: usize) -> usize {
    position % KEPT_ROWS * width
}

fn expect(case: &mut CaseBuilder, buffer: BufferRef, first: usize, want: Vec<f64>) {
    let sizes = want.iter().map(|v| v.abs()).collect();
    case.expect_slice(buffer, first, want, sizes, NORMED);
}

pub(super) fn keep(target: &Target) -> Result<Vec<Case>> {
    // Width, rows, capacity in rows, first position, and how far ahead of their positions rows are stored.
    let shapes = [(2048, 1, 1, 31, 1), (70, 5, 8, 30, 0), (33, 40, 64, 7, 1)];
    let case = |(width, count, room, position, ahead): (usize, usize, usize, usize, usize)| {
        let mut case = CaseBuilder::for_tokens(target, 1, room);
        case.consecutive(position as u32, count);
        let (x, xs) = case.batch("x", [width, 1], room, count);
        let (weight, ws) = case.vector("norm", width)?;
        let (ring, _) = ring(&mut case, width);
        case.plan.keep_hidden("keep", &x, &Norm { weight, epsilon: EPSILON }, &ring, ahead)?;
        for (row, x) in xs.chunks(width).enumerate().skip(count.saturating_sub(KEPT_ROWS)) {
            expect(&mut case, ring.buffer, place(position + row + ahead, width), rms_normed(x, &ws, EPSILON));
        }
        Ok(case.finish(format!("{width}, {count} of {room} rows from {position}, {ahead} ahead")))
    };
    shapes.into_iter().map(case).collect()
}

pub(super) fn kept(target: &Target) -> Result<Vec<Case>> {
    let case = |(width, position, ahead): (usize, usize, usize)| {
        let mut case = CaseBuilder::for_tokens(target, 1, 1);
        case.consecutive(position as u32, 1);
        let (ring, values) = ring(&mut case, width);
        let y = case.plan.kept_hidden("kept", &ring, ahead)?;
        let first = place(position + ahead, width);
        let want = values[first..first + width].iter().map(|v| f64::from(*v)).collect();
        case.expect_each(&y, want, 1.0, 0.0);
        Ok(case.finish(format!("{width} at {position}, {ahead} ahead")))
    };
    [(2048, 31, 1), (70, 64, 0)].into_iter().map(case).collect()
}

pub(super) fn draft_input(target: &Target) -> Result<Vec<Case>> {
    let case = |(width, count, room, kept): (usize, usize, usize, bool)| {
        const POSITION: usize = 29;
        let mut case = CaseBuilder::for_tokens(target, 1, room);
        case.consecutive(POSITION as u32, count);
        let (embedding, xs) = case.batch("embedding", [width, 1], room, count);
        let (x_norm, x_weights) = case.vector("enorm", width)?;
        let (h_norm, h_weights) = case.vector("hnorm", width)?;
        let (states, hidden) = if kept {
            let (ring, values) = ring(&mut case, width);
            let rows = (0..count).flat_map(|row| values[place(POSITION + row, width)..][..width].to_vec());
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
