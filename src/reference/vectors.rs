//! The references of steps that change or copy vectors without a product.

use super::{VALUES, VECTORS, exact, sample, start};
use crate::error::Result;
use crate::kernels::computes::{Copied, EmbeddingRows, LastToken, Normed, WeightedSum};
use crate::plan::{BufferRef, OutputPlace, Probe, Reference, RowHeader, Sample};

/// x / sqrt(mean(x²) + epsilon) · weight, of vector after vector, in f64.
pub(super) fn rms_normed(x: &[f32], weight: &[f32], epsilon: f32) -> Vec<f64> {
    let normed = |x: &[f32]| {
        let mean = x.iter().map(|&v| (v as f64).powi(2)).sum::<f64>() / x.len() as f64;
        let scale = 1.0 / (mean + epsilon as f64).sqrt();
        x.iter().zip(weight).map(|(&x, &w)| x as f64 * scale * w as f64).collect::<Vec<f64>>()
    };
    x.chunks(weight.len()).flat_map(normed).collect()
}

impl Reference for EmbeddingRows {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        let [columns, rows, _] = self.embedding.shape;
        let mut samples = Vec::new();
        for token in probe.some(probe.count, VECTORS) {
            let header = probe.row_header(token, self.pairs)?;
            let named = if self.next { header.next } else { header.token };
            let id = probe.token(&RowHeader { token: named, ..header })? as usize;
            let row = probe.row(&self.embedding, 0, id.min(rows - 1))?;
            let largest = row.iter().fold(0f64, |most, v| most.max(f64::from(v.abs())));
            for value in probe.some(columns, VALUES) {
                let output = OutputPlace::F32(self.y.buffer, token * self.y.stride + value);
                samples.push(sample(output, f64::from(row[value]), largest, 1e-6));
            }
        }
        Ok(samples)
    }
}

impl Reference for Normed {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        let weights = probe.row(&self.weight, 0, 0)?;
        let width = self.x.shape[0];
        let mut samples = Vec::new();
        for token in probe.some(probe.count, VECTORS) {
            let x = probe.values(self.x.buffer, token * self.x.stride, width)?;
            let want = rms_normed(&x, &weights, self.epsilon);
            for value in probe.some(width, VALUES) {
                let output = OutputPlace::F32(self.y.buffer, token * self.y.stride + value);
                samples.push(sample(output, want[value], want[value].abs(), 2e-6));
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

/// Values copied from a place on.
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
                samples.push(sample(OutputPlace::F32(self.x.buffer, place), terms.iter().sum(), size, 1e-6));
            }
        }
        Ok(samples)
    }
}
