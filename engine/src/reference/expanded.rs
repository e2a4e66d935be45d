//! The references of expanded keys and values, and of attention over them. Both start from the latents.

use super::attention::{kv_rows, mean, scores};
use super::{VALUES, VECTORS, start};
use crate::error::Result;
use crate::kernels::Cache;
use crate::kernels::computes::{Errors, ExpandedAttention, ExpandedKv};
use crate::plan::{OutputPlace, Probe, Reference, Sample, Weight};

/// A sum, and its largest allowed error.
fn sum(terms: impl Iterator<Item = f64>) -> (f64, f64) {
    let (mut sum, mut size, mut squares) = (0.0, 0.0, 0.0);
    for term in terms {
        (sum, size, squares) = (sum + term, size + term.abs(), squares + term * term);
    }
    let errors = Errors::of_halves();
    (sum, errors.sum * size + errors.terms * squares.sqrt())
}

impl Reference for ExpandedKv {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        let Cache { rank, rotary, .. } = self.cache;
        let ([nope, _, heads], width) = (self.k_b.shape, self.v_b.shape[1]);
        let live = self.rows.end.min(probe.position + probe.count).saturating_sub(self.rows.start);
        let mut samples = Vec::new();
        for vector in probe.some(heads * live, VECTORS) {
            let (head, row) = (vector / live, vector % live);
            let kv_rows = kv_rows(probe, &self.cache, self.rows.start + row..self.rows.start + row + 1)?;
            let Some(latent) = kv_rows.first() else { continue };
            let first = (head * self.rows.len() + row) * (nope + rotary + width);
            let keys = columns(probe, &self.k_b, head)?;
            for n in probe.some(nope, VALUES) {
                let (want, tolerance) = sum(keys.iter().zip(latent).map(|(k, l)| f64::from(k[n]) * l));
                samples.push(Sample { output: OutputPlace::F16(self.to, first + n), want, tolerance });
            }
            for n in probe.some(rotary, VALUES) {
                let output = OutputPlace::F16(self.to, first + nope + n);
                samples.push(Sample { output, want: latent[rank + n], tolerance: 0.0 });
            }
            for n in probe.some(width, VALUES) {
                let values = probe.row(&self.v_b, head, n)?;
                let (want, tolerance) = sum(values.iter().zip(latent).map(|(v, l)| f64::from(*v) * l));
                samples.push(Sample { output: OutputPlace::F16(self.to, first + nope + rotary + n), want, tolerance });
            }
        }
        Ok(samples)
    }
}

/// All rows of a head's matrix.
fn columns(probe: &mut Probe<'_>, w: &Weight, head: usize) -> Result<Vec<Vec<f32>>> {
    (0..w.shape[1]).map(|row| probe.row(w, head, row)).collect()
}

impl Reference for ExpandedAttention {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        let [nope, rank, heads] = self.k_b.shape;
        let mut samples = Vec::new();
        for vector in probe.some(probe.count * heads, VECTORS) {
            let (token, head) = (vector / heads, vector % heads);
            let last = ((token / self.together + 1) * self.together).min(probe.count) - 1;
            let end = probe.position + last + 1; // of the KV rows that the rows of this group attend to
            if !(self.segment.start + 1..=self.segment.end).contains(&end) {
                continue;
            }
            let q = probe.values(self.q.buffer, start(&self.q, token, head), nope)?;
            let absorbed = columns(probe, &self.k_b, head)?;
            let dot = |row: &Vec<f32>| row.iter().zip(&q).map(|(k, q)| f64::from(*k) * f64::from(*q)).sum();
            let mut query: Vec<f64> = absorbed.iter().map(dot).collect();
            let rotated = probe.values(self.rotated.buffer, start(&self.rotated, token, head), self.cache.rotary)?;
            query.extend(rotated.into_iter().map(f64::from));
            let kv_rows = kv_rows(probe, &self.cache, 0..probe.position + token + 1)?;
            let scores = scores(&query, &kv_rows, self.scale);
            let latent: Vec<_> = (0..rank).map(|c| mean(&scores.values, &kv_rows, c)).collect();
            for n in probe.some(self.v_b.shape[1], VALUES) {
                let values = probe.row(&self.v_b, head, n)?;
                let terms =
                    || values.iter().zip(&latent).map(|(v, (mean, size))| (f64::from(*v) * mean, f64::from(*v) * size));
                let want = terms().map(|(value, _)| value).sum();
                let size = terms().map(|(_, size)| size * size).sum::<f64>().sqrt();
                let output = OutputPlace::F32(self.y.buffer, start(&self.y, token, head) + n);
                samples.push(super::sample(output, want, size * (1.0 + scores.spread), self.bound));
            }
        }
        Ok(samples)
    }
}
