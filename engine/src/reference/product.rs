//! Products of weights with vectors: of one matrix, of one of a stack, gated, summed over experts.

use super::operand::Vector;
use super::{SMALLEST, VALUES, VECTORS, start};
use crate::error::Result;
use crate::kernels::Summands;
use crate::kernels::computes::{Down, Errors, Left, PartialProduct, Product, SLACK, Terms, Which};
use crate::kernels::errors::{expert_weights, swiglu};
use crate::kernels::matvec::HALF;
use crate::plan::{BufferRef, OutputPlace, Probe, Reference, Sample, Weight};
use crate::quant::GROUP;

/// An expected output, and its largest allowed error.
type Sum = (f64, f64);

/// The largest rounding error of numbers so small that they lose precision in f16.
const HALF_STEP: f64 = 6e-8;

impl Which {
    /// The index of a vector's matrix among `matrices`, and the factor on the output with its error; `None` if the
    /// router's choice is close.
    fn matrix(
        &self,
        probe: &mut Probe<'_>,
        (token, slot, slots): (usize, usize, usize),
        matrices: usize,
    ) -> Result<Option<(usize, Sum)>> {
        let vector = token * slots + slot;
        Ok(match self {
            Self::InTurn => Some((vector % matrices, (1.0, 0.0))),
            Self::Grouped { slots: order, tiles, count } => {
                let order = probe.words(*order, 0, probe.count * slots)?;
                let tiles = probe.words(*tiles, 0, 4 * count)?;
                let place = order.iter().position(|&slot| slot as usize == vector);
                let has = |tile: &&[u32]| place.is_some_and(|p| (tile[1]..tile[1] + tile[2]).contains(&(p as u32)));
                tiles.chunks_exact(4).find(has).map(|tile| (tile[0] as usize % matrices, (1.0, 0.0)))
            }
            Self::SelectedExperts(chosen) => {
                let Some((ids, weights)) = chosen.of(probe, token)? else { return Ok(None) };
                let errors = expert_weights(&chosen.logits(probe, token)?, &ids, chosen.routing);
                Some((ids[slot], (weights[slot], SLACK * errors[slot] * weights[slot].abs())))
            }
            Self::Routed { ids, weights, top_k } => {
                let at = token * top_k + slot;
                let id = probe.words(*ids, at, 1)?.first().copied();
                let weight = probe.values(*weights, at, 1)?.first().copied();
                id.zip(weight).map(|(id, weight)| (id as usize % matrices, (f64::from(weight), 0.0)))
            }
        })
    }
}

impl Product {
    /// The rows of one output vector to check: some, or half a group if the output is also written rounded, because a
    /// scale is shared.
    fn rows(&self, probe: &mut Probe<'_>, rows: usize) -> Vec<usize> {
        if self.left.is_none() {
            return probe.some(rows, VALUES);
        }
        let half = probe.pick(rows / HALF);
        (half * HALF..(half + 1) * HALF).collect()
    }

    /// The value of a row, not including the output's previous value.
    fn value(&self, probe: &mut Probe<'_>, matrix: usize, row: usize, x: &Vector) -> Result<Sum> {
        match &self.terms {
            Terms::One { w, .. } => self.errors.dot(probe, w, matrix, row, x),
            Terms::Gated { gate, up } => {
                let [gate, up] = [gate, up].map(|w| self.errors.dot(probe, w, matrix, row, x));
                let (gate, up) = (gate?, up?);
                let (value, error) = gated(gate, up);
                Ok((value, error + SLACK * swiglu(gate.0) * value.abs()))
            }
        }
    }
}

impl Reference for Product {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        let w = match &self.terms {
            Terms::One { w, .. } => w,
            Terms::Gated { gate, .. } => gate,
        };
        let [columns, rows, matrices] = w.shape;
        let (first, stacks) = self.stacks;
        let mut samples = Vec::new();
        for vector in probe.some(probe.count * stacks, VECTORS) {
            let (token, slot) = (vector / stacks, vector % stacks);
            let Some((matrix, (factor, off))) = self.which.matrix(probe, (token, slot, stacks), matrices)? else {
                continue;
            };
            let x = self.x.vector(probe, token, (first + slot) * self.x.stacks() / self.y.per_row(), columns)?;
            let place = start(&self.y, token, first + slot);
            let mut sums = Vec::new();
            for row in self.rows(probe, rows) {
                let (mut value, mut error) = self.value(probe, matrix, row, &x)?;
                if let Terms::One { add: true, .. } = self.terms {
                    let before = probe.values(self.y.buffer, place + row, 1)?.first().map_or(0.0, |&v| f64::from(v));
                    (value, error) = (value + before, error + self.errors.sum * before.abs());
                }
                let sum = (value * factor, error * factor.abs() + off * value.abs());
                samples.push(summed(self.y.buffer, place + row, sum));
                sums.push((row, sum));
            }
            if let Some(left) = &self.left {
                samples.extend(left.samples(probe, place, token * self.y.per_row() + first + slot, &sums)?);
            }
        }
        Ok(samples)
    }
}

