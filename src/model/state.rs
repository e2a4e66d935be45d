//! What the host tells the GPU before each token: the position and the rotary angles that belong to it.

use super::Config;
use crate::kernels::splits;

/// The bytes of a token's state, as `wgsl/lib/batch.wgsl` reads them. Made once, filled in for each token.
pub struct State {
    factor: f64,
    /// Of each rotary pair, in radians a position.
    frequencies: Vec<f64>,
    bytes: Vec<u8>,
}

/// Where the angles start: pairs of f32 are aligned to 8 bytes.
const ROTATIONS: usize = 16;

impl State {
    /// The state of a model's tokens.
    pub fn new(config: &Config) -> Self {
        let frequency = |i: usize| config.rope.base.powf(-((2 * i) as f64) / config.rotary as f64);
        let frequencies: Vec<f64> = (0..config.rotary / 2).map(frequency).collect();
        let bytes = vec![0; ROTATIONS + 8 * frequencies.len()];
        Self { factor: config.rope.factor, frequencies, bytes }
    }

    /// The bytes for `count` tokens from a position on, for a plan that cuts the cache into so many splits, with the number
    /// of the submissions that compute them.
    pub fn chunk(&self, position: usize, count: usize, splits: usize, submission: u32) -> Vec<u8> {
        let mut bytes = head(position, count, splits, submission).concat();
        for position in position..position + count {
            let rotations = self.frequencies.iter().map(|frequency| rotated(self.factor, position, *frequency));
            bytes.extend(rotations.flatten().flatten());
        }
        bytes
    }

    /// The bytes for a position, with the number of the submission that computes it. Cosines and sines are computed in
    /// f64.
    pub fn at(&mut self, position: usize, submission: u32) -> &[u8] {
        let (words, rotations) = self.bytes.split_at_mut(ROTATIONS);
        words.copy_from_slice(head(position, 1, splits(1), submission).as_flattened());
        for (rotation, frequency) in rotations.chunks_exact_mut(8).zip(&self.frequencies) {
            rotation.copy_from_slice(rotated(self.factor, position, *frequency).as_flattened());
        }
        &self.bytes
    }
}

fn head(position: usize, count: usize, splits: usize, submission: u32) -> [[u8; 4]; 4] {
    [position as u32, count as u32, splits as u32, submission].map(u32::to_le_bytes)
}

/// Cosine and sine of a position's angle, computed in f64.
fn rotated(factor: f64, position: usize, frequency: f64) -> [[u8; 4]; 2] {
    let (sine, cosine) = (position as f64 / factor * frequency).sin_cos();
    [cosine as f32, sine as f32].map(f32::to_le_bytes)
}
