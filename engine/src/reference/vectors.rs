//! The references of steps that change or copy vectors without a product.

use super::product::{Sum, gated};
use super::{VALUES, VECTORS, exact, sample, start};
use crate::error::Result;
use crate::kernels::computes::{
    Copied, EmbeddingRows, Errors, LastToken, Normed, SideOutput, SumNormed, Summed, WeightedSum, WordSums,
};
use crate::kernels::errors::{NORMED, SUM, swiglu};
use crate::kernels::matvec::HALF;
use crate::kernels::weight_sum::{TILE, factors};
use crate::kernels::{Norm, Summands};
use crate::plan::{BufferRef, OutputPlace, Probe, Reference, RowHeader, Sample};

/// x / sqrt(mean(x²) + epsilon) · weight, in f64. Zeros may follow the vector.
pub(super) fn rms_normed(x: &[f32], weight: &[f32], epsilon: f32) -> Vec<f64> {
    let scale = norm_factor(x.iter().map(|&v| f64::from(v).powi(2)).sum(), weight.len(), epsilon);
    x.iter().zip(weight).map(|(&x, &w)| f64::from(x) * scale * f64::from(w)).collect()
}

/// The same for values that are sums, each with the sum of the magnitudes of its terms, which is scaled like the value.
pub(super) fn rms_normed_sums(sums: &[(f64, f64)], weight: &[f32], epsilon: f32) -> Vec<(f64, f64)> {
    let squares = sums.iter().map(|(sum, _)| f64::from(*sum as f32).powi(2)).sum();
    let factor = norm_factor(squares, weight.len(), epsilon);
    let normed = |((sum, size), w): (&(f64, f64), &f32)| {
        let factor = factor * f64::from(*w);
        (f64::from(*sum as f32) * factor, size * factor.abs())
    };
    sums.iter().zip(weight).map(normed).collect()
}

/// What a norm multiplies a vector of `width` values with, given the sum of their squares.
pub(super) fn norm_factor(squares: f64, width: usize, epsilon: f32) -> f64 {
    1.0 / (squares / width as f64 + f64::from(epsilon)).sqrt()
}

impl Reference for EmbeddingRows {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        let [columns, rows, _] = self.embedding.shape;
        let mut samples = Vec::new();
        for token in probe.some(probe.count, VECTORS) {
            let header = probe.row_header(token)?;
            let named = if self.next { header.next } else { header.token };
            let id = probe.token(&RowHeader { token: named, ..header })? as usize;
            let row = probe.row(&self.embedding, 0, id.min(rows - 1))?;
            let largest = row.iter().fold(0f64, |most, v| most.max(f64::from(v.abs())));
            for value in probe.some(columns, VALUES) {
                let output = OutputPlace::F32(self.y.buffer, token * self.y.stride + value);
                samples.push(sample(probe, output, f64::from(row[value]), largest, 1e-6));
            }
        }
        Ok(samples)
    }
}

/// The samples of a vector, which begins at an index of a buffer, normalised to a place of another.
pub(super) fn normed(
    probe: &mut Probe<'_>,
    (x, from): (BufferRef, usize),
    norm: &Norm,
    (y, to): (BufferRef, usize),
) -> Result<Vec<Sample>> {
    let (width, weights) = (norm.weight.shape[0], probe.row(&norm.weight, 0, 0)?);
    let want = rms_normed(&probe.values(x, from, width)?, &weights, norm.epsilon);
    let values = probe.some(width, VALUES).into_iter();
    let of = |value: usize| sample(probe, OutputPlace::F32(y, to + value), want[value], want[value].abs(), NORMED);
    Ok(values.map(of).collect())
}

/// The samples of some rounded halves of groups of a vector, which is normalised and begins at `to` in the output.
fn side_output_samples(
    probe: &mut Probe<'_>,
    (x, from): (BufferRef, usize),
    norm: &Norm,
    (side_output, vector, to): (&SideOutput, usize, usize),
) -> Result<Vec<Sample>> {
    let (width, weights) = (norm.weight.shape[0], probe.row(&norm.weight, 0, 0)?);
    let want = rms_normed(&probe.values(x, from, width)?, &weights, norm.epsilon);
    let mut samples = Vec::new();
    for half in probe.some(width / HALF, 1) {
        let sum = |row: usize| {
            let (value, size) = (want[row], want[row].abs());
            (row, Sum { value, error: probe.slack() * NORMED * size, rounding: 0.0, size })
        };
        let sums: Vec<(usize, Sum)> = (half * HALF..(half + 1) * HALF).map(sum).collect();
        samples.extend(side_output.samples(probe, to, vector, &sums)?);
    }
    Ok(samples)
}

impl Reference for Normed {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        let (x, y, mut samples) = (&self.x, &self.y, Vec::new());
        for token in probe.some(probe.count, VECTORS) {
            let (from, to) = ((x.buffer, token * x.stride), (y.buffer, token * y.stride));
            samples.extend(normed(probe, from, &self.norm, to)?);
            if let Some(side_output) = &self.side_output {
                samples.extend(side_output_samples(probe, from, &self.norm, (side_output, token, to.1))?);
            }
        }
        Ok(samples)
    }
}

/// The sums of the parts of some values of a vector, and of their magnitudes.
pub(super) fn summed(
    probe: &mut Probe<'_>,
    parts: &Summands,
    (token, stack): (usize, usize),
    first: usize,
    count: usize,
) -> Result<Vec<(f64, f64)>> {
    let mut sums = vec![(0.0, 0.0); count];
    for part in 0..parts.parts {
        let place = parts.first + start(&parts.tensor, token, stack) + part * parts.apart + first;
        let values = probe.values(parts.tensor.buffer, place, count)?;
        for ((sum, size), value) in sums.iter_mut().zip(values) {
            (*sum, *size) = (*sum + f64::from(value), *size + f64::from(value.abs()));
        }
    }
    Ok(sums)
}

