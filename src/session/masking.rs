//! Sampling under a mask: a caller says, of each token, whether it may come next.
//!
//! The mask for a token depends on the one before it, so the host has to know that one first. What need not wait for the
//! mask is submitted before: the layers and the head. While the GPU computes them, the caller finds out which tokens are
//! allowed. Then the sampling is a submission of its own, with the mask.

use super::pool::{RowOutput, Runner};
use super::run::{Next, known};
use super::{LastOutput, Session};
use crate::error::{Error, Result};
use crate::gpu::{BufferCopy, BufferRange};
use crate::kernels::mask_words;

impl Session {
    /// Whether masks say from here on which tokens are allowed. Then nothing is sampled when tokens are fed, but only when
    /// [`Session::sample_masked`] says from which of them. [`Session::next_token`] and all others that need a token that was
    /// sampled sample it from all tokens, if none was.
    pub fn set_masked(&mut self, masked: bool) {
        self.masked = masked;
    }

    /// Samples the token after the last one that was fed from those that `mask` allows, with the parameters of
    /// [`Session::set_sampling`], and returns it. It is not fed. The mask has a bit for each token, 32 a word, the lowest
    /// bit of a word first. Top-k, top-p and min-p filter the allowed tokens alone, so they may keep some that they
    /// would remove among all. Where none of them is set, the token that would be drawn from all tokens is drawn here
    /// if it is allowed.
    ///
    /// Where the same logits are sampled from again, the random number is the same.
    ///
    /// # Errors
    /// [`Error::Argument`] for a mask of another length or one that allows no token; [`Error::NotANumber`] if no allowed
    /// logit is a number; otherwise as for [`Session::logits`].
    pub fn sample_masked(&mut self, mask: &[u32]) -> Result<u32> {
        let vocab = self.model().config().vocab;
        let (words, last) = (mask_words(vocab), vocab % u32::BITS as usize);
        if mask.len() != words {
            let (expected, found) = (format!("{words} words, a bit a token"), format!("{}", mask.len()));
            return Err(Error::Argument { argument: "mask", expected, found });
        }
        let behind = if last == 0 { 0 } else { u32::MAX << last };
        let is_last = |place: usize| place + 1 == words;
        if mask.iter().enumerate().all(|(place, word)| word & !if is_last(place) { behind } else { 0 } == 0) {
            let (expected, found) = ("at least one token that is allowed".to_owned(), "none".to_owned());
            return Err(Error::Argument { argument: "mask", expected, found });
        }
        self.with_runner(|session, runner| {
            session.bring_logits(runner)?;
            session.run(runner, Next::Masked(mask))?;
            let [sampled, ..] = session.take(runner, runner.submissions.place)?;
            known(sampled)
        })
    }

    /// Samples after the last token, from all tokens, if that was left for later.
    pub(super) fn sample_if_left(&mut self, runner: &mut Runner) -> Result<()> {
        if !self.unsampled {
            return Ok(());
        }
        self.bring_logits(runner)?;
        self.run(runner, Next::Sampling)
    }

    /// Sees to it that the plan of a row alone has the logits of the last token.
    fn bring_logits(&mut self, runner: &mut Runner) -> Result<()> {
        match self.last_output(runner)? {
            LastOutput::Logits | LastOutput::Hidden => Ok(()),
            LastOutput::Sampled => self.run_again(runner),
            LastOutput::Row(at) => self.copy_row(runner, at),
        }
    }

    /// Copies the logits that a step of several rows left for this session to where those of a row alone are.
    fn copy_row(&mut self, runner: &mut Runner, at: RowOutput) -> Result<()> {
        let to = runner.plans.alone.executor.local(self.planned.head()?.logits.buffer.local()?).clone();
        let ready = runner.plans.get(self.pool.model(), at.shape, self.options.limit, &mut || Ok(()))?;
        let rows = ready.planned.head()?.logits;
        let (offset, bytes) = (4 * (at.row * rows.pitch) as u64, 4 * rows.shape[0] as u64);
        let range = BufferRange { from: ready.executor.local(rows.buffer.local()?), offset, bytes };
        ready.executor.gpu().copy(&[BufferCopy { range, to: &to, at: 0 }])?;
        runner.holder = Some(self.sequence);
        self.output = Some(LastOutput::Logits);
        Ok(())
    }
}
