//! Products of weights with vectors: of one matrix, of one of a stack, gated, summed over experts.

use super::operand::Vector;
use super::{HALF_ROUNDED, SMALLEST, VALUES, VECTORS, start, within};
use crate::error::Result;
use crate::kernels::Summands;
use crate::kernels::computes::{Down, Errors, MatrixSelection, PartialProduct, Product, SideOutput, Terms};
use crate::kernels::errors::{expert_weights, swiglu};
use crate::kernels::matmul::LARGEST_HALF;
use crate::kernels::matvec::HALF;
use crate::plan::{OutputPlace, Probe, Reference, Sample, Weight};
use crate::quant::{GROUP, Quant};
use std::ops::Add;

/// An expected output.
#[derive(Clone, Copy, Default)]
pub(super) struct Sum {
    pub value: f64,
    /// The largest allowed error of the kernel.
    pub error: f64,
    /// How much it changes if inputs exactly between two bytes are rounded the other way.
    pub rounding: f64,
    /// The sum of the magnitudes of its terms.
    pub size: f64,
}

impl Add for Sum {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            value: self.value + other.value,
            error: self.error + other.error,
            rounding: self.rounding + other.rounding,
            size: self.size + other.size,
        }
    }
}

impl Sum {
    pub(super) fn sample(self, output: OutputPlace) -> Sample {
        let Self { value, error, rounding, size } = self;
        Sample { output, want: value, tolerance: error + SMALLEST, rounding, size }
    }

    /// The same with its value in the range of f16. NaN and infinity, of f32, are left unchanged.
    pub(super) fn in_half_range(self) -> Self {
        let finite = self.value.abs() <= f64::from(f32::MAX);
        Self { value: if finite { self.value.clamp(-LARGEST_HALF, LARGEST_HALF) } else { self.value }, ..self }
    }

    /// The value that an output has before the step adds to it.
    pub(super) fn before(probe: &mut Probe<'_>, output: OutputPlace, errors: Errors) -> Result<Self> {
        let (buffer, place) = output.place();
        let value = probe.values(buffer, place, 1)?.first().map_or(0.0, |&v| f64::from(v));
        Ok(Self { value, error: probe.slack() * errors.sum * value.abs(), rounding: 0.0, size: value.abs() })
    }
}

/// The standard deviation of a product's error if both factors are rounded to f16: at most 2^-11 over the root of three
/// each.
const HALVES: f64 = 4e-4;
/// The largest rounding error of numbers so small that they lose precision in f16.
const HALF_STEP: f64 = 6e-8;

