//! What the GPU chose, on its way to the host.

use crate::error::{Error, Result};
use crate::gpu::{Buffer, Copy, Gpu, Readback, Submission};
use crate::kernels::NO_TOKEN;
use crate::plan::Plan;

/// Bytes of a choice.
const BYTES: usize = 4 * Plan::TOKEN_WORDS;

/// Two places to read choices from: one is written by the token under way while the other is read.
pub struct Choices {
    places: [Readback; 2],
    next: usize,
}

/// A token's output: the submission that leaves it on the device, and where its choice is read.
#[derive(Clone)]
pub struct Output {
    submission: Submission,
    place: usize,
}

impl Output {
    pub fn submission(&self) -> &Submission {
        &self.submission
    }
}

/// The tokens after the last one.
#[derive(Debug, Clone, Copy)]
pub struct Choice {
    chosen: u32,
    likeliest: u32,
}

impl Choices {
    pub fn new(gpu: &Gpu) -> Result<Self> {
        let place = || gpu.readback("choice", BYTES as u64);
        Ok(Self { places: [place()?, place()?], next: 0 })
    }

    /// Has `submit` copy the choice to the place whose turn it is.
    pub fn submit(&mut self, token: &Buffer, submit: impl FnOnce(Copy<'_>) -> Result<Submission>) -> Result<Output> {
        let place = self.next;
        self.next = 1 - place;
        let copy = Copy { from: token, offset: 0, bytes: BYTES as u64, to: &self.places[place] };
        Ok(Output { submission: submit(copy)?, place })
    }

    /// Waits for a choice, and for nothing after it.
    pub fn read(&self, gpu: &Gpu, output: &Output) -> Result<Choice> {
        let mut bytes = [0; BYTES];
        gpu.read_into(&self.places[output.place], &mut bytes, &output.submission)?;
        let [chosen, likeliest, _] = bytemuck::pod_read_unaligned::<[u32; Plan::TOKEN_WORDS]>(&bytes);
        Ok(Choice { chosen, likeliest })
    }
}

impl Choice {
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
