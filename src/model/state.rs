//! The batches of a model's steps, as the host writes them: positions, and the rotary angles that belong to them.

use super::Config;
use crate::kernels::splits;
use crate::plan::{BatchHeader, RowHeader, batch_bytes, row_bytes};

/// Writes batches of one sequence, whose list of pages is the first. Made once for a model.
pub struct State {
    factor: f64,
    /// Of each rotary pair, in radians a position.
    frequencies: Vec<f64>,
    /// Those of a row alone, filled in for each token.
    bytes: Vec<u8>,
}

impl State {
    /// For a model.
    pub fn new(config: &Config) -> Self {
        let frequency = |i: usize| config.rope.base.powf(-((2 * i) as f64) / config.rotary as f64);
        let frequencies: Vec<f64> = (0..config.rotary / 2).map(frequency).collect();
        let bytes = vec![0; batch_bytes(1, frequencies.len()) as usize];
        Self { factor: config.rope.factor, frequencies, bytes }
    }

    /// The bytes for `count` tokens from a position on, for a plan that divides the cache into so many splits, with the
    /// number of the submissions that compute them.
    pub fn chunk(&self, position: usize, count: usize, splits: usize, submission: u32) -> Vec<u8> {
        let mut bytes = vec![0; batch_bytes(count, self.frequencies.len()) as usize];
        self.fill(&mut bytes, position, count, splits, submission);
        bytes
    }

    /// The bytes for a token alone, with the number of the submission that computes it.
    pub fn at(&mut self, position: usize, submission: u32) -> &[u8] {
        let mut bytes = std::mem::take(&mut self.bytes);
        self.fill(&mut bytes, position, 1, splits(1), submission);
        self.bytes = bytes;
        &self.bytes
    }

    fn fill(&self, bytes: &mut [u8], position: usize, count: usize, splits: usize, submission: u32) {
        let longest = (position + count) as u32;
        let header = BatchHeader { count: count as u32, longest, splits: splits as u32, submission };
        let (head, rows) = bytes.split_at_mut(size_of::<BatchHeader>());
        head.copy_from_slice(bytemuck::bytes_of(&header));
        for (row, position) in rows.chunks_exact_mut(row_bytes(self.frequencies.len())).zip(position..) {
            let (head, rotations) = row.split_at_mut(size_of::<RowHeader>());
            head.copy_from_slice(bytemuck::bytes_of(&RowHeader { position: position as u32, first_page: 0 }));
            for (rotation, frequency) in rotations.chunks_exact_mut(8).zip(&self.frequencies) {
                rotation.copy_from_slice(bytemuck::bytes_of(&rotation_of(self.factor, position, *frequency)));
            }
        }
    }
}

/// Cosine and sine of a position's angle, computed in f64.
fn rotation_of(factor: f64, position: usize, frequency: f64) -> [f32; 2] {
    let (sine, cosine) = (position as f64 / factor * frequency).sin_cos();
    [cosine as f32, sine as f32]
}
