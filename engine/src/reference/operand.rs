//! The vectors of products, as the products read them.

use super::start;
use super::vectors::{norm_factor, rms_normed};
use crate::error::Result;
use crate::kernels::Rounded;
use crate::kernels::computes::{Operand, ProductInput};
use crate::kernels::matvec::HALF;
use crate::kernels::rounded::WORDS;
use crate::plan::Probe;
use crate::quant::{Arithmetic, GROUP};
use half::f16;

/// The largest error of values in f32 that a product rounds to bytes, with or without a norm.
const COMPUTED: f64 = 4e-6;
/// The same for values that are merged from the splits of attention.
const JOINED: f64 = 4e-5;

/// Values as a product reads them.
pub(super) struct Vector {
    pub values: Vec<f64>,
    /// For each value, how far it moves if the GPU rounds it to the other byte: 0 unless it is halfway between two.
    /// Empty if the step that multiplies the values does not round them.
    pub steps: Vec<f64>,
}

impl Operand {
    /// The number of vectors of a token. Each is the input of the same number of the output's.
    pub(super) fn stacks(&self) -> usize {
        match self {
            Self::Vectors(input) => input.x.per_row(),
            Self::Merged(merged, _) => merged.heads,
        }
    }

    /// The first `columns` values of a vector.
    pub(super) fn vector(&self, probe: &mut Probe<'_>, token: usize, stack: usize, columns: usize) -> Result<Vector> {
        match self {
            Self::Vectors(input) => input.vector(probe, token, stack, columns),
            Self::Merged(merged, arithmetic) => {
                let values: Vec<f64> =
                    merged.vector(probe, token, stack)?.into_iter().map(|(value, _)| value).collect();
                Ok(Vector::of(values, *arithmetic, JOINED))
            }
        }
    }
}

impl Vector {
    /// The operands of a product in this arithmetic, from values that may each be off by `error`, relative to the
    /// largest one with the same scale.
    fn of(values: Vec<f64>, arithmetic: Arithmetic, error: f64) -> Self {
        if arithmetic == Arithmetic::Float {
            return Self { values, steps: vec![] };
        }
        let mut vector = Self { values: Vec::with_capacity(values.len()), steps: Vec::with_capacity(values.len()) };
        for half in values.chunks(HALF) {
            let step = half.iter().fold(0f64, |most, v| most.max(v.abs())) / 127.0;
            let between = |v: &f64| ((v / step).abs().fract() - 0.5).abs() <= 127.0 * error;
            let inverse = if step > 0.0 { 1.0 / step } else { 0.0 };
            vector.values.extend(half.iter().map(|v| (v * inverse).round_ties_even() * step));
            vector.steps.extend(half.iter().map(|v| if between(v) { step } else { 0.0 }));
        }
        vector
    }
}

impl ProductInput {
    /// The first `columns` values of a vector.
    pub(super) fn vector(&self, probe: &mut Probe<'_>, token: usize, stack: usize, columns: usize) -> Result<Vector> {
        if let Some(rounded) = &self.rounded {
            return self.dequantised(rounded, probe, token * self.x.per_row() + stack, columns);
        }
        let values = self.unrounded(probe, token, stack, columns)?;
        let mut values: Vec<f64> = match &self.norm {
            Some(norm) => rms_normed(&values, &probe.row(&norm.weight, 0, 0)?, norm.epsilon),
            None => values.into_iter().map(f64::from).collect(),
        };
        if self.halves {
            values.iter_mut().for_each(|v| *v = f16::from_f64(*v).to_f64());
        }
        Ok(Vector::of(values, self.arithmetic, COMPUTED))
    }

    /// The values as the tensor has them. A product reads whole groups, and multiplies what follows the last column
    /// with zeros. If any of that is not a number, neither is the product, and neither is the last value returned here.
    fn unrounded(&self, probe: &mut Probe<'_>, token: usize, stack: usize, columns: usize) -> Result<Vec<f32>> {
        let first = start(&self.x, token, stack);
        let end = (self.x.bytes() as usize / 4).min(first + columns.next_multiple_of(GROUP));
        let mut values = probe.values(self.x.buffer, first, columns.max(end.saturating_sub(first)))?;
        let following: f32 = values.split_off(columns.min(values.len())).into_iter().map(|value| 0.0 * value).sum();
        if let Some(last) = values.last_mut() {
            *last += following;
        }
        Ok(values)
    }

    /// A vector that the previous step wrote rounded, times the weights of its norm if it has one.
    fn dequantised(&self, rounded: &Rounded, probe: &mut Probe<'_>, vector: usize, columns: usize) -> Result<Vector> {
        let first = rounded.start_of(vector, self.x.stride);
        let words = probe.words(rounded.buffer, first, columns.div_ceil(GROUP) * WORDS)?;
        let mut values: Vec<f64> = words.chunks_exact(WORDS).flat_map(group).collect();
        values.truncate(columns);
        if let Some(norm) = &self.norm {
            let place = rounded.squares_of(vector);
            let squares = probe.values(rounded.buffer, place, columns.div_ceil(GROUP / 2))?;
            let squares = squares.into_iter().map(f64::from).sum();
            let factor = norm_factor(squares, norm.weight.shape[0], norm.epsilon);
            values.iter_mut().for_each(|v| *v *= factor);
        }
        Ok(Vector { values, steps: vec![] })
    }
}

/// The values of a group of words.
fn group(words: &[u32]) -> impl Iterator<Item = f64> {
    let value = |i: usize| {
        let byte = (words[i / 4] >> (8 * (i % 4))) as u8 as i8;
        f64::from(byte) * f64::from(f32::from_bits(words[8 + i / (GROUP / 2)]))
    };
    (0..GROUP).map(value).collect::<Vec<_>>().into_iter()
}
