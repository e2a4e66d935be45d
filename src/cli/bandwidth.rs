//! How fast the device's memory is, as a kernel that copies finds it.

use super::figures::median;
use std::time::Instant;
use wglm::plan::{Builder, Executor, Plan, Target};
use wglm::shader::Pipelines;
use wglm::{Error, Gpu, Result};

/// What a copy from one buffer to another reaches.
pub struct Bandwidth {
    /// Bytes of each buffer: far more than caches hold.
    pub bytes: u64,
    /// Bytes read and bytes written, together, in a second.
    pub per_second: f64,
}

/// Buffers of this size if there is room, else half of it, and so on down to the smallest.
const LARGEST: usize = 256 << 20;
const LARGEST_OF_SOFTWARE: usize = 64 << 20;
const SMALLEST: usize = 16 << 20;
/// Seconds for which copies are timed together: beside that, to submit them and to hear of their end is nothing.
const LONG: f64 = 0.02;
const MOST_COPIES: usize = 1 << 12;
/// Times that are taken; the median counts.
const SAMPLES: usize = 5;

/// Measures in a tenth of a second how many bytes a second a copy reads and writes.
pub fn measure(gpu: &Gpu) -> Result<Bandwidth> {
    let largest = if gpu.report().is_software() { LARGEST_OF_SOFTWARE } else { LARGEST };
    let (executor, bytes) = largest_copy(gpu, largest)?;
    let mut copies = 1;
    seconds(&executor, copies)?; // the first finds memory that was never touched
    while seconds(&executor, copies)? < LONG && copies < MOST_COPIES {
        copies *= 2;
    }
    let times = (0..SAMPLES).map(|_| seconds(&executor, copies)).collect::<Result<Vec<f64>>>()?;
    let moved = 2 * bytes as u64 * copies as u64;
    Ok(Bandwidth { bytes: bytes as u64, per_second: moved as f64 / median(times).max(1e-9) })
}

/// A copy of as many bytes as there is room for.
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
    let mut builder = Builder::new(Target::default(), 1);
    let [from, to] = ["from", "to"].map(|name| builder.tensor(name, [bytes / 4, 1]));
    builder.copy("copy", &from, &to)?;
    Ok(builder.finish())
}

/// What so many copies take, one after the other in one pass.
fn seconds(executor: &Executor, copies: usize) -> Result<f64> {
    let start = Instant::now();
    let submission = executor.submit(std::iter::repeat_n(0, copies), &[])?;
    executor.gpu().wait(&submission)?;
    Ok(start.elapsed().as_secs_f64())
}
