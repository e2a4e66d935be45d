//! The references of expanded keys and values, and of attention over them. Both start from the latents.

use super::attention::{Weights, are_numbers, kv_rows};
use super::{MEANS, VALUES, VECTORS, any, exact, half_step, start};
use crate::error::Result;
use crate::kernels::Cache;
use crate::kernels::computes::{Errors, ExpandedAttention, ExpandedKv};
use crate::plan::{OutputPlace, Probe, Reference, Sample, Weight};

/// The KV rows after the last one are copies of it, up to a multiple of this number.
const COPIED: usize = 16;

impl Reference for ExpandedKv {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        let Cache { rank, rotary, .. } = self.cache;
        let ([nope, _, heads], width) = (self.k_b.shape, self.v_b.shape[1]);
        let live = self.rows.end.min(probe.position + probe.count).saturating_sub(self.rows.start);
        let rows = live.next_multiple_of(COPIED);
        let mut samples = Vec::new();
        for vector in probe.some(heads * rows, VECTORS) {
            let (head, row) = (vector / rows, vector % rows);
            let at = self.rows.start + row.min(live - 1);
            let kv_rows = kv_rows(probe, &self.cache, 0, at..at + 1)?;
            let Some(latent) = kv_rows.first() else { continue };
            let first = (head * self.rows.len() + row) * (nope + rotary + width);
            let keys = columns(probe, &self.k_b, head)?;
            for n in probe.some(nope, VALUES) {
                let terms = keys.iter().zip(latent).map(|(k, l)| f64::from(k[n]) * l);
                samples.push(self.sum(probe, first + n, terms));
            }
            for n in probe.some(rotary, VALUES) {
                samples.push(exact(OutputPlace::F16(self.to, first + nope + n), latent[rank + n]));
            }
            for n in probe.some(width, VALUES) {
                let values = probe.row(&self.v_b, head, n)?;
                let terms = values.iter().zip(latent).map(|(v, l)| f64::from(*v) * l);
                samples.push(self.sum(probe, first + nope + rotary + n, terms));
            }
        }
        Ok(samples)
    }
}

impl ExpandedKv {
    /// The sum of some terms as an output.
    fn sum(&self, probe: &Probe<'_>, place: usize, terms: impl Iterator<Item = f64>) -> Sample {
        let (mut want, mut size, mut squares) = (0.0, 0.0, 0.0);
        for term in terms {
            (want, size, squares) = (want + term, size + term.abs(), squares + term * term);
        }
        let (tolerance, rounding) = match probe.picks_all() {
            true => (self.bound * size, half_step(want)),
            false => (Errors::of_squares(size, squares), 0.0),
        };
        Sample { output: OutputPlace::F16(self.to, place), want, tolerance, rounding, size }
    }
}

/// All rows of a head's matrix.
fn columns(probe: &mut Probe<'_>, w: &Weight, head: usize) -> Result<Vec<Vec<f32>>> {
    (0..w.shape[1]).map(|row| probe.row(w, head, row)).collect()
}

impl Reference for ExpandedAttention {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        let [nope, rank, heads] = self.k_b.shape;
        let kv_rows = kv_rows(probe, &self.cache, 0, 0..probe.position + probe.count)?;
        let mut samples = Vec::new();
        for vector in probe.some(probe.count * heads, VECTORS) {
            let (token, head) = (vector / heads, vector % heads);
            let last = ((token / self.together + 1) * self.together).min(probe.count) - 1;
            let end = probe.position + last + 1; // of the KV rows that the rows of this group attend to
            if probe.picks_all() && end > self.segment.end {
                let place = start(&self.y, token, head);
                samples.extend((0..self.v_b.shape[1]).map(|n| any(OutputPlace::F32(self.y.buffer, place + n))));
            }
            let (seen, unseen) = kv_rows.split_at(probe.position + token + 1);
            if !(self.segment.start + 1..=self.segment.end).contains(&end) || !are_numbers(unseen) {
                continue;
            }
            let q = probe.values(self.q.buffer, start(&self.q, token, head), nope)?;
            let absorbed = columns(probe, &self.k_b, head)?;
            let dot = |row: &Vec<f32>| row.iter().zip(&q).map(|(k, q)| f64::from(*k) * f64::from(*q)).sum();
            let mut query: Vec<f64> = absorbed.iter().map(dot).collect();
            let rotated = probe.values(self.rotated.buffer, start(&self.rotated, token, head), self.cache.rotary)?;
            query.extend(rotated.into_iter().map(f64::from));
            let weights = Weights::of(&query, seen, self.scale);
            let latent = weights.means(seen, rank);
            for n in probe.some(self.v_b.shape[1], MEANS) {
                let values = probe.row(&self.v_b, head, n)?;
                let terms =
                    || values.iter().zip(&latent).map(|(v, (mean, size))| (f64::from(*v) * mean, f64::from(*v) * size));
                let want = terms().map(|(value, _)| value).sum();
                let size = terms().map(|(_, size)| size * size).sum::<f64>().sqrt();
                let output = OutputPlace::F32(self.y.buffer, start(&self.y, token, head) + n);
                let usual = (rank as f64).sqrt();
                samples.push(weights.sample(probe, output, (want, size), (usual, self.bound)));
            }
        }
        Ok(samples)
    }
}
