//! The submissions of a session, and the results that it has not taken yet.

use crate::error::Result;
use crate::gpu::{Buffer, BufferRange, Gpu, ReadbackCopy, Results, Submission, SubmissionNumber};
use crate::plan::{BatchHeader, Plan};
use std::collections::VecDeque;
use std::mem::offset_of;

/// The most submissions under way. They keep the GPU busy, and are few enough that a cancellation takes effect at once.
const AHEAD: usize = 4;
/// The bytes of the result of sampling.
const SAMPLED: u64 = 4 * Plan::TOKEN_WORDS as u64;

/// The submissions of a session.
pub struct Submissions {
    /// Two places for results. The token under way writes to one of them while the host reads the other.
    places: [Results; 2],
    /// The place of the newest result. Submissions without a result leave their numbers there too.
    pub place: usize,
    /// The number of the newest state.
    number: u32,
    /// The submissions that the GPU may not have finished yet, oldest first.
    running: VecDeque<Submission>,
}

impl Submissions {
    pub fn new(gpu: &Gpu) -> Result<Self> {
        let place = || Results::new(gpu, SAMPLED, Results::ROOM);
        let running = VecDeque::with_capacity(AHEAD + 1);
        Ok(Self { places: [place()?, place()?], place: 0, number: 0, running })
    }

    /// The number for the next state that is written. All submissions that read that state have this number.
    pub fn next_number(&mut self) -> u32 {
        self.number = self.number.wrapping_add(1);
        self.number
    }

    /// Calls `submit` with the copies that a submission ends with, to a place: of the number in its state, and of the
    /// sampled token if there is one. Waits if too many submissions are under way.
    pub fn submit(
        &mut self,
        gpu: &Gpu,
        place: usize,
        state: &Buffer,
        sampled: Option<&Buffer>,
        submit: impl FnOnce(&[ReadbackCopy<'_>]) -> Result<Submission>,
    ) -> Result<Submission> {
        let number =
            SubmissionNumber { value: self.number, buffer: state, offset: offset_of!(BatchHeader, submission) as u64 };
        let sampled = sampled.map(|from| BufferRange { from, offset: 0, bytes: SAMPLED });
        let submission = self.places[place].submit(gpu, number, sampled.as_slice(), submit)?;
        self.place = place;
        self.running.push_back(submission.clone());
        self.wait(gpu, AHEAD)?;
        Ok(submission)
    }

    /// Waits for the newest submission to a place, and reads the sampled token, the likeliest one, and how many tokens the
    /// filters kept.
    pub fn take(&mut self, gpu: &Gpu, place: usize) -> Result<[u32; Plan::TOKEN_WORDS]> {
        Ok(bytemuck::pod_read_unaligned(&self.places[place].read(gpu, SAMPLED)?))
    }

    /// Does not check the submissions so far, because their tokens are not in the session any more.
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
