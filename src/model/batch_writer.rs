//! Writes the batches of a model's steps: their rows, and the rotary angles of the rows' positions.

use super::Config;
use crate::plan::{BatchHeader, RowHeader};

/// Makes the bytes of batches, as kernels read them (`wgsl/lib/batch.wgsl`).
pub struct BatchWriter {
    /// What positions are divided by.
    factor: f64,
    /// The frequency of each rotary pair, in radians per position.
    frequencies: Vec<f64>,
    /// The batch that was written last. The vector is kept so that its memory is reused.
    bytes: Vec<u8>,
}

impl BatchWriter {
    /// A writer of batches for a model.
    pub fn new(config: &Config) -> Self {
        let frequency = |i: usize| config.rope.base.powf(-((2 * i) as f64) / config.rotary as f64);
        let frequencies = (0..config.rotary / 2).map(frequency).collect();
        Self { factor: config.rope.factor, frequencies, bytes: Vec::new() }
    }

    /// The bytes of a batch, for a plan that divides the cache into so many splits, with the number of the submissions that
    /// compute it.
    pub fn write(&mut self, rows: &[RowHeader], splits: usize, submission: u32) -> &[u8] {
        let longest = rows.iter().map(|row| row.position + 1).max().unwrap_or_default();
        let header = BatchHeader { count: rows.len() as u32, longest, splits: splits as u32, submission };
        self.bytes.clear();
        self.bytes.extend_from_slice(bytemuck::bytes_of(&header));
        for row in rows {
            self.bytes.extend_from_slice(bytemuck::bytes_of(row));
            for frequency in &self.frequencies {
                let rotation = rotation_of(self.factor, row.position as usize, *frequency);
                self.bytes.extend_from_slice(bytemuck::bytes_of(&rotation));
            }
        }
        &self.bytes
    }
}

/// Cosine and sine of a position's angle, computed in f64.
fn rotation_of(factor: f64, position: usize, frequency: f64) -> [f32; 2] {
    let (sine, cosine) = (position as f64 / factor * frequency).sin_cos();
    [cosine as f32, sine as f32]
}