impl Reference for Summed {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        let (stacks, mut samples) = (self.y.per_row(), Vec::new());
        for vector in probe.some(probe.count * stacks, VECTORS) {
            let at = (vector / stacks, vector % stacks);
            for value in probe.some(self.y.shape[0], VALUES) {
                let place = start(&self.y, at.0, at.1) + value;
                let output = OutputPlace::F32(self.y.buffer, place);
                let mut one = |value: usize| -> Result<Sum> {
                    let (value, size) = summed(probe, &self.parts, at, value, 1)?[0];
                    Ok(Sum { value, error: probe.slack() * SUM * size, rounding: 0.0, size })
                };
                let mut sum = match self.side {
                    Some(side) => {
                        let gate = value / side * 2 * side + value % side;
                        let [gate, up] = [one(gate)?, one(gate + side)?];
                        let sum = gated(gate, up, probe.slack() * swiglu(gate.value));
                        if self.limit_to_f16 { sum.in_half_range() } else { sum }
                    }
                    None => one(value)?,
                };
                if self.add {
                    sum = sum + Sum::before(probe, output, Errors::of_sums(SUM))?;
                }
                samples.push(sum.sample(output));
            }
        }
        Ok(samples)
    }
}

impl Reference for SumNormed {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        let weights = probe.row(&self.norm.weight, 0, 0)?;
        let (width, mut samples) = (self.x.shape[0], Vec::new());
        for token in probe.some(probe.count, VECTORS) {
            let mut sums = summed(probe, &self.parts, (token, 0), 0, width)?;
            let mut join = |values: Vec<f32>, weight: f64| {
                for ((sum, size), value) in sums.iter_mut().zip(values) {
                    let term = weight * f64::from(value);
                    (*sum, *size) = (*sum + term, *size + term.abs());
                }
            };
            if self.add {
                join(probe.values(self.x.buffer, start(&self.x, token, 0), width)?, 1.0);
            }
            if let Some((weights, y)) = &self.slots {
                let top_k = weights.shape[0];
                let first = y.per_row() - top_k;
                for (weight, slot) in probe.values(weights.buffer, token * top_k, top_k)?.into_iter().zip(first..) {
                    join(probe.values(y.buffer, start(y, token, slot), width)?, f64::from(weight));
                }
            }
            let normed = rms_normed_sums(&sums, &weights, self.norm.epsilon);
            for value in probe.some(width, VALUES) {
                let (sum, size) = sums[value];
                let of_x = OutputPlace::F32(self.x.buffer, start(&self.x, token, 0) + value);
                samples.push(sample(probe, of_x, sum, size, SUM));
                let (want, size) = normed[value];
                let output = OutputPlace::F32(self.h.buffer, start(&self.h, token, 0) + value);
                samples.push(sample(probe, output, want, size, SUM + NORMED));
            }
        }
        Ok(samples)
    }
}

impl Reference for Copied {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        let places = probe.some(self.x.shape[0], VALUES);
        copied(probe, (self.x.buffer, 0), self.y.buffer, &places)
    }
}

impl Reference for LastToken {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        let places = probe.some(self.x.shape[0], VALUES);
        let last = start(&self.x, probe.count.saturating_sub(1), 0);
        copied(probe, (self.x.buffer, last), self.y.buffer, &places)
    }
}

/// The samples of values that are copied, beginning at an index.
fn copied(probe: &mut Probe<'_>, (x, from): (BufferRef, usize), y: BufferRef, places: &[usize]) -> Result<Vec<Sample>> {
    let mut samples = Vec::new();
    for &place in places {
        let values = probe.values(x, from + place, 1)?;
        samples.extend(values.first().map(|&value| exact(OutputPlace::F32(y, place), f64::from(value))));
    }
    Ok(samples)
}

impl Reference for WeightedSum {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        let slots = self.y.per_row();
        let mut samples = Vec::new();
        for token in probe.some(probe.count, VECTORS) {
            let weights = probe.values(self.weights, token * slots, slots)?;
            for value in probe.some(self.x.shape[0], VALUES) {
                let place = start(&self.x, token, 0) + value;
                let mut terms = probe.values(self.x.buffer, place, 1)?.into_iter().map(f64::from).collect::<Vec<_>>();
                for (slot, weight) in weights.iter().enumerate() {
                    let y = probe.values(self.y.buffer, start(&self.y, token, slot) + value, 1)?;
                    terms.extend(y.first().map(|&y| f64::from(*weight) * f64::from(y)));
                }
                let size = terms.iter().map(|term| term.abs()).sum();
                samples.push(sample(probe, OutputPlace::F32(self.x.buffer, place), terms.iter().sum(), size, SUM));
            }
        }
        Ok(samples)
    }
}

impl Reference for WordSums {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        let words = probe.words(self.words, self.range.start, self.range.len())?;
        let mut pair = probe.words(self.sums, 2 * self.place, 2)?;
        for (word, at) in words.iter().zip(self.range.clone()) {
            for (sum, [first, step]) in pair.iter_mut().zip(factors((at / TILE) as u32)) {
                let factor = first.wrapping_add(step.wrapping_mul((at % TILE) as u32));
                *sum = sum.wrapping_add(word.wrapping_mul(factor));
            }
        }
        let places = pair.into_iter().zip(2 * self.place..);
        Ok(places.map(|(sum, place)| exact(OutputPlace::U32(self.sums, place), f64::from(sum))).collect())
    }
}
