//! A case of a kernel: a small plan with seeded inputs, and the comparison of everything that a GPU wrote with what the
//! references of its steps compute.
//!
//! Every buffer of a case ends in a guard band. A case fails if the error of a value exceeds its bound, if a value is
//! NaN, or if the kernel changed anything other than the expected outputs: the padding between vectors, the guard band,
//! other buffers.

use crate::error::{Error, Result};
use crate::plan::{BatchHeader, BufferRef, LocalId, Plan, PlanContents, Probe, Sample, Step, Weight, WeightId};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// The size in bytes of the guard band at the end of a buffer.
pub(super) const GUARD_BYTES: u64 = 256;

/// The contents of the local buffers, by their ids.
pub type Contents = Vec<Vec<u8>>;

/// A plan with its inputs.
pub struct Case {
    /// The shapes and formats.
    pub name: String,
    /// The plan: usually one step.
    pub plan: Plan,
    /// The first content of every local buffer.
    pub locals: Contents,
    /// The content of every weight buffer.
    pub weights: Vec<Vec<u8>>,
    /// The rows of every weight, as in a model's file.
    pub files: Vec<Vec<u8>>,
    /// Local buffers that steps may write freely, because they hold intermediate results.
    pub free: Vec<BufferRef>,
    /// The factor on the bounds: 1, unless they are found to be too narrow for a GPU.
    pub factor: f64,
    /// The outputs of the first group of steps, once they are computed: tests judge a case several times.
    pub(super) first: OnceLock<Vec<Sample>>,
}

/// The result of a case.
#[derive(Debug, Clone, Default)]
pub struct CaseOutcome {
    /// The error with the largest ratio to its bound, divided by its magnitude.
    pub worst: f64,
    /// That bound.
    pub bound: f64,
    /// Whether some outputs are not compared exactly.
    pub is_bounded: bool,
    /// What is wrong, if anything is.
    pub failure: Option<String>,
}

impl CaseOutcome {
    /// The worst error divided by its bound; infinite for NaN.
    pub fn share(&self) -> f64 {
        share(self.worst, self.bound)
    }

    /// Records an output. Returns whether it is within its bound.
    fn add(&mut self, sample: &Sample, got: f64, factor: f64) -> bool {
        if sample.tolerance.is_infinite() {
            return got.is_finite();
        }
        let of_size = |error: f64| error / sample.size.max(1e-30);
        let (found, tolerance) = (sample.error(got), factor * sample.tolerance);
        let right = found <= tolerance; // false for NaN
        let error = if found.is_nan() { f64::INFINITY } else { of_size(found) };
        let bound = of_size(tolerance);
        let is_first = self.bound == 0.0 && self.worst == 0.0;
        if is_first || share(error, bound) > self.share() {
            (self.worst, self.bound) = (error, bound);
        }
        self.is_bounded |= sample.tolerance > 0.0;
        right
    }
}

/// An error divided by its bound; 0 for no error, and infinite if a value that is compared exactly differs.
pub(super) fn share(error: f64, bound: f64) -> f64 {
    if error == 0.0 { 0.0 } else { error / bound }
}

impl Case {
    /// The steps in groups: a step, or the parts that it is split into. The outputs of a group are complete once all of
    /// it is done.
    pub fn groups(&self) -> Vec<Range<usize>> {
        let same = |a: &Step, b: &Step| matches!((&a.reference, &b.reference), (Some(a), Some(b)) if Arc::ptr_eq(a, b));
        let mut next = 0;
        let groups = self.plan.steps.chunk_by(same).map(|group| {
            next += group.len();
            next - group.len()..next
        });
        groups.collect()
    }

    /// Compares everything that was written with what the steps' references compute, given the contents after each
    /// [group](Case::groups) of steps.
    ///
    /// # Errors
    /// [`Error::Shape`] if a reference reads beyond a buffer.
    pub fn judge(&self, after: &[Contents]) -> Result<CaseOutcome> {
        let mut outcome = CaseOutcome::default();
        let (mut before, free, groups) = (self.locals.clone(), self.free_bytes(), self.groups());
        if groups.len() != after.len() {
            return Err(out_of_place("contents", &after.len().to_string(), &groups.len().to_string()));
        }
        for (group, after) in groups.into_iter().zip(after) {
            let mut written = free.clone();
            let later;
            let samples = if group.start == 0 {
                self.first_outputs(&before)?
            } else {
                later = self.outputs(&self.plan.steps[group.start], &before)?;
                &later
            };
            for sample in samples {
                self.compare_output(sample, after, &mut outcome);
                for (buffer, bytes) in sample.output.bytes() {
                    let of_buffer = written[buffer.local()?.index()].get_mut(bytes);
                    of_buffer.into_iter().for_each(|bytes| bytes.fill(true));
                }
            }
            for ((before, after), written) in before.iter_mut().zip(after).zip(&written) {
                let changed = before.iter_mut().zip(after).zip(written).filter(|(_, written)| **written);
                changed.for_each(|((before, after), _)| *before = *after);
            }
        }
        for (((local, _), before), after) in
            self.plan.locals_by_id().zip(&before).zip(after.last().into_iter().flatten())
        {
            outcome.failure = outcome.failure.or_else(|| self.touched(local, before, after));
        }
        Ok(outcome)
    }

