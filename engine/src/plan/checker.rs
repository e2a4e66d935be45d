//! Runs the steps of a plan one by one, and compares some outputs of each with its [`Reference`].

#[cfg(doc)]
use super::Reference;
use super::reference::{PlanContents, Probe, Sample};
use super::{Executor, LocalId, Plan, Step, Weight};
use crate::error::Result;
use crate::gpu::{BufferRange, Fetch};
use rand_pcg::Pcg32;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The number of words that are fetched at a time.
const FETCHED: usize = 1 << 16;

/// Returns the values of a row of a weight.
pub type RowOf<'a> = dyn FnMut(&Weight, usize) -> Result<Vec<f32>> + 'a;

/// Called with the compared outputs of each step: the sample, and the value that was found. An error ends the run.
pub type Look<'a> = dyn FnMut(&Step, &[(Sample, f64)]) -> Result<()> + 'a;

/// Runs a plan on a device step by step.
pub struct Checker<'a> {
    executor: &'a Executor,
    plan: &'a Plan,
    fetch: Fetch,
    row: &'a mut RowOf<'a>,
    seeds: Pcg32,
    /// The step that was begun last, and when.
    running: Option<(usize, Instant)>,
}

/// An output that is wrong.
#[derive(Debug, Clone, PartialEq)]
pub struct WrongOutput {
    /// The label of the step.
    pub step: String,
    /// The name of its kernel.
    pub kernel: &'static str,
    /// The buffer that holds the output.
    pub buffer: String,
    /// The index of the value in the buffer.
    pub place: usize,
    /// The value that was found.
    pub got: f64,
    /// The value that was expected.
    pub want: f64,
}

impl fmt::Display for WrongOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, buffer, place, got, want, .. } = self;
        write!(f, "at `{step}`, `{buffer}`[{place}] is {got}, expected {want}")
    }
}

impl<'a> Checker<'a> {
    /// A checker of a plan and its executor. `row` reads rows of weights, and `seed` decides which outputs are
    /// compared.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory); any error from the device.
    pub fn new(executor: &'a Executor, plan: &'a Plan, row: &'a mut RowOf<'a>, seed: u64) -> Result<Self> {
        let fetch = Fetch::new(executor.gpu(), 4 * FETCHED as u64)?;
        Ok(Self { executor, plan, fetch, row, seeds: Pcg32::seed_from_u64(seed), running: None })
    }

    /// The step that was running when [`Checker::run`] failed, which waits for each step before it begins the next, and
    /// for how long it has been running.
    pub fn running(&self) -> Option<(&Step, Duration)> {
        self.running.and_then(|(step, begun)| Some((self.plan.steps.get(step)?, begun.elapsed())))
    }

    /// Runs some steps for `count` tokens from `position`, and compares outputs of the steps in `compared`. Stops at
    /// the first step with a wrong output, and returns that output. `look` gets what was compared.
    ///
    /// # Errors
    /// The error of `look`; any error from the device.
    pub fn run(
        &mut self,
        steps: Range<usize>,
        (position, count): (usize, usize),
        compared: &dyn Fn(&Step) -> bool,
        look: &mut Look<'_>,
    ) -> Result<Option<WrongOutput>> {
        let (plan, mut next) = (self.plan, steps.start);
        while next < steps.end {
            let step = &plan.steps[next];
            self.running = Some((next, Instant::now()));
            let Some(reference) = step.reference.as_ref().filter(|_| compared(step)) else {
                let begun = Instant::now();
                self.executor.submit([next], &[])?;
                self.fetch.read_ranges(&[])?; // so that a lost device is detected here, and not in a later step
                self.executor.gpu().in_time(begun)?;
                next += 1;
                continue;
            };
            // If a step is split into parts, its outputs are complete once all parts are done.
            let same = |other: &Step| other.reference.as_ref().is_some_and(|other| Arc::ptr_eq(other, reference));
            let parts = plan.steps[next..steps.end].iter().take_while(|other| same(other)).count();
            let seed = self.seeds.next_u64();
            let samples = reference.samples(&mut Probe::new(plan, self, (position, count), seed))?;
            let begun = Instant::now();
            self.executor.submit(next..next + parts, &[])?;
            let values = self.values(&samples)?;
            self.executor.gpu().in_time(begun)?;
            let looked: Vec<(Sample, f64)> = samples.into_iter().zip(values).collect();
            look(step, &looked)?;
            if let Some(wrong) = looked.iter().find(|(sample, got)| !sample.agrees(*got)) {
                return Ok(Some(self.fault(step, wrong)));
            }
            next += parts;
        }
        Ok(None)
    }

    /// The present values of the sampled outputs.
    fn values(&mut self, samples: &[Sample]) -> Result<Vec<f64>> {
        let words: Vec<_> = samples.iter().flat_map(|sample| sample.output.words()).collect();
        let mut found = Vec::with_capacity(words.len());
        for some in words.chunks(FETCHED) {
            let mut pieces = Vec::with_capacity(some.len());
            for (buffer, place) in some {
                let from = self.executor.local(buffer.local()?);
                pieces.push(BufferRange { from, offset: 4 * *place as u64, bytes: 4 });
            }
            found.extend(words_of(&self.fetch.read_ranges(&pieces)?));
        }
        let mut rest = found.as_slice();
        let value = |sample: &Sample| {
            let (own, others) = rest.split_at(sample.output.words().len().min(rest.len()));
            rest = others;
            sample.output.value(own)
        };
        Ok(samples.iter().map(value).collect())
    }

    fn fault(&self, step: &Step, (sample, got): &(Sample, f64)) -> WrongOutput {
        let (buffer, place) = sample.output.place();
        let name = buffer.local().map(|local| self.plan.local(local).name.clone());
        let (step, kernel) = (step.label.clone(), step.kernel);
        WrongOutput { step, kernel, buffer: name.unwrap_or_default(), place, got: *got, want: sample.want }
    }
}

impl PlanContents for Checker<'_> {
    fn words(&mut self, local: LocalId, first: usize, count: usize) -> Result<Vec<u32>> {
        let buffer = self.executor.local(local);
        let mut words = Vec::with_capacity(count);
        for at in (first..first + count).step_by(FETCHED) {
            let bytes = 4 * (first + count - at).min(FETCHED) as u64;
            words.extend(words_of(&self.fetch.read(buffer, 4 * at as u64, bytes)?));
        }
        Ok(words)
    }

    fn row(&mut self, weight: &Weight, row: usize) -> Result<Vec<f32>> {
        (self.row)(weight, row)
    }
}

fn words_of(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
}
