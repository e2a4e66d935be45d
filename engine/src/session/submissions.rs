//! The submissions of a pool's sessions, and the results that were not taken yet.

use super::plans::{Ready, Sampler};
use crate::error::Result;
use crate::gpu::{Buffer, BufferRange, Gpu, ReadbackCopy, Results, Submission, SubmissionNumber};
use crate::kernels::Adjustment;
use crate::model::BatchWriter;
use crate::plan::{BatchHeader, Executor, LocalId, Plan, RowHeader};
use std::collections::VecDeque;
use std::mem::offset_of;
use std::ops::Range;

/// The most submissions under way. They keep the GPU busy, and are few enough that a cancellation takes effect at once.
const AHEAD: usize = 4;
/// The submissions of a pool's sessions.
pub struct Submissions {
    /// Two places for results. The token under way writes to one of them while the host reads the other.
    places: [Results; 2],
    /// The place of the newest result. Submissions without a result leave their numbers there too.
    pub place: usize,
    /// The number of the newest batch.
    number: u32,
    /// The submissions that the GPU may not have finished yet, oldest first.
    running: VecDeque<Submission>,
    /// Writes the batches.
    writer: BatchWriter,
    /// What was sampled last for each sequence.
    sampled: Buffer,
}

/// How the next tokens are sampled.
pub struct Sampled<'a> {
    /// What happens to logits before, if bias or penalties are asked for.
    pub adjustments: Option<&'a [Adjustment]>,
    /// Whether it takes a histogram to tell what filters keep.
    pub filters: bool,
    /// Of each row a bit a token, if not all tokens are allowed.
    pub mask: Option<&'a [u32]>,
    /// Whether there are drafts to verify.
    pub verifies: bool,
}

impl Sampled<'_> {
    /// The steps that sample after those of a plan, and the plan that has them.
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
        let place = || Results::new(gpu, sampled.bytes(), Results::ROOM);
        let running = VecDeque::with_capacity(AHEAD + 1);
        Ok(Self { places: [place()?, place()?], place: 0, number: 0, running, writer, sampled })
    }

    /// Writes the batch that the next submissions of a plan compute. They have its number.
    pub fn write(&mut self, ready: &Ready, rows: &[RowHeader]) -> Result<()> {
        self.number = self.number.wrapping_add(1);
        self.write_batch(&ready.executor, Plan::BATCH, ready.planned.plan.splits, rows)
    }

    /// Writes a batch to a local buffer of a plan, for submissions that leave no number.
    pub fn write_batch(&mut self, on: &Executor, local: LocalId, splits: usize, rows: &[RowHeader]) -> Result<()> {
        let batch = self.writer.write(rows, splits, self.number);
        on.gpu().write(on.local(local), 0, batch)
    }

    /// Takes notice of a submission that leaves no number. Waits if too many are under way.
    pub fn push(&mut self, gpu: &Gpu, submission: Submission) -> Result<()> {
        self.running.push_back(submission);
        self.wait(gpu, AHEAD)
    }

    /// Submits steps of a plan, and after them those that sample the next tokens if these are wanted. The number of the batch
    /// is copied to a place for results, and so is what was sampled. If that was recorded, the recording is submitted. Waits
    /// if too many submissions are under way.
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

    /// Records the steps of a plan with those that sample from logits as they are and verify drafts, with the results to a
    /// place, if such work is not recorded yet.
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

    /// Submits what was recorded for a place, if it was and nothing else came between.
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

    /// The number of the newest batch, as a plan has it.
    fn number_in<'a>(&self, executor: &'a Executor) -> SubmissionNumber<'a> {
        let (buffer, offset) = (executor.local(Plan::BATCH), offset_of!(BatchHeader, submission) as u64);
        SubmissionNumber { value: self.number, buffer, offset }
    }

    /// All sampled tokens.
    fn sampled_range(&self) -> BufferRange<'_> {
        BufferRange { from: &self.sampled, offset: 0, bytes: self.sampled.bytes() }
    }

    /// Waits for the newest submission to a place, and reads of each sequence the sampled token, the likeliest one, and how
    /// many tokens the filters kept.
    pub fn take(&mut self, gpu: &Gpu, place: usize) -> Result<Vec<[u32; Plan::SAMPLED_WORDS]>> {
        Ok(bytemuck::pod_collect_to_vec(&self.places[place].read(gpu, self.sampled.bytes())?))
    }

    /// Does not check the submissions so far, because their tokens are in no session any more.
    pub fn forget(&mut self) {
        self.places.iter_mut().for_each(Results::forget);
    }

    /// The newest submission, unless it is known to be done.
    pub fn newest(&self) -> Option<&Submission> {
        self.running.back()
    }

    /// Waits until no more than `ahead` submissions are under way.
    pub fn wait(&mut self, gpu: &Gpu, ahead: usize) -> Result<()> {
        let done = self.running.len().saturating_sub(ahead);
        let newest = self.running.drain(..done).next_back();
        newest.map_or(Ok(()), |submission| gpu.wait(&submission))
    }
}
