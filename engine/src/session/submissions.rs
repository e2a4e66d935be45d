//! The submissions of a pool's sessions, and their results until they are read.

use super::plans::{Ready, Sampler};
use crate::error::Result;
use crate::gpu::{Buffer, BufferCopy, BufferRange, Gpu, ReadbackCopy, Results, Submission, SubmissionNumber};
use crate::kernels::Adjustment;
use crate::model::BatchWriter;
use crate::plan::{BatchHeader, Executor, LocalId, Plan, RowHeader};
use std::collections::VecDeque;
use std::mem::offset_of;
use std::ops::Range;

/// The maximum number of running submissions: enough to keep the GPU busy, few enough for a cancellation to take effect
/// quickly.
const AHEAD: usize = 4;
/// The submissions of a pool's sessions.
pub struct Submissions {
    /// Two places for results. The running token writes to one of them while the host reads the other.
    places: [Results; 2],
    /// The place of the newest result. Submissions without a result write their numbers there too.
    pub place: usize,
    /// The number of the newest batch.
    number: u32,
    /// The submissions that the GPU may not have finished yet, oldest first.
    running: VecDeque<Submission>,
    /// Writes the batches.
    writer: BatchWriter,
    /// The last values sampled for each sequence.
    sampled: Buffer,
}

/// How the next tokens are sampled.
pub struct Sampled<'a> {
    /// The adjustments of logits, if there are bias or penalties.
    pub adjustments: Option<&'a [Adjustment]>,
    /// Whether the filters need a histogram.
    pub filters: bool,
    /// A bit for each token, if not all tokens are allowed.
    pub mask: Option<&'a [u32]>,
    /// Whether there are drafts to verify.
    pub verifies: bool,
}

impl Sampled<'_> {
    /// The steps that sample after those of a plan, and the executor of the plan that has them.
    fn steps(self, ready: &Ready) -> Result<(&Executor, Vec<usize>)> {
        let Self { adjustments, filters, mask, verifies } = self;
        let adjusts = adjustments.is_some() || mask.is_some();
        let sampler = if adjusts { ready.sampler(adjustments.unwrap_or_default(), mask)? } else { None };
        let (executor, sampling, steps, adjust) = match sampler {
            Some(Sampler { executor, planned, .. }) => {
                let adjust = if adjustments.is_none() { Some(planned.adjust) } else { None };
                (executor, planned.sampling, 0..planned.plan.steps.len(), adjust)
            }
            None => {
                let sampling = ready.head()?.sampling;
                (&ready.executor, sampling, sampling.first..ready.planned.plan.steps.len(), None)
            }
        };
        let needed = |step: &usize| sampling.needs(*step, filters, verifies) && Some(*step) != adjust;
        Ok((executor, steps.filter(needed).collect()))
    }
}

impl Submissions {
    pub fn new(gpu: &Gpu, writer: BatchWriter, sampled: Buffer) -> Result<Self> {
        let place = || Results::new(gpu, sampled.bytes(), Results::CAPACITY);
        let running = VecDeque::with_capacity(AHEAD + 1);
        Ok(Self { places: [place()?, place()?], place: 0, number: 0, running, writer, sampled })
    }

    /// Writes the batch of the next submissions of a plan, which have its number.
    pub fn write(&mut self, ready: &Ready, rows: &[RowHeader]) -> Result<()> {
        self.number = self.number.wrapping_add(1);
        self.write_batch(&ready.executor, Plan::BATCH, ready.planned.plan.splits, rows)
    }

    /// Writes a batch to a local buffer of a plan, for submissions without a number.
    pub fn write_batch(&mut self, on: &Executor, local: LocalId, splits: usize, rows: &[RowHeader]) -> Result<()> {
        let batch = self.writer.write(rows, splits, self.number);
        on.gpu().write(on.local(local), 0, batch)
    }

    /// Records a submission without a number. Waits if too many are running.
    pub fn push(&mut self, gpu: &Gpu, submission: Submission) -> Result<()> {
        self.running.push_back(submission);
        self.wait(gpu, AHEAD)
    }

