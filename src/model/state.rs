//! The batches of a model's steps, as the host writes them: rows, and the rotary angles of their positions.

use super::Config;
use crate::plan::{BatchHeader, RowHeader};

/// Writes batches. Made once for a model.
pub struct State {
    factor: f64,
    /// Of each rotary pair, in radians a position.
    frequencies: Vec<f64>,
    /// The last batch that was written.
    bytes: Vec<u8>,
}

impl State {
    /// For a model.
    pub fn new(config: &Config) -> Self {
        let frequency = |i: usize| config.rope.base.powf(-((2 * i) as f64) / config.rotary as f64);
        let frequencies = (0..config.rotary / 2).map(frequency).collect();
        Self { factor: config.rope.factor, frequencies, bytes: Vec::new() }
    }

    /// The bytes of a batch, for a plan that divides the cache into so many splits, with the number of the submissions that
    /// compute it.
    pub fn batch(&mut self, rows: &[RowHeader], splits: usize, submission: u32) -> &[u8] {
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
