//! The next tokens: the one that was sampled, and with it as many of those that follow as were guessed right.

use super::Session;
use super::guesses::Guess;
use super::step::{StepRequest, Token, Want, known};
use crate::error::{Error, Result};
use crate::model::{most_drafts, no_block};
use crate::plan::{Plan, RowHeader};

impl Session {
    /// Feeds the token that was sampled after the last one, and returns it.
    ///
    /// The GPU knows this token before the host does. So it is submitted first and read afterwards, and the GPU is at work
    /// while the host uses the token. Calling this in a loop is the fastest way to generate. If the token should not have
    /// been fed, because it ends a reply, [`Session::rewind`] by one: the next token that is fed overwrites its KV rows.
    ///
    /// # Errors
    /// [`Error::ContextFull`] and [`Error::PoolFull`], which leave everything as it was. [`Error::Argument`] as for
    /// [`Session::logits`]. [`Error::NotANumber`] if no logit is a number, or what the device reports: then nothing more was
    /// fed, and the output of the last token is gone. [`Error::NoResult`] as for [`Session::logits`].
    pub fn next_token(&mut self) -> Result<u32> {
        self.check(self.tokens().len() + 1, &[])?;
        let (mut device, sequence) = self.device()?;
        let request = StepRequest::row(Token::Sampled, sequence.sampling.want());
        device.step(sequence, request)?.first().copied().ok_or(Error::NoResult)
    }

    /// Feeds the token that was sampled after the last one, as [`Session::next_token`], and with it as many of those that
    /// follow as were guessed right: see [`Session::set_speculation`]. Returns all that were fed, in order: at least one, and
    /// at most `most`.
    ///
    /// Each is the token that the model samples at its position by itself. Only the rounding of sums may differ between a row
    /// alone and several rows, so that of two tokens that are equally likely the other one may be sampled.
    ///
    /// # Errors
    /// As for [`Session::next_token`].
    pub fn next_tokens(&mut self, most: usize) -> Result<Vec<u32>> {
        self.check(self.tokens().len() + 1, &[])?;
        if let Some(Guess { evidence, count, tokens }) = self.guess(most) {
            let fed = match tokens {
                Some(drafts) => self.verify_some(&drafts),
                None => self.predict(count, 0),
            };
            match fed {
                Err(Error::PoolFull { .. }) => {} // there may be memory for the token that is certain
                Err(Error::OutOfMemory { .. } | Error::TooLarge { .. }) if self.sequence.has_output() => {
                    self.stop_guessing(); // plans that guess do not fit
                }
                fed => {
                    let fed = fed?;
                    self.drafter.verified((evidence, count), fed.len(), self.sequence.tokens.len());
                    return Ok(fed);
                }
            }
        }
        let (mut device, sequence) = self.device()?;
        let request = StepRequest::row(Token::Sampled, sequence.sampling.want());
        let fed = device.step(sequence, request)?;
        drop(device);
        self.drafter.took_alone(self.sequence.tokens.len());
        Ok(fed)
    }

    /// Feeds the token that was sampled after the last one, and those of `drafts` that are sampled after it one after the
    /// other. Returns all that were fed.
    ///
    /// # Errors
    /// [`Error::Argument`] for more drafts than a step verifies; otherwise as for [`Session::next_token`].
    pub fn verify(&mut self, drafts: &[u32]) -> Result<Vec<u32>> {
        self.check_drafts(drafts.len())?;
        self.check(self.tokens().len() + 1, drafts)?;
        self.verify_some(drafts)
    }

    fn verify_some(&mut self, drafts: &[u32]) -> Result<Vec<u32>> {
        let request = StepRequest::verification(Token::Sampled, drafts, Want::Sample(None));
        let (mut device, sequence) = self.device()?;
        let fed = device.step(sequence, request)?;
        drop(device);
        if !drafts.is_empty() {
            self.drafter.count(drafts.len(), fed.len() - 1);
        }
        Ok(fed)
    }

    /// Verifies drafts by the block, and has it make others meanwhile. The first `right` of them are what is sampled,
    /// whatever the block made.
    fn predict(&mut self, count: usize, right: usize) -> Result<Vec<u32>> {
        let (mut device, sequence) = self.device()?;
        let mut drafts = device.prepare_drafts(sequence, count)?;
        // A draft that is named by what is sampled after the row before it is always right.
        let first = device.sessions();
        drafts.iter_mut().take(right).enumerate().for_each(|(row, name)| *name = RowHeader::sampled(first + row));
        let request = StepRequest::verification(Token::Sampled, &drafts, Want::Sample(None));
        let fed = device.step(sequence, StepRequest { drafts: count, ..request })?;
        drop(device);
        self.drafter.count(count, fed.len() - 1);
        Ok(fed)
    }

    /// As if the block had made `count` drafts of which `accepted` are right, for measurements on random weights: a step as
    /// [`Session::next_tokens`] takes it.
    ///
    /// # Errors
    /// As there; [`Error::Argument`] for a model without a block.
    #[doc(hidden)]
    pub fn predict_assumed(&mut self, count: usize, accepted: usize) -> Result<Vec<u32>> {
        if !self.model().has_block() {
            return Err(no_block());
        }
        self.check_drafts(count)?;
        self.check(self.tokens().len() + 1 + count, &[])?;
        self.predict(count, accepted)
    }

    /// An error for more drafts than a step verifies.
    pub(super) fn check_drafts(&self, count: usize) -> Result<()> {
        let most = most_drafts(self.model().config());
        if count <= most {
            return Ok(());
        }
        let (expected, found) = (format!("at most {most}"), count.to_string());
        Err(Error::Argument { argument: "drafts", expected, found })
    }

    /// The token that was sampled after the last one, with the parameters of [`Session::set_sampling`].
    ///
    /// # Errors
    /// As for [`Session::most_likely`].
    pub fn sampled_token(&mut self) -> Result<u32> {
        let [sampled, ..] = self.sampled()?;
        known(sampled)
    }

    /// The most likely token after the last one that was fed, with bias and penalties.
    ///
    /// # Errors
    /// As for [`Session::logits`]; [`Error::NotANumber`] if no logit is a number.
    pub fn most_likely(&mut self) -> Result<u32> {
        let [_, likeliest, _] = self.sampled()?;
        known(likeliest)
    }

    fn sampled(&mut self) -> Result<[u32; Plan::SAMPLED_WORDS]> {
        let (mut device, sequence) = self.device()?;
        device.sample_if_left(sequence)?;
        device.newest(sequence)
    }
}