    /// Compares the outputs of a step with what its reference computes from these contents before it.
    ///
    /// # Errors
    /// As [`Case::judge`].
    pub fn compare(&self, step: &Step, before: &Contents, after: &Contents) -> Result<CaseOutcome> {
        let mut outcome = CaseOutcome::default();
        self.outputs(step, before)?.iter().for_each(|sample| self.compare_output(sample, after, &mut outcome));
        Ok(outcome)
    }

    fn compare_output(&self, sample: &Sample, after: &Contents, outcome: &mut CaseOutcome) {
        let got = value(sample, after);
        if !outcome.add(sample, got, self.factor) && outcome.failure.is_none() {
            outcome.failure = Some(self.wrong(sample, got));
        }
    }

    /// The outputs of the first step.
    fn first_outputs(&self, before: &Contents) -> Result<&[Sample]> {
        if self.first.get().is_none() {
            let outputs = self.outputs(&self.plan.steps[0], before)?;
            return Ok(self.first.get_or_init(|| outputs));
        }
        Ok(self.first.get().map_or(&[], Vec::as_slice))
    }

    /// All outputs of a step, given the contents before it.
    ///
    /// # Errors
    /// [`Error::Shape`] for a step without a reference, or if the reference reads beyond a buffer.
    pub fn outputs(&self, step: &Step, before: &Contents) -> Result<Vec<Sample>> {
        let Some(reference) = &step.reference else { return Err(out_of_place(&step.label, "no reference", "one")) };
        let tokens = self.tokens(before);
        reference.samples(&mut Probe::of_all(&self.plan, &mut Inputs::new(self, before), tokens))
    }

    /// The position of the batch's first token, and the number of its tokens.
    pub(super) fn tokens(&self, before: &Contents) -> (usize, usize) {
        let batch = before[Plan::BATCH.index()].get(..size_of::<BatchHeader>());
        let header: BatchHeader = batch.map_or_else(BatchHeader::default, bytemuck::pod_read_unaligned);
        let count = (header.count as usize).min(self.plan.rows.max(1));
        ((header.longest as usize).saturating_sub(count), count)
    }

    /// For each byte of the local buffers whether steps may write anything to it.
    fn free_bytes(&self) -> Vec<Vec<bool>> {
        let of = |((local, _), content): ((LocalId, _), &Vec<u8>)| {
            let mut free = vec![false; content.len()];
            if self.free.contains(&BufferRef::Local(local)) {
                free[..content.len() - GUARD_BYTES as usize].fill(true);
            }
            free
        };
        self.plan.locals_by_id().zip(&self.locals).map(of).collect()
    }

    fn wrong(&self, sample: &Sample, got: f64) -> String {
        let (buffer, place) = sample.output.place();
        let name = buffer.local().map_or("", |local| self.plan.local(local).name.as_str());
        format!("`{name}`[{place}] is {got}, expected {}", sample.want)
    }

    /// Describes a byte of a buffer that is not as expected.
    fn touched(&self, local: LocalId, expected: &[u8], found: &[u8]) -> Option<String> {
        let at = (0..found.len()).find(|&i| found[i] != expected[i])?;
        Some(format!("`{}` changed at byte {at}, where nothing should be written", self.plan.local(local).name))
    }
}

/// The value of an output; NaN if it is outside its buffer.
fn value(sample: &Sample, contents: &Contents) -> f64 {
    let word = |(buffer, place): (BufferRef, usize)| word(&contents[buffer.local().ok()?.index()], 4 * place);
    let words: Vec<u32> = sample.output.words().into_iter().filter_map(word).collect();
    sample.output.value(&words)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_le_bytes(four))
}

/// The contents of a case's buffers before a step.
pub(super) struct Inputs<'a> {
    case: &'a Case,
    before: &'a Contents,
    /// The values of the weights that were read.
    decoded: HashMap<WeightId, Vec<f32>>,
}

impl<'a> Inputs<'a> {
    pub fn new(case: &'a Case, before: &'a Contents) -> Self {
        Self { case, before, decoded: HashMap::new() }
    }
}

impl PlanContents for Inputs<'_> {
    fn words(&mut self, local: LocalId, first: usize, count: usize) -> Result<Vec<u32>> {
        let bytes = self.before[local.index()].get(4 * first..4 * (first + count));
        let beyond = || {
            let (name, found) = (&self.case.plan.local(local).name, format!("words {first} to {}", first + count));
            out_of_place(name, &found, "words inside the buffer")
        };
        Ok(bytes.ok_or_else(beyond)?.chunks_exact(4).filter_map(|four| word(four, 0)).collect())
    }

    fn row(&mut self, weight: &Weight, row: usize) -> Result<Vec<f32>> {
        let [columns, rows, matrices] = weight.shape;
        if !self.decoded.contains_key(&weight.id) {
            let mut values = vec![0f32; columns * rows * matrices];
            weight.quant.decode(&self.case.files[weight.id.index()], &mut values)?;
            self.decoded.insert(weight.id, values);
        }
        Ok(self.decoded[&weight.id][row * columns..][..columns].to_vec())
    }
}

fn out_of_place(tensor: &str, got: &str, want: &str) -> Error {
    Error::Shape { op: "case", tensor: tensor.to_owned(), got: got.to_owned(), want: want.to_owned() }
}