    /// Submits copies between buffers, with a number in the buffer of the single-row plan. Waits if too many submissions
    /// are running.
    pub fn copy(&mut self, alone: &Ready, copies: &[BufferCopy<'_>]) -> Result<()> {
        self.write(alone, &[])?;
        let gpu = alone.executor.gpu();
        let number = self.number_in(&alone.executor);
        let submission = self.places[self.place].submit(gpu, number, &[], |numbers| gpu.copy(copies, numbers))?;
        self.push(gpu, submission)
    }

    /// Submits steps of a plan, followed by those that sample the next tokens if these are wanted. The number of the
    /// batch and the sampled values are copied to a place for results. If this work was recorded, the recording is
    /// submitted. Waits if too many submissions are running.
    pub fn run(
        &mut self,
        ready: &mut Ready,
        steps: Range<usize>,
        sampled: Option<Sampled<'_>>,
        place: usize,
    ) -> Result<Submission> {
        if let Some(Sampled { adjustments: None, mask: None, filters, verifies: true }) = sampled
            && let Some(submission) = self.run_prepared(ready, filters, place)?
        {
            return Ok(submission);
        }
        let (executor, gpu) = (&ready.executor, ready.executor.gpu());
        let all = BufferRange { from: &self.sampled, offset: 0, bytes: self.sampled.bytes() };
        let ranges = sampled.is_some().then_some(all);
        let (by, then) = sampled.map_or(Ok((executor, Vec::new())), |sampled| sampled.steps(ready))?;
        let number = self.number_in(executor);
        let submit = |copies: &[ReadbackCopy<'_>]| executor.submit_with(steps, (by, then), copies);
        let submission = self.places[place].submit(gpu, number, ranges.as_slice(), submit)?;
        self.place = place;
        self.push(gpu, submission.clone())?;
        Ok(submission)
    }

    /// Records the steps of a plan together with those that sample from unadjusted logits and verify drafts, with the
    /// results to a place, unless this is recorded already.
    pub fn prepare(&self, ready: &mut Ready, filters: bool, place: usize) -> Result<()> {
        let key = (place, filters);
        if ready.prepared.as_ref().is_some_and(|(known, _)| *known == key) {
            return Ok(());
        }
        let (executor, sampling) = (&ready.executor, ready.head()?.sampling);
        let steps = (0..ready.planned.plan.steps.len()).filter(|step| sampling.needs(*step, filters, true));
        let copies = self.places[place].first_copies(self.number_in(executor), &[self.sampled_range()]);
        let prepared = executor.prepare(steps, &copies)?;
        ready.prepared = prepared.map(|work| (key, work));
        Ok(())
    }

    /// Submits the work that was recorded for a place, if there is any and nothing has come between.
    fn run_prepared(&mut self, ready: &mut Ready, filters: bool, place: usize) -> Result<Option<Submission>> {
        let Some((key, work)) = ready.prepared.take() else { return Ok(None) };
        if key != (place, filters) {
            return Ok(None);
        }
        let gpu = ready.executor.gpu().clone();
        let submitted = self.places[place].submit_first(self.number, || gpu.submit_prepared(work))?;
        if let Some(submission) = &submitted {
            self.place = place;
            self.push(&gpu, submission.clone())?;
        }
        Ok(submitted)
    }

    /// The number of the newest batch, in a plan's buffer.
    fn number_in<'a>(&self, executor: &'a Executor) -> SubmissionNumber<'a> {
        let (buffer, offset) = (executor.local(Plan::BATCH), offset_of!(BatchHeader, submission) as u64);
        SubmissionNumber { value: self.number, buffer, offset }
    }

    /// All sampled tokens.
    fn sampled_range(&self) -> BufferRange<'_> {
        BufferRange { from: &self.sampled, offset: 0, bytes: self.sampled.bytes() }
    }

    /// Waits for the newest submission to a place, and reads for each sequence the sampled token, the most likely one,
    /// and how many tokens the filters kept.
    pub fn take(&mut self, gpu: &Gpu, place: usize) -> Result<Vec<[u32; Plan::SAMPLED_WORDS]>> {
        Ok(bytemuck::pod_collect_to_vec(&self.places[place].read(gpu, self.sampled.bytes())?))
    }

    /// Stops checking the submissions so far, because their tokens belong to no session any more.
    pub fn forget(&mut self) {
        self.places.iter_mut().for_each(Results::forget);
    }

    /// The newest submission, unless it is known to be done.
    pub fn newest(&self) -> Option<&Submission> {
        self.running.back()
    }

    /// Waits until at most `ahead` submissions are running.
    pub fn wait(&mut self, gpu: &Gpu, ahead: usize) -> Result<()> {
        let done = self.running.len().saturating_sub(ahead);
        let newest = self.running.drain(..done).next_back();
        newest.map_or(Ok(()), |submission| gpu.wait(&submission))
    }
}