impl MatrixSelection {
    /// The index of a vector's matrix among `matrices`, and the factor on the output with its error; `None` if the
    /// router's choice is close, or if no tile has the slot. `slots` is the number of slots of a token.
    fn matrix(
        &self,
        probe: &mut Probe<'_>,
        (token, slot, slots): (usize, usize, usize),
        matrices: usize,
    ) -> Result<Option<(usize, (f64, f64))>> {
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
                Some((ids[slot], (weights[slot], probe.slack() * errors[slot] * weights[slot].abs())))
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

/// The rows of an output vector to check, in lists: some, or half groups if the output is also written rounded, because
/// a scale is shared.
fn rows_of(probe: &mut Probe<'_>, rows: usize, side_output: Option<&SideOutput>) -> Vec<Vec<usize>> {
    if side_output.is_none() {
        return vec![probe.some(rows, VALUES)];
    }
    let halves = probe.some(rows / HALF, 1).into_iter();
    halves.map(|half| (half * HALF..(half + 1) * HALF).collect()).collect()
}

impl Product {
    /// The value of a row, not including the output's previous value.
    fn value(&self, probe: &mut Probe<'_>, matrix: usize, row: usize, x: &Vector) -> Result<Sum> {
        match &self.terms {
            Terms::One { w, .. } => self.errors.dot(probe, w, matrix, row, x),
            Terms::Gated { gate, up, limit_to_f16 } => {
                let [gate, up] = [gate, up].map(|w| self.errors.dot(probe, w, matrix, row, x));
                let (gate, up) = (gate?, up?);
                // Cases hold gated products to the bound on products alone, which leaves room for silu.
                let off = if probe.picks_all() { 0.0 } else { probe.slack() * swiglu(gate.value) };
                let sum = gated(gate, up, off);
                Ok(if *limit_to_f16 { sum.in_half_range() } else { sum })
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
            let Some((matrix, (factor, off))) =
                self.selection.matrix(probe, (token, first + slot, self.y.per_row()), matrices)?
            else {
                continue;
            };
            let x = self.x.vector(probe, token, (first + slot) * self.x.stacks() / self.y.per_row(), columns)?;
            let place = start(&self.y, token, first + slot);
            for rows in rows_of(probe, rows, self.side_output.as_ref()) {
                let mut sums = Vec::with_capacity(rows.len());
                for row in rows {
                    let output = OutputPlace::F32(self.y.buffer, place + row);
                    let mut sum = self.value(probe, matrix, row, &x)?;
                    if let Terms::One { add: true, .. } = self.terms {
                        sum = sum + Sum::before(probe, output, self.errors)?;
                    }
                    let [error, rounding, size] = [sum.error, sum.rounding, sum.size].map(|it| it * factor.abs());
                    let error = error + off * sum.value.abs();
                    let sum = Sum { value: sum.value * factor, error, rounding, size };
                    samples.push(sum.sample(output));
                    sums.push((row, sum));
                }
                if let Some(side_output) = &self.side_output {
                    samples.extend(side_output.samples(
                        probe,
                        place,
                        token * self.y.per_row() + first + slot,
                        &sums,
                    )?);
                }
            }
        }
        Ok(samples)
    }
}

impl Reference for PartialProduct {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        let Summands { tensor, parts, apart, first } = self.parts;
        let (stacks, sides) = (tensor.per_row(), self.weights.len());
        let [columns, rows, matrices] = self.weights.first().map_or([0; 3], |w| w.shape);
        let steps = self.weights.first().map_or(0, Weight::groups) / self.step;
        let from = |part: usize| (part * steps / parts * self.step * GROUP).min(columns);
        let mut samples = Vec::new();
        for vector in probe.some(probe.count * stacks * parts, VECTORS) {
            let (token, part, stack) = (vector / stacks / parts, vector / stacks % parts, vector % stacks);
            let columns = from(part)..if part + 1 == parts { columns } else { from(part + 1) };
            let x = self.x.vector(probe, token, stack * self.x.stacks() / stacks, columns.end)?;
            let x = Vector { values: x.values[columns.start..].to_vec(), ..x };
            for staged in probe.some(tensor.shape[0], VALUES) {
                let place = first + start(&tensor, token, stack) + part * apart + staged;
                let turn = staged / self.side;
                let (w, row) = match sides {
                    1 => (&self.weights[0], staged),
                    _ => (&self.weights[turn % sides], turn / sides * self.side + staged % self.side),
                };
                if row < rows {
                    let row = probe.row(w, stack % matrices, row)?;
                    let sum = self.errors.dot_of(probe, w.quant, &row[columns.clone()], &x);
                    samples.push(sum.sample(OutputPlace::F32(tensor.buffer, place)));
                }
            }
        }
        Ok(samples)
    }
}

impl Errors {
    /// The product of a row with x.
    fn dot(self, probe: &mut Probe<'_>, w: &Weight, matrix: usize, row: usize, x: &Vector) -> Result<Sum> {
        let row = probe.row(w, matrix, row)?;
        Ok(self.dot_of(probe, w.quant, &row, x))
    }

    /// The product of a row's values with x. Cases spend most of their time in this loop, which is a plain one because
    /// builds with debug assertions check each step of an iterator.
    fn dot_of(self, probe: &Probe<'_>, quant: &Quant, row: &[f32], x: &Vector) -> Sum {
        let (mut value, mut size, mut squares, mut rounding, mut least) = (0.0, 0.0, 0.0, 0.0, 0.0);
        let (mut largest, mut along, mut of_offsets) = (0f64, 0f64, 0.0);
        let (Vector { values, steps }, rounds_scales) = (x, quant.rounds_scales());
        let (mut at, end) = (0, row.len().min(values.len()));
        while at < end {
            let (w, x) = (f64::from(row[at]), values[at]);
            let term = w * x;
            (value, size, squares, least) =
                (value + term, size + term.abs(), squares + term * term, least + w.abs() + x.abs());
            // A value between two bytes may be rounded to the other byte. Equal values are then all rounded to it.
            if at < steps.len() {
                rounding += w.abs() * steps[at];
            }
            (at, largest, along) = (at + 1, largest.max(w.abs()), along + x);
            // A group's offset, which is about as large as its largest value, is multiplied by the sum of its inputs.
            if rounds_scales && (at % GROUP == 0 || at == end) {
                let offset = largest * along.abs();
                (of_offsets, squares, largest, along) = (of_offsets + offset, squares + offset * offset, 0.0, 0.0);
            }
        }
        let of_weights = match (self.halves, probe.picks_all()) {
            (false, _) => 0.0,
            (true, true) if rounds_scales => HALF_ROUNDED * (2.0 * size + 2.0 * of_offsets),
            (true, true) => HALF_ROUNDED * size,
            (true, false) => Self::of_squares(size, squares) + HALF_STEP * least,
        };
        let error = probe.slack() * self.sum * size + of_weights;
        Sum { value, error, rounding, size }
    }

    /// The largest error of a model's sum of terms whose factors are rounded to f16, given the sums of their magnitudes
    /// and of their squares: eight standard deviations, which is more than one term can be off by, plus a share of the
    /// magnitudes, because a weight may be the difference of two rounded ones.
    pub(super) fn of_squares(size: f64, squares: f64) -> f64 {
        HALVES * size + 8.0 * HALVES * squares.sqrt()
    }
}

impl SideOutput {
    /// The samples of a rounded half group of the vector that begins at `place`, given its values by row.
    pub(super) fn samples(
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
        let error = |(row, sum): &(usize, Sum)| (sum.error + sum.rounding) * weight(*row).abs();
        let value = |(row, sum): &(usize, Sum)| sum.value * weight(*row);
        let most = sums.iter().map(error).fold(0.0, f64::max);
        let top = sums.iter().map(|sum| value(sum).abs()).fold(0.0, f64::max);
        // A maximum drops NaN, as does a byte. The kernel passes NaN on in the scale, and so in all values of the half.
        let lost = !sums.iter().all(|sum| (value(sum).abs() + error(sum)) <= f64::from(f32::MAX));
        let top = if lost { f64::NAN } else { top };
        let at = self.rounded.place_of(vector, place, first);
        let scale = OutputPlace::F32(self.rounded.buffer, at.scale);
        let mut samples = vec![within(scale, top / 127.0, (most + 1e-5 * top) / 127.0, top / 127.0)];
        for (i, sum) in sums.iter().enumerate() {
            let output = OutputPlace::Scaled(self.rounded.buffer, at.byte + i, at.scale);
            let rounding = 0.5 * (top + most) / 127.0;
            let tolerance = 0.01 * (top + most) / 127.0 + 2.0 * most;
            let want = if lost { f64::NAN } else { value(sum) };
            samples.push(Sample { output, want, tolerance, rounding, size: top });
        }
        if self.norm.is_some() {
            let squares = sums.iter().map(|(_, sum)| sum.value * sum.value).sum::<f64>();
            let of_square = |sum: &Sum, off: f64| off * (2.0 * sum.value.abs() + off);
            let off: f64 = sums.iter().map(|(_, sum)| of_square(sum, sum.error + sum.rounding)).sum();
            let output = OutputPlace::F32(self.rounded.buffer, self.rounded.squares_of(vector) + first / HALF);
            samples.push(within(output, squares, off + 1e-5 * squares, squares));
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
            for rows in rows_of(probe, rows, self.side_output.as_ref()) {
                let mut sums = Vec::with_capacity(rows.len());
                for row in rows {
                    let output = OutputPlace::F32(self.x.buffer, place + row);
                    let mut sum = Sum::before(probe, output, self.errors)?;
                    for (w, matrix, x) in &terms {
                        sum = sum + self.errors.dot(probe, w, *matrix, row, x)?;
                    }
                    samples.push(sum.sample(output));
                    sums.push((row, sum));
                }
                if let Some(side_output) = &self.side_output {
                    samples.extend(side_output.samples(probe, place, token, &sums)?);
                }
            }
        }
        Ok(samples)
    }
}

/// silu(gate) · up, from two sums. `relative` is the error of the functions, relative to the value.
pub(super) fn gated(gate: Sum, up: Sum, relative: f64) -> Sum {
    let silu = gate.value / (1.0 + (-gate.value).exp());
    let value = silu * up.value;
    let off = |gate: f64, of_up: f64| gate * up.value.abs() + silu.abs() * of_up + gate * of_up * 1e-6;
    let error = off(gate.error, up.error) + relative * value.abs();
    Sum { value, error, rounding: off(gate.rounding, up.rounding), size: off(gate.size, up.size) }
}

#[cfg(test)]
mod tests {
    use super::super::CaseBuilder;
    use super::super::cases::columns_for;
    use super::*;
    use crate::kernels::Input;
    use crate::plan::Target;
    use crate::quant::{Arithmetic, QUANTS};

    /// Cases and the check at load both compare with the reference. So it is compared with a product of its own, of
    /// whole decoded matrices in f64, in every format.
    #[test]
    fn products_are_those_of_whole_matrices() -> Result<()> {
        const ROWS: usize = 5;
        for quant in QUANTS {
            let columns = columns_for(quant, 70);
            let mut case = CaseBuilder::new(&Target { arithmetic: Arithmetic::Float, ..Target::default() }, 1);
            let w = case.weight("w", quant, [columns, ROWS, 2])?;
            let x = case.plan.tensor("x", [columns, 2]);
            let xs = case.noise(columns * 2);
            case.fill(&x, &xs);
            let y = case.plan.mul_mv("product", &w, &Input::from(&x))?;
            let case = case.finish(quant.name);
            let mut ws = vec![0f32; columns * ROWS * 2];
            quant.decode(&case.files[w.id.index()], &mut ws)?;
            let outputs = case.outputs(&case.plan.steps[0], &case.locals)?;
            assert_eq!(outputs.len(), 2 * ROWS, "{}", quant.name);
            for (sample, i) in outputs.iter().zip(0..) {
                let (vector, row) = (i / ROWS, &ws[i * columns..(i + 1) * columns]);
                let terms = row.iter().zip(&xs[vector * columns..]).map(|(w, x)| f64::from(*w) * f64::from(*x));
                let (want, size) = terms.fold((0.0, 0.0), |(sum, size), term: f64| (sum + term, size + term.abs()));
                assert_eq!(sample.output, OutputPlace::F32(y.buffer, vector * y.stride + i % ROWS), "{}", quant.name);
                assert!((sample.want - want).abs() <= 1e-12 * size, "{}: {sample:?}, {want}", quant.name);
                assert!(sample.tolerance <= 1e-5 * size, "{}: {sample:?} of {size}", quant.name);
            }
        }
        Ok(())
    }
}
