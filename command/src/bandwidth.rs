//! Measures the memory bandwidth of a GPU with a kernel that copies a buffer.

use super::figures::median;
use std::time::Instant;
use wglm_engine::instruments::{Builder, Executor, Pipelines, Plan, Target};
use wglm_engine::{Error, Gpu, Result};

pub struct Bandwidth {
    /// The size of each of the two buffers in bytes, which is far larger than any cache.
    pub bytes: u64,
    /// Bytes per second, read and written together.
    pub per_second: f64,
}

/// The first size of buffers that is tried. If they do not fit, half the size is tried, and so on down to the smallest.
const LARGEST: usize = 256 << 20;
const LARGEST_OF_SOFTWARE: usize = 64 << 20;
const SMALLEST: usize = 16 << 20;
/// How many seconds of copies are timed together, which makes the time for submitting and waiting negligible.
const LONG: f64 = 0.02;
const MAX_COPIES: usize = 1 << 12;
/// The number of measurements, whose median is the result.
const SAMPLES: usize = 5;

/// Measures the bandwidth in about a tenth of a second.
pub fn measure(gpu: &Gpu) -> Result<Bandwidth> {
    let largest = if gpu.report().is_software() { LARGEST_OF_SOFTWARE } else { LARGEST };
    let (executor, bytes) = largest_copy(gpu, largest)?;
    let mut copies = 1;
    seconds(&executor, copies)?; // not timed, because it is the first to touch the memory
    while seconds(&executor, copies)? < LONG && copies < MAX_COPIES {
        copies *= 2;
    }
    let times = (0..SAMPLES).map(|_| seconds(&executor, copies)).collect::<Result<Vec<f64>>>()?;
    let moved = 2 * bytes as u64 * copies as u64;
    Ok(Bandwidth { bytes: bytes as u64, per_second: moved as f64 / median(times).max(1e-9) })
}

/// A plan that copies as many bytes as fit, ready to run, and the number of bytes.
fn largest_copy(gpu: &Gpu, mut bytes: usize) -> Result<(Executor, usize)> {
    let pipelines = Pipelines::new(gpu);
    loop {
        match Executor::new(&pipelines, &plan(bytes)?, &[]) {
            Err(Error::OutOfMemory { .. } | Error::TooLarge { .. }) if bytes > SMALLEST => bytes /= 2,
            made => return Ok((made?, bytes)),
        }
    }
}

fn plan(bytes: usize) -> Result<Plan> {
    let mut builder = Builder::new(&Target::default(), 1);
    let [from, to] = ["from", "to"].map(|name| builder.tensor(name, [bytes / 4, 1]));
    builder.copy("copy", &from, &to)?;
    Ok(builder.finish())
}

/// The seconds that this many copies take, one after the other in one pass.
fn seconds(executor: &Executor, copies: usize) -> Result<f64> {
    let start = Instant::now();
    let submission = executor.submit(std::iter::repeat_n(0, copies), &[])?;
    executor.gpu().wait(&submission)?;
    Ok(start.elapsed().as_secs_f64())
}
