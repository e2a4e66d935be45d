//! The way of a token, from top to bottom: what to run next, its submission, and taking its result.
//!
//! The host decides what the GPU runs next: a part of a prompt, a token, the token that the GPU has sampled itself, or the
//! head alone. It writes the batch for that, submits the steps, and takes the result later: the next token is submitted
//! before the result of the one before it is read, so that the GPU does not wait for the host.
//!
//! The result also shows whether any work since the result before it was lost. If so, nobody knows what the cache holds of
//! the tokens that no result has confirmed, and they are removed from the session.

use super::pool::Runner;
use super::submissions::Sampled;
use super::{LastOutput, Session, heeding};
use crate::cancel::Cancel;
use crate::error::{Error, Result};
use crate::kernels::NO_TOKEN;
use crate::model::{BatchShape, DraftInputs, Outputs};
use crate::plan::{Plan, RowHeader};
use std::time::Instant;

/// What the GPU runs next.
#[derive(Clone, Copy)]
pub(super) enum Next<'a> {
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
    /// The same, from those that a mask allows.
    Masked(&'a [u32]),
}

impl Session {
    /// Feeds tokens after those already there.
    ///
    /// # Errors
    /// [`Error::TokenOutOfRange`], [`Error::ContextFull`], [`Error::PoolFull`], or what the device reports. After an error the
    /// session holds the tokens that were fed before it, and after [`Error::NoResult`] those that an earlier result has
    /// confirmed.
    pub fn feed(&mut self, tokens: &[u32]) -> Result<()> {
        self.feed_while(tokens, &mut |_| Ok(()))
    }

    /// Feeds tokens like [`Session::feed`] and calls `progress` with the number of these tokens that the session holds:
    /// before each submission, and again and again while kernels compile. After each call it looks at `cancel`. `progress`
    /// must not use another session of the same pool.
    ///
    /// # Errors
    /// As [`Session::feed`], and [`Error::Cancelled`], after which the session keeps the tokens that it holds.
    pub fn feed_with(&mut self, tokens: &[u32], cancel: &Cancel, progress: &mut dyn FnMut(usize)) -> Result<()> {
        heeding(cancel, || {
            self.feed_while(tokens, &mut |held| {
                progress(held);
                cancel.check()
            })
        })
    }