impl Reference for PartialProduct {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        let Summands { tensor, parts, apart } = self.parts;
        let (stacks, sides) = (tensor.per_row(), self.weights.len());
        let mut samples = Vec::new();
        for vector in probe.some(probe.count * stacks * parts, VECTORS) {
            let (token, part, stack) = (vector / stacks / parts, vector / stacks % parts, vector % stacks);
            for staged in probe.some(tensor.shape[0], VALUES) {
                let (turn, row) = (staged / self.side, staged / self.side / sides * self.side + staged % self.side);
                let w = &self.weights[if sides > 1 { turn % sides } else { 0 }];
                let row = if sides > 1 { row } else { staged };
                let [columns, rows, matrices] = w.shape;
                if row >= rows {
                    continue;
                }
                let steps = w.groups() / self.step;
                let from = |part: usize| (part * steps / parts * self.step * GROUP).min(columns);
                let columns = from(part)..if part + 1 == parts { columns } else { from(part + 1) };
                let x = self.x.vector(probe, token, stack * self.x.stacks() / stacks, columns.end)?;
                let x = Vector { values: x.values[columns.start..].to_vec(), ..x };
                let sum = self.errors.dot_of(&probe.row(w, stack % matrices, row)?[columns], &x);
                let place = start(&tensor, token, stack) + part * apart + staged;
                samples.push(summed(tensor.buffer, place, sum));
            }
        }
        Ok(samples)
    }
}

impl Errors {
    /// The product of a row with x.
    fn dot(self, probe: &mut Probe<'_>, w: &Weight, matrix: usize, row: usize, x: &Vector) -> Result<Sum> {
        Ok(self.dot_of(&probe.row(w, matrix, row)?, x))
    }

    /// The product of a row's values with x.
    fn dot_of(self, row: &[f32], x: &Vector) -> Sum {
        let (mut sum, mut size, mut squares, mut otherwise, mut least) = (0.0, 0.0, 0.0, 0.0, 0.0);
        let Vector { values, steps } = x;
        for (i, (&w, &x)) in row.iter().zip(values).enumerate() {
            let (w, term) = (f64::from(w), f64::from(w) * x);
            (sum, size, squares, least) =
                (sum + term, size + term.abs(), squares + term * term, least + w.abs() + x.abs());
            // A value between two bytes may be rounded to the other byte. Equal values are then all rounded to it.
            otherwise += w.abs() * steps.get(i).copied().unwrap_or(0.0);
        }
        let halves = if self.terms > 0.0 { HALF_STEP * least } else { 0.0 };
        (sum, self.sum * size + self.terms * squares.sqrt() + otherwise + halves)
    }
}

impl Left {
    /// The samples of a rounded half group of the vector that begins at `place`, given its values by row.
    fn samples(
        &self,
        probe: &mut Probe<'_>,
        place: usize,
        vector: usize,
        sums: &[(usize, Sum)],
    ) -> Result<Vec<Sample>> {
        let Some(&(first, _)) = sums.first() else { return Ok(vec![]) };
        let norms = match &self.norm {
            Some(norm) => probe.row(norm, 0, 0)?,
            None => Vec::new(),
        };
        let weight = |row: usize| norms.get(row).map_or(1.0, |&w| f64::from(w));
        let error = |&(row, (_, error)): &(usize, Sum)| error * weight(row).abs();
        let value = |&(row, (value, _)): &(usize, Sum)| value * weight(row);
        let most = sums.iter().map(error).fold(0.0, f64::max);
        let top = sums.iter().map(|sum| value(sum).abs()).fold(0.0, f64::max);
        let at = self.rounded.place_of(vector, place, first);
        let scale = OutputPlace::F32(self.rounded.buffer, at.scale);
        let mut samples = vec![Sample { output: scale, want: top / 127.0, tolerance: (most + 1e-5 * top) / 127.0 }];
        for (i, sum) in sums.iter().enumerate() {
            let output = OutputPlace::Scaled(self.rounded.buffer, at.byte + i, at.scale);
            samples.push(Sample { output, want: value(sum), tolerance: 0.51 * (top + most) / 127.0 + 2.0 * most });
        }
        if self.norm.is_some() {
            let squares = sums.iter().map(|(_, (value, _))| value * value).sum::<f64>();
            let off: f64 = sums.iter().map(|(_, (value, error))| error * (2.0 * value.abs() + error)).sum();
            let output = OutputPlace::F32(self.rounded.buffer, self.rounded.squares_of(vector) + first / HALF);
            samples.push(Sample { output, want: squares, tolerance: off + 1e-5 * squares });
        }
        Ok(samples)
    }
}

