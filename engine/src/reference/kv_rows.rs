//! The references of steps that rotate pairs of values by rotary angles: in queries, and in KV rows of the cache.

use super::vectors::{rms_normed, summed};
use super::{VALUES, VECTORS, start};
use crate::error::Result;
use crate::kernels::computes::{KvRows, RotatedQueries, SLACK};
use crate::kernels::errors::{NORMED, SUM};
use crate::kernels::kv_blocks::{BLOCK, BlockRow};
use crate::kernels::{Cache, CacheType};
use crate::plan::{OutputPlace, Probe, Reference, Sample};

/// The cosines and sines of `pairs` angles at a position, base 10000.
pub(super) fn rotations(position: u32, pairs: usize) -> Vec<[f32; 2]> {
    let angle = |i: usize| position as f64 * 10000f64.powf(-(i as f64) / pairs as f64);
    (0..pairs).map(|i| [angle(i).cos() as f32, angle(i).sin() as f32]).collect()
}

/// The pair (a, b) rotated.
pub(super) fn rotated(a: f32, b: f32, [c, s]: [f32; 2]) -> [f64; 2] {
    let (a, b, c, s) = (a as f64, b as f64, c as f64, s as f64);
    [a * c - b * s, a * s + b * c]
}

/// The largest error of numbers so small that they lose precision in f16.
const LEAST: f64 = 4e-7;
/// The rounding errors of a rotated pair, relative to its values' magnitudes.
const ROTATED: f64 = 1e-6;

impl Reference for RotatedQueries {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        let mut samples = Vec::new();
        for vector in probe.some(probe.count * self.q.per_row(), VECTORS) {
            let (token, head) = (vector / self.q.per_row(), vector % self.q.per_row());
            let from = start(&self.q, token, head) + self.q.shape[0] - self.rotary;
            let pairs = probe.values(self.q.buffer, from, self.rotary)?;
            let rotations = probe.rotations(token, self.rotary / 2)?;
            let to = start(&self.y, token, head) + self.y.shape[0] - self.rotary;
            for pair in probe.some(self.rotary / 2, VALUES) {
                let (a, b) = (pairs[2 * pair], pairs[2 * pair + 1]);
                for (side, want) in rotated(a, b, rotations[pair]).into_iter().enumerate() {
                    let tolerance = SLACK * ROTATED * f64::from(a.abs() + b.abs());
                    samples.push(Sample {
                        output: OutputPlace::F32(self.y.buffer, to + 2 * pair + side),
                        want,
                        tolerance,
                    });
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
            let kv: Vec<f32> = summed(probe, &self.kv, (token, 0), 0, rank + rotary)?
                .into_iter()
                .map(|(value, _)| value as f32)
                .collect();
            let latent = rms_normed(&kv[..rank], &weights, self.norm.epsilon);
            let place = probe.kv_index(probe.position + token)?;
            for value in probe.some(rank, VALUES) {
                samples.push(self.latent(place, value, &latent));
            }
            let rotations = probe.rotations(token, rotary / 2)?;
            for pair in probe.some(rotary / 2, VALUES) {
                let (a, b) = (kv[rank + 2 * pair], kv[rank + 2 * pair + 1]);
                for (side, want) in rotated(a, b, rotations[pair]).into_iter().enumerate() {
                    samples.push(self.value(place, rank + 2 * pair + side, want, f64::from(a.abs() + b.abs())));
                }
            }
        }
        Ok(samples)
    }
}

impl KvRows {
    /// A value of the latent of the KV row at an index in the pool.
    fn latent(&self, place: usize, at: usize, latent: &[f64]) -> Sample {
        let Cache { buffer, ty, rank, rotary } = self.cache;
        if ty != CacheType::Q8_0 {
            return self.value(place, at, latent[at], latent[at].abs());
        }
        let (row, top) = (BlockRow { rank, rotary }, block_top(latent, at));
        let start = place * row.bytes();
        let output = OutputPlace::Block(buffer, start + row.byte(at), (start + row.scale(at)) / 2);
        Sample { output, want: latent[at], tolerance: (IN_BLOCK + SLACK * WRITTEN) * top + LEAST }
    }

    /// A value of the KV row at an index in the pool.
    fn value(&self, place: usize, at: usize, want: f64, size: f64) -> Sample {
        let Cache { buffer, ty, rank, rotary } = self.cache;
        let rounding = IN_HALF * want.abs() + LEAST;
        let (output, rounding) = match ty {
            CacheType::F16 => (OutputPlace::F16(buffer, place * Cache::row_values(rank, rotary) + at), rounding),
            CacheType::F32 => (OutputPlace::F32(buffer, place * Cache::row_values(rank, rotary) + at), 0.0),
            CacheType::Q8_0 => {
                let row = BlockRow { rank, rotary };
                (OutputPlace::F16(buffer, (place * row.bytes() + row.keys()) / 2 + at - rank), rounding)
            }
        };
        Sample { output, want, tolerance: rounding + SLACK * WRITTEN * size }
    }
}

/// The largest error of rounding a value of a block, relative to the largest magnitude there: half a step, which may be
/// longer because the scale is rounded up to f16.
pub(super) const IN_BLOCK: f64 = (1.0 + 1.0 / 2048.0) / 254.0;
/// The same for an f16, relative to the value.
const IN_HALF: f64 = 1.0 / 2048.0;
/// The largest error of values of a KV row before they are rounded to the type of the cache: of normalised sums, or
/// rotated ones.
pub(super) const WRITTEN: f64 = SUM + NORMED;

/// The largest magnitude of the block of value `at`.
pub(super) fn block_top(latent: &[f64], at: usize) -> f64 {
    let block = &latent[at / BLOCK * BLOCK..][..BLOCK];
    block.iter().fold(0.0, |top, value| value.abs().max(top))
}