    /// Feeds tokens like [`Session::feed_with`], until `go_on` returns an error.
    ///
    /// # Errors
    /// As there, and that of `go_on`.
    pub(crate) fn feed_while(&mut self, tokens: &[u32], go_on: &mut dyn FnMut(usize) -> Result<()>) -> Result<()> {
        let before = self.tokens.len();
        self.check(before, tokens)?;
        if tokens.is_empty() {
            return Ok(());
        }
        self.with_runner(|session, runner| session.reach(runner, tokens.len()))?;
        self.parts.begin(before);
        let mut fed = 0;
        while fed < tokens.len() {
            let rest = &tokens[fed..];
            let part = &rest[..self.parts.next(self.tokens.len(), rest.len())];
            let last = rest.len() == part.len();
            let ran = self.with_runner(|session, runner| match *part {
                [token] if last => session.run(runner, Next::Token(token)).map(|()| true),
                [token] => session.run(runner, Next::Layers(token)).map(|()| true),
                _ => {
                    let next = rest.get(part.len()).copied();
                    let part = (part, session.part_shape(rest.len()));
                    session.run_prompt(runner, part, next, fed == 0, &mut |held| go_on(held - before))
                }
            })?;
            if ran {
                fed += part.len();
                go_on(fed)?;
            } // otherwise in smaller parts
        }
        self.parts.end();
        if self.output.is_none() {
            self.with_runner(Self::end_prompt)?;
            go_on(fed)?;
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
    /// [`Error::ContextFull`] and [`Error::PoolFull`], which leave everything as it was. [`Error::Argument`] as for
    /// [`Session::logits`]. [`Error::NotANumber`] if no logit is a number, or what the device reports: then nothing more was
    /// fed, and the output of the last token is gone. [`Error::NoResult`] as for [`Session::logits`].
    pub fn next_token(&mut self) -> Result<u32> {
        self.check(self.tokens.len() + 1, &[])?;
        self.with_runner(Self::next_token_of)
    }

    pub(super) fn next_token_of(&mut self, runner: &mut Runner) -> Result<u32> {
        self.last_output(runner)?;
        self.sample_if_left(runner)?;
        let before = runner.submissions.place;
        self.run(runner, Next::SampledToken)?;
        let sampled = self.take(runner, before).and_then(|[sampled, ..]| known(sampled));
        let token = sampled.inspect_err(|_| self.output = None)?;
        self.tokens.push(token);
        Ok(token)
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
        self.with_runner(|session, runner| {
            session.last_output(runner)?;
            session.sample_if_left(runner)?;
            session.take(runner, runner.submissions.place)
        })
    }

    /// Uses the device, once it is this session's turn.
    pub(super) fn with_runner<T>(&mut self, work: impl FnOnce(&mut Self, &mut Runner) -> Result<T>) -> Result<T> {
        let pool = self.pool.clone();
        let runner = &mut *pool.enter()?;
        self.settle(runner)?;
        work(self, runner)
    }

    /// Runs one token, or a part of its steps, in one submission.
    pub(super) fn run(&mut self, runner: &mut Runner, next: Next<'_>) -> Result<()> {
        let (length, head, hidden) = (self.tokens.len(), self.planned.plan.head, Some(LastOutput::Hidden));
        let (token, first, output) = match next {
            Next::Layers(token) => (Some(token), 0, None),
            Next::Token(token) => (Some(token), 0, hidden),
            Next::SampledToken => (None, 0, hidden),
            // The hidden state of the last token is kept just before the head.
            Next::Head => (None, head - usize::from(self.planned.kept.is_some()), hidden),
            Next::Sampling | Next::Masked(_) => (None, self.planned.end(), self.output),
        };
        self.claim_rings(runner);
        let row = match next {
            Next::Head | Next::Sampling | Next::Masked(_) => {
                self.drafter.forget_sampled();
                self.drafter.block.reopen_last(length);
                self.row(0, length.saturating_sub(1))
            }
            _ => {
                self.reach(runner, 1)?;
                self.drafter.forget_sampled();
                if token.is_some() {
                    self.drafter.block.reopen_last(length);
                }
                self.keep_room(runner, 1, token)?;
                self.row(token.unwrap_or(RowHeader::sampled(self.sequence)), length)
            }
        };
        self.output = None; // until there is another
        runner.holder = Some(self.sequence);
        self.list_alone(runner)?;
        let mask = if let Next::Masked(mask) = next { Some(mask) } else { None };
        let waits = self.masked && !matches!(next, Next::Sampling | Next::Masked(_));
        let adjustments = match output {
            Some(_) if self.adjusts() && !waits => {
                let tokens = [self.tokens.as_slice(), token.as_slice()].concat();
                let listed = self.adjustments(&tokens, row.token >= RowHeader::SAMPLED);
                if mask.is_none() {
                    runner.plans.alone.adjust_up_to(self.pool.model(), listed.len())?;
                }
                Some(listed)
            }
            _ => None,
        };
        let count = adjustments.as_ref().map_or(0, Vec::len) as u32;
        if mask.is_some() {
            runner.plans.alone.mask_and_adjust_up_to(self.pool.model(), count as usize)?;
        }
        let (ready, submissions) = (&runner.plans.alone, &mut runner.submissions);
        submissions.write(ready, &[RowHeader { adjustments: count, first_page: 0, ..row }])?;
        // The result before this one is read later, so this one, if there is one, has the other place.
        let place = submissions.place ^ usize::from(matches!(next, Next::SampledToken) && !waits);
        let (end, sampled) = match output {
            Some(_) if waits => (self.planned.end(), None),
            Some(_) => {
                let (adjustments, filters) = (adjustments.as_deref(), self.sampling.filters());
                (self.planned.end(), Some(Sampled { adjustments, filters, mask }))
            }
            None => (head, None),
        };
        let submitted = submissions.run(ready, first..end, sampled, place).map(drop);
        self.or_rewound(runner, submitted)?;
        self.tokens.extend(token);
        (self.output, self.unsampled) = (output, waits);
        Ok(())
    }

    /// Runs the head for the last token of a prompt whose parts went through the layers.
    pub(super) fn end_prompt(&mut self, runner: &mut Runner) -> Result<()> {
        if runner.holder == Some(self.sequence) { self.run(runner, Next::Head) } else { self.run_again(runner) }
    }

    /// Runs the last token again, because another session has used what held its output.
    pub(super) fn run_again(&mut self, runner: &mut Runner) -> Result<()> {
        let Some(&last) = self.tokens.last() else { return Ok(()) };
        self.truncate(runner, self.tokens.len() - 1);
        self.run(runner, Next::Token(last))
    }

    /// Computes a part of a prompt, and has the multi-token-prediction block follow on it, if there is one. `next` is the
    /// token behind the part, if the prompt goes on. The rest is that of [`Session::run_part`].
    fn run_prompt(
        &mut self,
        runner: &mut Runner,
        (part, shape): (&[u32], BatchShape),
        next: Option<u32>,
        idle: bool,
        go_on: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<bool> {
        let (held, uses_block) = (self.tokens.len(), self.uses_block(runner));
        if uses_block {
            self.claim_rings(runner);
            self.drafter.block.reopen_last(held);
            self.catch_up(runner, part.first().copied())?;
        }
        if !self.run_part(runner, part, shape, idle, go_on)? {
            return Ok(false);
        }
        if uses_block {
            if next.is_none() {
                self.end_prompt(runner)?;
                self.drafter.block.forget_states(self.tokens.len() - 1);
            }
            let following = part[1..].iter().copied().chain([next.unwrap_or(RowHeader::sampled(self.sequence))]);
            let row = |((token, next), place): ((&u32, u32), usize)| RowHeader { next, ..self.row(*token, place) };
            let rows: Vec<RowHeader> = part.iter().zip(following).zip(held..).map(row).collect();
            self.compute_block(runner, &rows, shape, DraftInputs::Stream)?;
            self.drafter.block.computed_to(self.tokens.len());
        }
        Ok(true)
    }

    /// Computes a part of a prompt by the plan of a shape, several tokens together, in several short submissions. `idle`
    /// says that the GPU has nothing to do before the first one. Calls `go_on` before each submission with the number
    /// of tokens that the session holds. Returns false if it gives the part up because it would take too long; the next
    /// parts are then smaller.
    pub(super) fn run_part(
        &mut self,
        runner: &mut Runner,
        part: &[u32],
        shape: BatchShape,
        idle: bool,
        go_on: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<bool> {
        self.output = None;
        let (held, count, outputs) = (self.tokens.len(), part.len(), shape.outputs);
        self.reach(runner, count)?;
        runner.shared_runs += 1;
        let Runner { plans, submissions, .. } = runner;
        let ready = plans.get(self.pool.model(), shape, self.options.limit, &mut || go_on(held))?;
        let writes_out = ready.planned.writes_out();
        let rows: Vec<RowHeader> = part.iter().zip(held..).map(|(token, place)| self.row(*token, place)).collect();
        submissions.write(ready, &rows)?;
        let since = Instant::now();
        let newest = submissions.newest().cloned();
        let (gpu, limit, end) = (self.pool.model().gpu(), &self.pool.model().target().limit, ready.planned.end());
        ready.pace.start(&ready.planned.plan, limit, held + count, newest, idle);
        let mut first = 0;
        while first < end {
            go_on(held)?;
            let steps = ready.pace.next(first);
            let steps = steps.start..steps.end.min(end);
            let submission = match submissions.run(ready, steps.clone(), None, submissions.place) {
                Ok(submission) => submission,
                Err(error) => return self.or_rewound(runner, Err(error)),
            };
            first = steps.end;
            ready.pace.submitted(gpu, submission, steps)?;
            if first < end {
                let so_far = ready.pace.so_far().filter(|_| outputs == Outputs::Last);
                if so_far.is_some_and(|(so_far, expected)| self.parts.give_up(count, so_far, expected, writes_out)) {
                    return Ok(false);
                }
            }
        }
        self.tokens.extend_from_slice(part);
        self.drafter.forget_sampled();
        self.drafter.block.forget_states(self.tokens.len());
        match outputs {
            Outputs::Last => {
                runner.holder = Some(self.sequence); // the last step left the last token's hidden state there
                self.parts.took(count, since.elapsed(), writes_out);
            }
            Outputs::All | Outputs::Sequences | Outputs::Verified => runner.holder = None,
        }
        Ok(true)
    }

    /// The shape of the plan for the next part of a prompt, of which `rest` tokens are still to be computed: it has room for
    /// the block that the part belongs to.
    pub(super) fn part_shape(&self, rest: usize) -> BatchShape {
        let block = self.parts.block(self.tokens.len(), rest);
        BatchShape::of(self.options.room_for(block.len()), Outputs::Last, block.start, self.context())
    }

    /// The shape of the plan for `count` tokens behind those that are there.
    pub(super) fn shape(&self, count: usize, outputs: Outputs) -> BatchShape {
        BatchShape::of(self.options.room_for(count), outputs, self.tokens.len(), self.context())
    }

    /// Takes the result at a place. It confirms all tokens of the session.
    pub(super) fn take(&mut self, runner: &mut Runner, place: usize) -> Result<[u32; Plan::SAMPLED_WORDS]> {
        Ok(self.take_all(runner, place)?[self.sequence])
    }

    /// As [`Session::take`], of all places of [`Plan::SAMPLED`].
    pub(super) fn take_all(&mut self, runner: &mut Runner, place: usize) -> Result<Vec<[u32; Plan::SAMPLED_WORDS]>> {
        let taken = runner.submissions.take(self.pool.model().gpu(), place);
        let words = self.or_rewound(runner, taken)?;
        self.confirm(runner);
        Ok(words)
    }

    /// Removes the tokens that no result has confirmed if the result is that work was lost.
    pub(super) fn or_rewound<T>(&mut self, runner: &mut Runner, result: Result<T>) -> Result<T> {
        if let Err(Error::NoResult) = result {
            runner.lost();
            self.output = None;
            let _ = self.settle(runner); // which has the same error, if any
        }
        result
    }

    /// Waits until everything fed has been computed.
    ///
    /// # Errors
    /// What the device reports.
    pub fn wait(&mut self) -> Result<()> {
        let pool = self.pool.clone();
        pool.enter()?.submissions.wait(pool.model().gpu(), 0)
    }
}

/// The token that was sampled, or an error if no logit was a number.
pub(super) fn known(token: u32) -> Result<u32> {
    if token == NO_TOKEN { Err(Error::NotANumber) } else { Ok(token) }
}
