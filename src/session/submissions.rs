//! What a session has submitted, and where the results are that it has not taken yet.

use crate::error::Result;
use crate::gpu::{Buffer, BufferRange, Gpu, ReadbackCopy, Results, Submission, SubmissionNumber};
use crate::plan::Plan;
use std::collections::VecDeque;

/// Tokens submitted ahead of the GPU: enough to keep it busy, few enough that a cancel is felt at once.
const AHEAD: usize = 4;
/// Bytes of what sampling leaves.
const SAMPLED: u64 = 4 * Plan::TOKEN_WORDS as u64;

/// The submissions of a session.
pub struct Submissions {
    /// Two places for results: the token under way writes to one while the other is read.
    places: [Results; 2],
    /// The place of the newest result, in which the numbers of what leaves no result are as well.
    pub place: usize,
    number: u32,
    /// What the GPU may not have finished yet, oldest first.
    running: VecDeque<Submission>,
}

impl Submissions {
    pub fn new(gpu: &Gpu) -> Result<Self> {
        let place = || Results::new(gpu, SAMPLED, Results::ROOM);
        let running = VecDeque::with_capacity(AHEAD + 1);
        Ok(Self { places: [place()?, place()?], place: 0, number: 0, running })
    }

    /// The number for what is written to a state next. All submissions that read that state leave it.
    pub fn next_number(&mut self) -> u32 {
        self.number = self.number.wrapping_add(1);
        self.number
    }

    /// Has `submit` submit work that ends with copies to a place: of the number in its state, and of the sampled token if
    /// there is one. Waits if the GPU is too far behind.
    pub fn submit(
        &mut self,
        gpu: &Gpu,
        place: usize,
        state: &Buffer,
        sampled: Option<&Buffer>,
        submit: impl FnOnce(&[ReadbackCopy<'_>]) -> Result<Submission>,
    ) -> Result<Submission> {
        let number = SubmissionNumber { value: self.number, buffer: state, offset: 4 * Plan::SUBMISSION as u64 };
        let sampled = sampled.map(|from| BufferRange { from, offset: 0, bytes: SAMPLED });
        let submission = self.places[place].submit(gpu, number, sampled.as_slice(), submit)?;
        self.place = place;
        self.running.push_back(submission.clone());
        self.wait(gpu, AHEAD)?;
        Ok(submission)
    }

    /// What is read at a place once its newest submission is done: the sampled token, the likeliest one, and how many the
    /// filters kept.
    pub fn take(&mut self, gpu: &Gpu, place: usize) -> Result<[u32; Plan::TOKEN_WORDS]> {
        Ok(bytemuck::pod_read_unaligned(&self.places[place].read(gpu, SAMPLED)?))
    }

    /// Asks no more what became of the submissions so far.
    pub fn forget(&mut self) {
        self.places.iter_mut().for_each(Results::forget);
    }

    /// The newest submission that may be under way.
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
