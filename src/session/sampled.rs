//! What the GPU chose, on its way to the host.
//!
//! On Metal a command buffer may fail while it runs, above all for want of memory, and wgpu says nothing: whoever reads
//! the result finds what was there before. So every run of the head has a ticket, a number that the host writes to the
//! state and the last kernel copies beside its choice. A choice with another ticket was never made.

use crate::error::{Error, Result};
use crate::gpu::{Buffer, Gpu, Readback, ReadbackCopy, Submission};
use crate::kernels::NO_TOKEN;
use crate::plan::Plan;

/// Bytes of a choice.
const BYTES: usize = 4 * Plan::TOKEN_WORDS;

/// Two places to read choices from: one is written by the token under way while the other is read.
pub struct SampledTokens {
    places: [Readback; 2],
    next: usize,
}

/// A token's output: the submission that leaves it on the device, and where its choice is read.
#[derive(Clone)]
pub struct LastOutput {
    submission: Submission,
    place: usize,
    ticket: u32,
}

impl LastOutput {
    pub fn submission(&self) -> &Submission {
        &self.submission
    }

    /// The ticket it was made with.
    pub fn ticket(&self) -> u32 {
        self.ticket
    }
}

/// The tokens after the last one.
#[derive(Debug, Clone, Copy)]
pub struct SampledToken {
    chosen: u32,
    likeliest: u32,
}

impl SampledTokens {
    pub fn new(gpu: &Gpu) -> Result<Self> {
        let place = || gpu.readback("choice", BYTES as u64);
        Ok(Self { places: [place()?, place()?], next: 0 })
    }

    /// Has `submit` copy the choice made with a ticket to the place whose turn it is.
    pub fn submit(
        &mut self,
        ticket: u32,
        token: &Buffer,
        submit: impl FnOnce(ReadbackCopy<'_>) -> Result<Submission>,
    ) -> Result<LastOutput> {
        let place = self.next;
        self.next = 1 - place;
        let copy = ReadbackCopy { from: token, offset: 0, bytes: BYTES as u64, to: &self.places[place], at: 0 };
        Ok(LastOutput { submission: submit(copy)?, place, ticket })
    }

    /// Waits for a choice, and for nothing after it.
    ///
    /// # Errors
    /// [`Error::NoResult`] if it never came; what the device reports.
    pub fn read(&self, gpu: &Gpu, output: &LastOutput) -> Result<SampledToken> {
        let mut bytes = [0; BYTES];
        gpu.read_into(&self.places[output.place], &mut bytes, &output.submission)?;
        let words = bytemuck::pod_read_unaligned::<[u32; Plan::TOKEN_WORDS]>(&bytes);
        if words[Plan::TICKET] != output.ticket {
            gpu.check()?; // a lost device leaves no result either
            return Err(Error::NoResult);
        }
        let [chosen, likeliest, ..] = words;
        Ok(SampledToken { chosen, likeliest })
    }
}

impl SampledToken {
    /// The token to go on with.
    pub fn chosen(self) -> Result<u32> {
        known(self.chosen)
    }

    /// The most likely token.
    pub fn likeliest(self) -> Result<u32> {
        known(self.likeliest)
    }
}

fn known(token: u32) -> Result<u32> {
    if token == NO_TOKEN { Err(Error::NotANumber) } else { Ok(token) }
}
