//! The way of a token, from top to bottom: what to run next, its submission, and taking its result.
//!
//! The host decides what the GPU runs next: a part of a prompt, a token, the token that the GPU has sampled itself, or the
//! head alone. It writes the state for that, submits the steps, and takes the result later: the next token is submitted
//! before the result of the one before it is read, so that the GPU does not wait for the host.
//!
//! The result also shows whether any work since the result before it was lost. If so, nobody knows what the cache holds of
//! the tokens that no result has confirmed, and they are removed from the session.

use super::prompt_plans::PromptPlan;
use super::{LastOutput, Session};
use crate::error::{Error, Result};
use crate::gpu::ReadbackCopy;
use crate::kernels::NO_TOKEN;
use crate::model::Outputs;
use crate::plan::Plan;
use std::ops::ControlFlow;
use std::time::Instant;

/// What the GPU runs next.
#[derive(Clone, Copy)]
pub(super) enum Next {
    /// The layers, for a token that others follow. Nothing but its KV rows is wanted.
    Layers(u32),
    /// The layers, the head and the sampling, for the last one of some tokens.
    Token(u32),
    /// The same, for the token that the GPU has sampled and that the host may not know yet.
    SampledToken,
    /// The head and the sampling, for the last token of a prompt whose parts went through the layers.
    Head,
    /// The sampling, from the logits of the last token.
    Sampling,
}

impl Session {
    /// Feeds tokens after those already there.
    ///
    /// # Errors
    /// [`Error::TokenOutOfRange`], [`Error::ContextFull`], or what the device reports. After an error the session holds the
    /// tokens that were fed before it, and after [`Error::NoResult`] those that an earlier result has confirmed.
    pub fn feed(&mut self, tokens: &[u32]) -> Result<()> {
        self.feed_with(tokens, &mut |_| ControlFlow::Continue(()))
    }

    /// Feeds tokens like [`Session::feed`] and calls `progress` with the number of these tokens that the session holds:
    /// after each submission, and again and again while kernels compile. Stops if `progress` says so.
    ///
    /// # Errors
    /// As [`Session::feed`], and [`Error::Cancelled`], after which the session keeps the tokens that it holds.
    pub fn feed_with(&mut self, tokens: &[u32], progress: &mut dyn FnMut(usize) -> ControlFlow<()>) -> Result<()> {
        let before = self.tokens.len();
        self.check(before, tokens)?;
        if tokens.is_empty() {
            return Ok(());
        }
        self.parts.begin(before);
        let mut fed = 0;
        while fed < tokens.len() {
            let rest = &tokens[fed..];
            let part = &rest[..self.parts.next(self.tokens.len(), rest.len())];
            match *part {
                [token] if rest.len() == 1 => self.run(Next::Token(token))?,
                [token] => self.run(Next::Layers(token))?,
                _ if self.run_part(part, Outputs::Last, fed == 0, &mut |held| progress(held - before))? => {}
                _ => continue, // in smaller parts
            }
            fed += part.len();
            going_on(progress(fed))?;
        }
        self.parts.end();
        if self.output.is_none() {
            self.run(Next::Head)?;
            going_on(progress(fed))?;
        }
        Ok(())
    }

    /// Feeds the token that was sampled after the last one, and returns it.
    ///
    /// The GPU knows this token before the host does. So it is submitted first and read afterwards, and the GPU is at work
    /// while the host uses the token. Calling this in a loop is the fastest way to generate. If the token should not have
    /// been fed, because it ends a reply, [`Session::rewind`] by one: the next token that is fed overwrites its KV rows.
    ///
    /// # Errors
    /// [`Error::ContextFull`], which leaves everything as it was. [`Error::Argument`] as for [`Session::logits`].
    /// [`Error::NotANumber`] if no logit is a number, or what the device reports: then nothing more was fed, and the output
    /// of the last token is gone. [`Error::NoResult`] as for [`Session::logits`].
    pub fn next_token(&mut self) -> Result<u32> {
        self.check(self.tokens.len() + 1, &[])?;
        self.last_output()?;
        let before = self.submissions.place;
        self.run(Next::SampledToken)?;
        let sampled = self.take(before).and_then(|[sampled, ..]| known(sampled));
        let token = sampled.inspect_err(|_| self.output = None)?;
        self.tokens.push(token);
        Ok(token)
    }

    /// The token that was sampled after the last one, with the parameters of [`Session::set_sampling`].
    ///
    /// # Errors
    /// As for [`Session::most_likely`].
    pub fn sampled_token(&mut self) -> Result<u32> {
        self.last_output()?;
        let [sampled, ..] = self.take(self.submissions.place)?;
        known(sampled)
    }

    /// The most likely token after the last one that was fed, with bias and penalties.
    ///
    /// # Errors
    /// As for [`Session::logits`]; [`Error::NotANumber`] if no logit is a number.
    pub fn most_likely(&mut self) -> Result<u32> {
        self.last_output()?;
        let [_, likeliest, _] = self.take(self.submissions.place)?;
        known(likeliest)
    }

    /// Runs one token, or a part of its steps, in one submission.
    pub(super) fn run(&mut self, next: Next) -> Result<()> {
        let (position, head, hidden) = (self.tokens.len(), self.planned.plan.head, Some(LastOutput::Hidden));
        let (token, position, first, output) = match next {
            Next::Layers(token) => (Some(token), position, 0, None),
            Next::Token(token) => (Some(token), position, 0, hidden),
            Next::SampledToken => (None, position, 0, hidden),
            Next::Head => (None, position.saturating_sub(1), head, hidden),
            Next::Sampling => (None, position.saturating_sub(1), self.planned.sampling.first, self.output),
        };
        self.output = None; // until there is another
        self.write(position, token)?;
        // The result before this one is read later, so this one has the other place.
        let place = self.submissions.place ^ usize::from(matches!(next, Next::SampledToken));
        let submitted = self.submit(first, output.is_some(), place);
        self.or_rewound(submitted)?;
        self.tokens.extend(token);
        self.output = output;
        Ok(())
    }

