//! The stages that measure the device alone.

use super::stages::{Here, say, sum_up};
use crate::{bandwidth as copies, figures::median, output};
use std::time::Instant;
use wglm_engine::instruments::{Builder, Executor, Pipelines, Target};

pub fn bandwidth(here: &Here<'_>) -> anyhow::Result<()> {
    let measured = copies::measure(&here.gpu()?)?;
    sum_up(format_args!(
        "{:.0} GB/s, read and written, to copy {}",
        measured.per_second / 1e9,
        output::bytes(measured.bytes)
    ))
}

/// The numbers of dispatches in a pass. The cost is the slope between the first and the last.
const CHAINS: [usize; 4] = [1, 100, 400, 1600];
const REPETITIONS: usize = 7;

/// Chains of dispatches that copy a few bytes: each waits for the previous one, because both write the same buffer.
pub fn dispatches(here: &Here<'_>) -> anyhow::Result<()> {
    let gpu = here.gpu()?;
    let mut builder = Builder::new(&Target::default(), 1);
    let [from, to] = ["from", "to"].map(|name| builder.tensor(name, [4, 1]));
    builder.copy("copy", &from, &to)?;
    let executor = Executor::new(&Pipelines::new(&gpu), &builder.finish(), &[])?;
    let once = |dispatches: usize| -> anyhow::Result<f64> {
        let start = Instant::now();
        let submission = executor.submit(std::iter::repeat_n(0, dispatches), &[])?;
        gpu.wait(&submission)?;
        Ok(start.elapsed().as_secs_f64() * 1e6)
    };
    let mut medians = Vec::new();
    for chain in CHAINS {
        once(chain)?; // not timed
        let times = (0..REPETITIONS).map(|_| once(chain)).collect::<anyhow::Result<Vec<f64>>>()?;
        medians.push(median(times));
        say(format_args!("{chain} dispatches in one pass: {:.1} us", median(medians.last().copied())))?;
    }
    let [first, .., last] = medians.as_slice() else { return Ok(()) };
    let each = (last - first) / (CHAINS[CHAINS.len() - 1] - CHAINS[0]) as f64;
    sum_up(format_args!(
        "{each:.2} us per dispatch that waits for the previous one; {first:.0} us per submission with one"
    ))
}