impl Reference for Down {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        let [columns, rows, experts] = self.w.shape;
        let mut samples = Vec::new();
        for token in probe.some(probe.count, VECTORS) {
            let ids = probe.words(self.ids, token * self.top_k, self.top_k)?;
            let mut terms = Vec::new();
            for (slot, id) in ids.into_iter().enumerate() {
                terms.push((&self.w, id as usize % experts, self.hidden.vector(probe, token, slot, columns)?));
            }
            terms.push((&self.shared, 0, self.hidden.vector(probe, token, self.top_k, self.shared.shape[0])?));
            let place = start(&self.x, token, 0);
            let mut sums = Vec::new();
            let half = probe.pick(rows / HALF);
            let picked = match self.left {
                Some(_) => (half * HALF..(half + 1) * HALF).collect(),
                None => probe.some(rows, VALUES),
            };
            for row in picked {
                let before = probe.values(self.x.buffer, place + row, 1)?.first().map_or(0.0, |&v| f64::from(v));
                let mut sum = (before, self.errors.sum * before.abs());
                for (w, matrix, x) in &terms {
                    let (value, error) = self.errors.dot(probe, w, *matrix, row, x)?;
                    sum = (sum.0 + value, sum.1 + error);
                }
                samples.push(summed(self.x.buffer, place + row, sum));
                sums.push((row, sum));
            }
            if let Some(left) = &self.left {
                samples.extend(left.samples(probe, place, token, &sums)?);
            }
        }
        Ok(samples)
    }
}

/// A sum as an output.
fn summed(buffer: BufferRef, place: usize, (want, error): Sum) -> Sample {
    Sample { output: OutputPlace::F32(buffer, place), want, tolerance: error + SMALLEST }
}

/// The dot product of row `row` of matrix `matrix` with `x`, and the sum of its terms' magnitudes.
pub(super) fn dot(values: &[f32], shape: [usize; 3], matrix: usize, row: usize, x: &[f64]) -> (f64, f64) {
    let [columns, rows, _] = shape;
    let row = &values[(matrix * rows + row) * columns..][..columns];
    sum_and_size(row, x)
}

/// Σ a · b, and the sum of the terms' magnitudes. Cases spend most of their time in these three loops, which are plain
/// ones because builds with debug assertions check each step of an iterator.
pub(super) fn sum_and_size(a: &[f32], b: &[f64]) -> (f64, f64) {
    let (mut sum, mut size, mut at, end) = (0.0, 0.0, 0, a.len().min(b.len()));
    while at < end {
        let term = a[at] as f64 * b[at];
        sum += term;
        size += term.abs();
        at += 1;
    }
    (sum, size)
}

/// Σ a · b.
pub(super) fn sum_of_products(a: &[f32], b: &[f32]) -> f64 {
    let (mut sum, mut at, end) = (0.0, 0, a.len().min(b.len()));
    while at < end {
        sum += a[at] as f64 * b[at] as f64;
        at += 1;
    }
    sum
}

/// Adds `scale` times `values` to the sums, as many as there are.
pub(super) fn add_scaled(sums: &mut [f64], scale: f64, values: &[f32]) {
    let (mut at, end) = (0, sums.len().min(values.len()));
    while at < end {
        sums[at] += scale * values[at] as f64;
        at += 1;
    }
}

/// The products of every token of x {columns, stacks, tokens} with the rows of a stack of matrices, and the sums of
/// their terms' magnitudes.
pub(super) fn products(values: &[f32], shape: [usize; 3], x: &[f64]) -> Vec<(f64, f64)> {
    let [columns, rows, stacks] = shape;
    let vector = |(i, x): (usize, &[f64])| {
        let x = x.to_vec();
        (0..rows).map(move |row| dot(values, shape, i % stacks, row, &x))
    };
    x.chunks(columns).enumerate().flat_map(vector).collect()
}

/// silu(z) = z / (1 + e^−z).
pub(super) fn silu(z: f64) -> f64 {
    z / (1.0 + (-z).exp())
}

/// silu(gate) · up and the sum of its terms' magnitudes, from two products and the sums of theirs.
pub(super) fn gated(gate: (f64, f64), up: (f64, f64)) -> (f64, f64) {
    (silu(gate.0) * up.0, gate.1 * up.0.abs() + silu(gate.0).abs() * up.1 + gate.1 * up.1 * 1e-6)
}