    /// Writes the state for a position, with a new submission number, and the token unless the GPU has written it.
    pub(super) fn write(&mut self, position: usize, token: Option<u32>) -> Result<()> {
        let (gpu, number) = (self.executor.gpu(), self.submissions.next_number());
        gpu.write(self.executor.local(Plan::BATCH), 0, self.state.at(position, number))?;
        token.map_or(Ok(()), |token| gpu.write(self.executor.local(Plan::TOKENS), 0, &token.to_le_bytes()))
    }

    /// Submits the steps of the token's plan from `first` to the end of the layers, or to the sampled token if that is
    /// wanted. Adjusted logits are sampled by the steps of another plan.
    fn submit(&mut self, first: usize, wanted: bool, place: usize) -> Result<()> {
        let (executor, plan, own) = (&self.executor, &self.planned.plan, &self.planned.sampling);
        let (sampler, sampling, steps) = match &self.adjusting {
            Some(adjusting) => {
                (&adjusting.executor, &adjusting.planned.sampling, 0..adjusting.planned.plan.steps.len())
            }
            None => (executor, own, own.first..plan.steps.len()),
        };
        let (end, steps) = if wanted { (own.first, steps) } else { (plan.head, 0..0) };
        if let Some(adjusting) = self.adjusting.as_ref().filter(|_| wanted) {
            adjusting.write(&self.tokens, first == 0)?;
        }
        let unneeded = (!self.sampling.filters()).then_some(sampling.histogram);
        let then = (sampler, steps.filter(|step| Some(*step) != unneeded));
        let (state, token) = (executor.local(Plan::BATCH), executor.local(Plan::TOKENS));
        let submit = |copies: &[ReadbackCopy<'_>]| executor.submit_with(first..end, then, copies);
        self.submissions.submit(executor.gpu(), place, state, wanted.then_some(token), submit).map(drop)
    }

    /// Computes a part of a prompt, several tokens together, in several short submissions. `idle` says that the GPU has
    /// nothing to do before the first one. Calls `progress` after each submission but the last with the number of tokens
    /// that the session holds. Returns false if it gives the part up because it would take too long; the next parts are
    /// then smaller.
    pub(super) fn run_part(
        &mut self,
        part: &[u32],
        outputs: Outputs,
        idle: bool,
        progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<bool> {
        self.output = None;
        let (held, count, token) = (self.tokens.len(), part.len(), (&self.planned, &self.executor));
        let mut go_on = || going_on(progress(held));
        let plan = self.plans.plan((held, count), outputs, &self.model, token, &mut go_on)?;
        plan.write(&self.state, held, part, self.submissions.next_number())?;
        let PromptPlan { executor, planned, pace } = plan;
        let (gpu, state, place) = (executor.gpu(), executor.local(Plan::BATCH), self.submissions.place);
        let since = Instant::now();
        let newest = self.submissions.newest().cloned();
        pace.start(&planned.plan, &self.model.target().limit, held + count, newest, idle);
        let (mut first, end) = (0, planned.plan.steps.len());
        while first < end {
            let steps = pace.next(first);
            let submit = |copies: &[ReadbackCopy<'_>]| executor.submit(steps.clone(), copies);
            let submission = match self.submissions.submit(gpu, place, state, None, submit) {
                Ok(submission) => submission,
                Err(error) => return self.or_rewound(Err(error)),
            };
            first = steps.end;
            pace.submitted(gpu, submission, steps)?;
            if first < end {
                going_on(progress(held))?;
                let so_far = pace.so_far().filter(|_| outputs == Outputs::Last);
                if so_far.is_some_and(|(so_far, expected)| self.parts.give_up(count, so_far, expected)) {
                    return Ok(false);
                }
            }
        }
        self.tokens.extend_from_slice(part);
        if outputs == Outputs::Last {
            self.parts.took(count, since.elapsed());
        }
        Ok(true)
    }

    /// Takes the result at a place. It confirms all tokens of the session.
    pub(super) fn take(&mut self, place: usize) -> Result<[u32; Plan::TOKEN_WORDS]> {
        let taken = self.submissions.take(self.executor.gpu(), place);
        let words = self.or_rewound(taken)?;
        self.confirmed = self.tokens.len();
        Ok(words)
    }

    /// Removes the tokens that no result has confirmed if the result is that work was lost.
    pub(super) fn or_rewound<T>(&mut self, result: Result<T>) -> Result<T> {
        if let Err(Error::NoResult) = result {
            self.submissions.forget();
            self.tokens.truncate(self.confirmed);
            self.output = None;
        }
        result
    }

    /// Waits until everything fed has been computed.
    ///
    /// # Errors
    /// What the device reports.
    pub fn wait(&mut self) -> Result<()> {
        self.submissions.wait(self.executor.gpu(), 0)
    }
}

/// The token that was sampled, or an error if no logit was a number.
fn known(token: u32) -> Result<u32> {
    if token == NO_TOKEN { Err(Error::NotANumber) } else { Ok(token) }
}

/// The error of a caller's wish to stop.
pub(super) fn going_on(flow: ControlFlow<()>) -> Result<()> {
    if flow.is_break() { Err(Error::Cancelled) } else { Ok(()) }
}
