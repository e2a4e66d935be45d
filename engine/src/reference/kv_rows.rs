//! The references of steps that rotate pairs of values by rotary angles: in queries, and in KV rows of the cache.

use super::vectors::{rms_normed_sums, summed};
use super::{HALF_ROUNDED, SMALLEST, VALUES, VECTORS, exact, half_step, sample, start};
use crate::error::Result;
use crate::kernels::computes::{KvRows, RotatedQueries};
use crate::kernels::errors::{NORMED, SUM};
use crate::kernels::kv_blocks::{BLOCK, BlockRow};
use crate::kernels::{Cache, CacheType};
use crate::plan::{OutputPlace, Probe, Reference, Sample};

/// The pair (a, b) rotated, each a value and the sum of the magnitudes of its terms.
fn rotated([a, b]: [(f32, f64); 2], rotation: [f32; 2]) -> [(f64, f64); 2] {
    let [c, s] = rotation.map(f64::from);
    let times = |(value, size): (f32, f64), factor: f64| (f64::from(value) * factor, size * factor.abs());
    [(times(a, c), times(b, -s)), (times(a, s), times(b, c))].map(|(one, other)| (one.0 + other.0, one.1 + other.1))
}

/// The largest error of numbers so small that they lose precision in f16.
const SUBNORMAL_F16_ERROR: f64 = 4e-7;
/// The error of a value of a rotated pair, relative to the magnitudes of its two terms: it is rounded twice, which is
/// 1.2e-7.
const ROTATED: f64 = 4e-7;

impl Reference for RotatedQueries {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        let mut samples = Vec::new();
        for vector in probe.some(probe.count * self.q.per_row(), VECTORS) {
            let (token, head) = (vector / self.q.per_row(), vector % self.q.per_row());
            let from = start(&self.q, token, head) + self.q.shape[0] - self.rotary;
            let pairs = probe.values(self.q.buffer, from, self.rotary)?;
            let rotations = probe.rotations(token)?;
            let to = start(&self.y, token, head) + self.y.shape[0] - self.rotary;
            for pair in probe.some(self.rotary / 2, VALUES) {
                let values = [pairs[2 * pair], pairs[2 * pair + 1]].map(|value| (value, f64::from(value.abs())));
                for (side, (want, size)) in rotated(values, rotations[pair]).into_iter().enumerate() {
                    let output = OutputPlace::F32(self.y.buffer, to + 2 * pair + side);
                    samples.push(sample(probe, output, want, size, ROTATED));
                }
            }
        }
        Ok(samples)
    }
}

impl Reference for KvRows {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        let Cache { rank, rotary, .. } = self.cache;
        let weights = probe.row(&self.norm.weight, 0, 0)?;
        let mut samples = Vec::new();
        for token in probe.some(probe.count, VECTORS) {
            let kv = summed(probe, &self.kv, (token, 0), 0, rank + rotary)?;
            let latent = rms_normed_sums(&kv[..rank], &weights, self.norm.epsilon);
            let kv: Vec<(f32, f64)> = kv.into_iter().map(|(value, size)| (value as f32, size)).collect();
            let place = probe.kv_index(0, probe.position + token)?;
            for value in probe.some(rank, VALUES) {
                samples.push(self.latent(probe, place, value, &latent));
            }
            let rotations = probe.rotations(token)?;
            for pair in probe.some(rotary / 2, VALUES) {
                let values = [kv[rank + 2 * pair], kv[rank + 2 * pair + 1]];
                for (side, (want, size)) in rotated(values, rotations[pair]).into_iter().enumerate() {
                    let error = probe.slack() * (SUM + ROTATED) * size;
                    samples.push(self.value(probe, place, rank + 2 * pair + side, want, error));
                }
            }
            for at in rank + rotary..(rank + rotary).next_multiple_of(4) {
                samples.push(exact(self.output(place, at), 0.0)); // writes are in whole chunks
            }
        }
        Ok(samples)
    }
}

impl KvRows {
    /// A value of the latent of the KV row at an index in the pool.
    fn latent(&self, probe: &Probe<'_>, place: usize, at: usize, latent: &[(f64, f64)]) -> Sample {
        let Cache { buffer, ty, rank, rotary } = self.cache;
        let (want, size) = latent[at];
        if ty != CacheType::Q8_0 {
            return self.value(probe, place, at, want, probe.slack() * WRITTEN * size);
        }
        let row = BlockRow { rank, rotary };
        let block = &latent[at / BLOCK * BLOCK..][..BLOCK];
        let (top, size) = block.iter().fold((0.0, 0.0), |(top, most), (v, size)| (v.abs().max(top), size.max(most)));
        let start = place * row.bytes();
        let output = OutputPlace::Block(buffer, start + row.byte(at), (start + row.scale(at)) / 2);
        let rounding = IN_BLOCK * top + if probe.picks_all() { 0.0 } else { SUBNORMAL_F16_ERROR };
        Sample { output, want, tolerance: probe.slack() * WRITTEN * size, rounding, size }
    }

    /// A value, not of a block, of the KV row at an index in the pool, which is off by at most `error` before it is
    /// rounded to the type of the cache.
    fn value(&self, probe: &Probe<'_>, place: usize, at: usize, want: f64, error: f64) -> Sample {
        let rounding = match (self.cache.ty, probe.picks_all()) {
            (CacheType::F32, _) => 0.0,
            (_, true) => half_step(want),
            (_, false) => HALF_ROUNDED * want.abs() + SUBNORMAL_F16_ERROR,
        };
        let (output, size) = (self.output(place, at), want.abs().max(1.0));
        Sample { output, want, tolerance: error + SMALLEST, rounding, size }
    }

    /// The place of such a value.
    fn output(&self, place: usize, at: usize) -> OutputPlace {
        let Cache { buffer, ty, rank, rotary } = self.cache;
        let row = BlockRow { rank, rotary };
        match ty {
            CacheType::F16 => OutputPlace::F16(buffer, place * Cache::row_values(rank, rotary) + at),
            CacheType::F32 => OutputPlace::F32(buffer, place * Cache::row_values(rank, rotary) + at),
            CacheType::Q8_0 => OutputPlace::F16(buffer, (place * row.bytes() + row.keys()) / 2 + at - rank),
        }
    }
}

/// The largest error of rounding a value of a block, relative to the largest magnitude there: half a step, which may be
/// longer because the scale is rounded up to f16.
const IN_BLOCK: f64 = (1.0 + HALF_ROUNDED) / 254.0;
/// The largest error of values of a latent, which are normalised sums, before they are rounded to the type of the
/// cache.
const WRITTEN: f64 = SUM + NORMED;
