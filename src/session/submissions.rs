//! The submissions of a pool's sessions, and the results that were not taken yet.

use super::plans::Ready;
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

    /// Submits steps of a plan, and behind them those that sample the next tokens if these are wanted. Their results go to
    /// a place.
    pub fn run(
        &mut self,
        ready: &Ready,
        steps: Range<usize>,
        sampled: Option<Sampled<'_>>,
        place: usize,
    ) -> Result<Submission> {
        let (executor, planned) = (&ready.executor, &ready.planned);
        let Some(Sampled { adjustments, filters, mask }) = sampled else {
            return self.submit(ready, place, false, |copies| executor.submit(steps, copies));
        };
        let sampler = match (adjustments, mask) {
            (None, None) => None,
            _ => ready.sampler(adjustments.unwrap_or_default(), mask)?,
        };
        let (by, sampling, end) = match sampler {
            Some(sampler) => (&sampler.executor, sampler.planned.sampling, sampler.planned.plan.steps.len()),
            None => (executor, ready.head()?.sampling, planned.plan.steps.len()),
        };
        let first = if sampler.is_some() { 0 } else { sampling.first };
        let adjust = sampler.filter(|_| adjustments.is_none()).map(|sampler| sampler.planned.adjust);
        let needed = |step: &usize| (filters || *step != sampling.histogram) && Some(*step) != adjust;
        let then = (first..end).filter(needed);
        self.submit(ready, place, true, |copies| executor.submit_with(steps, (by, then), copies))
    }

    /// Records the steps of a plan with those that sample from logits as they are, for results at a place, if such work is
    /// not recorded yet.
    pub fn prepare(&self, ready: &mut Ready, filters: bool, place: usize) -> Result<()> {
        let key = (place, filters);
        if ready.prepared.as_ref().is_some_and(|(known, _)| *known == key) {
            return Ok(());
        }
        let (executor, sampling) = (&ready.executor, ready.head()?.sampling);
        let steps = (0..ready.planned.plan.steps.len()).filter(|step| filters || *step != sampling.histogram);
        let copies = self.places[place].first_copies(self.number_in(executor), &[self.sampled_range()]);
        let prepared = executor.prepare(steps, &copies)?;
        ready.prepared = prepared.map(|work| (key, work));
        Ok(())
    }

    /// Submits what was recorded for a place, if it was and nothing else came between.
    pub fn run_prepared(&mut self, ready: &mut Ready, filters: bool, place: usize) -> Result<Option<Submission>> {
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

    /// Calls `submit` with the copies that a submission ends with, to a place: of the number in its batch, and of the
    /// sampled tokens if they are wanted. Waits if too many submissions are under way.
    fn submit(
        &mut self,
        ready: &Ready,
        place: usize,
        wanted: bool,
        submit: impl FnOnce(&[ReadbackCopy<'_>]) -> Result<Submission>,
    ) -> Result<Submission> {
        let (gpu, number) = (ready.executor.gpu(), self.number_in(&ready.executor));
        let all = BufferRange { from: &self.sampled, offset: 0, bytes: self.sampled.bytes() };
        let submission = self.places[place].submit(gpu, number, wanted.then_some(all).as_slice(), submit)?;
        self.place = place;
        self.push(gpu, submission.clone())?;
        Ok(submission)
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
