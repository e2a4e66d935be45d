//! Writes the batches of a model's steps: their rows, and the rotary angles of the rows' positions.
//!
//! The angles are computed here in f64, because GPUs do not promise the sine of thousands of radians.

use super::Config;
use crate::plan::{RowHeader, laid_out};

/// Makes the bytes of batches, as kernels read them (`wgsl/lib/batch.wgsl`).
pub struct BatchWriter {
    /// The frequency of each rotary pair, in radians per position.
    frequencies: Vec<f64>,
    /// The factor of rotated values.
    magnitude: f64,
    /// The batch that was written last. Its memory is reused.
    bytes: Vec<u8>,
}

impl BatchWriter {
    /// A writer of batches for a model.
    pub fn new(config: &Config) -> Self {
        let frequencies = config.rope.frequencies(config.rotary);
        Self { frequencies, magnitude: config.rope.magnitude(), bytes: Vec::new() }
    }

    /// The bytes of a batch, for a plan that divides the cache into `splits`, with the number of the submission that
    /// computes it.
    pub fn write(&mut self, rows: &[RowHeader], splits: usize, submission: u32) -> &[u8] {
        let (header, rows) = laid_out(rows, splits, submission);
        self.bytes.clear();
        self.bytes.extend_from_slice(bytemuck::bytes_of(&header));
        for row in rows {
            self.bytes.extend_from_slice(bytemuck::bytes_of(&row));
            for frequency in &self.frequencies {
                let rotation = rotation_of(row.position, *frequency, self.magnitude);
                self.bytes.extend_from_slice(bytemuck::bytes_of(&rotation));
            }
        }
        &self.bytes
    }
}

/// Cosine and sine of a position's angle, times the magnitude, computed in f64.
fn rotation_of(position: u32, frequency: f64, magnitude: f64) -> [f32; 2] {
    let (sine, cosine) = (f64::from(position) * frequency).sin_cos();
    [(cosine * magnitude) as f32, (sine * magnitude) as f32]
}
