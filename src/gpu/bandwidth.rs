//! How fast the device's memory is, as a copy finds it.

use super::Gpu;
use crate::error::{Error, Result};
use std::time::{Duration, Instant};
use wgpu::{Buffer, BufferUsages};

/// What a copy between two buffers reaches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CopyBandwidth {
    /// Bytes of each buffer: far more than caches hold.
    pub bytes: u64,
    /// Bytes read and bytes written, together, in a second.
    pub per_second: f64,
}

/// Buffers of this size if there is room, else half of it, and so on down to the smallest.
const LARGEST: u64 = 256 << 20;
const LARGEST_OF_SOFTWARE: u64 = 64 << 20;
const SMALLEST: u64 = 16 << 20;
/// As many copies are timed together as take this long: beside it, submitting them is nothing.
const LONG: Duration = Duration::from_millis(20);
const MOST_COPIES: usize = 1 << 14;
/// Times that are taken; the median counts.
const SAMPLES: usize = 5;

impl Gpu {
    /// Measures how many bytes a second a copy from one buffer to another reads and writes. It takes a tenth of a
    /// second; [`Gpu::memory`] does not count its buffers.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if there is no room for two small buffers; what the device reports.
    pub fn copy_bandwidth(&self) -> Result<CopyBandwidth> {
        let (bytes, [from, to]) =
            self.two_buffers(if self.report().is_software() { LARGEST_OF_SOFTWARE } else { LARGEST })?;
        let mut copies = 1;
        self.time_copies(&from, &to, copies)?; // the first finds memory that was never touched
        while self.time_copies(&from, &to, copies)? < LONG && copies < MOST_COPIES {
            copies *= 2;
        }
        let mut times = (0..SAMPLES).map(|_| self.time_copies(&from, &to, copies)).collect::<Result<Vec<_>>>()?;
        times.sort();
        let moved = 2 * bytes * copies as u64;
        Ok(CopyBandwidth { bytes, per_second: moved as f64 / times[SAMPLES / 2].as_secs_f64().max(1e-9) })
    }

    /// Two buffers of as many bytes as there is room for.
    fn two_buffers(&self, mut bytes: u64) -> Result<(u64, [Buffer; 2])> {
        loop {
            let make = |usage| self.create_uncounted("copy", bytes, usage, false);
            let pair = self.fits("copy", bytes).and_then(|()| make(BufferUsages::COPY_SRC));
            match pair.and_then(|from| Ok([from, make(BufferUsages::COPY_DST)?])) {
                Err(Error::OutOfMemory { .. } | Error::TooLarge { .. }) if bytes > SMALLEST => bytes /= 2,
                made => return Ok((bytes, made?)),
            }
        }
    }

    fn time_copies(&self, from: &Buffer, to: &Buffer, copies: usize) -> Result<Duration> {
        let start = Instant::now();
        let submission = self.attempt("copying", 0, |device| {
            let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            (0..copies).for_each(|_| encoder.copy_buffer_to_buffer(from, 0, to, 0, None));
            self.submit_encoder(encoder)
        })?;
        self.wait(&submission)?;
        Ok(start.elapsed())
    }
}
