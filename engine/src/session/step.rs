//! The only way to compute rows on the GPU: parts of prompts, tokens, drafts, and choices from logits that are
//! available already.
//!
//! A [`StepRequest`] lists the rows, their sequences, and what is wanted of each. [`PoolState::run`] chooses the plan,
//! writes the batch, records which sequence owns which buffer afterwards, and submits. [`PoolState::take`] reads the
//! result later: the next token is submitted before the result of the previous one is read, so that the GPU does not
//! wait for the host.
//!
//! The result also shows whether any work since the previous result was lost. If so, the content of the cache is
//! unknown for the tokens that no result has confirmed, and they are removed from the sequences.
//!
//! # Calls
//!
//! The calls from the app to the GPU's module for a token of a reply, each made by the one before it:
//!
//! 1. `Reply::next` (`chat/reply.rs`)
//! 2. `Generation::next` (`generate.rs`)
//! 3. `GenerationTask::advance` (`generate/task.rs`)
//! 4. `GenerationTask::next_token` (`generate/task.rs`)
//! 5. `Session::next_tokens` (`session/next.rs`)
//! 6. `Pool::step` (`session/next.rs`), which decides about guesses
//! 7. `Pool::verify` (`session/next.rs`), which makes the [`StepRequest`]
//! 8. `PoolState::run` (`session/step.rs`)
//! 9. `Submissions::run` (`session/submissions.rs`)
//! 10. `Results::submit` (`gpu/results.rs`), which adds the number of the submission to its result
//! 11. `Executor::submit_with` (`plan/executor.rs`), which lists the dispatches
//! 12. `Gpu::submit` (`gpu/pass.rs`), which records them and hands them to wgpu
//!
//! For a token that is chosen on the host, such as one for a grammar or a chooser, 4 calls `Policy::next`
//! (`generate/choose.rs`), which also feeds it; 5 to 7 are then left out. A step that was recorded ahead goes from 9
//! through `Submissions::run_prepared`, `Results::submit_first` and `Gpu::submit_prepared`.
//!
//! The result comes back to `PoolState::take` (`session/step.rs`), which 7 calls; each call is made by the next one:
//!
//! 1. `Gpu::read` (`gpu/memory.rs`)
//! 2. `Results::arrived` (`gpu/results.rs`), which checks that no work was lost
//! 3. `Results::read` (`gpu/results.rs`)
//! 4. `Submissions::take` (`session/submissions.rs`)
//! 5. `PoolState::results` (`session/step.rs`)
//! 6. `PoolState::take_fed` (`session/step.rs`)
//!
//! Call 4 above then makes an event of the token with `GenerationTask::close_token` (`generate/task.rs`) and
//! `EventBuilder::token` (`generate/event_builder.rs`), which parses the text.
//!
//! In a scheduler, a thread that waits for an event does the work of all replies. Instead of 1 to 5 it calls
//! `ScheduledReply::next` (`scheduler.rs`), `Shared::next` (`scheduler/shared.rs`), `Engine::round`
//! (`scheduler/engine.rs`), `Engine::decode` (`scheduler/steps.rs`), `Engine::step` (`scheduler/steps.rs`) and
//! `Pool::next_tokens_of_each` (`session/next.rs`). A reply that is alone is advanced by 3.

mod batch;
mod part;

pub use batch::Batch;
pub use part::Part;
pub use part::unless_too_large;

use super::block::Continued;
use super::owners::{Output, Values};
use super::plans::PlanKey;
use super::pool_state::PoolState;
use super::sequence::Sequence;
use super::submissions::Sampled;
use crate::error::{Error, Result};
use crate::gpu::{Buffer, BufferCopy, BufferRange};
use crate::kernels::NO_TOKEN;
use crate::model::{BatchPlan, BatchShape};
use crate::plan::{Plan, RowHeader, Tensor};

/// The work of a step.
pub struct StepRequest<'a> {
    /// The rows of a sequence are adjacent, in the order of the sequences.
    pub rows: Vec<Row<'a>>,
    /// How many drafts the block makes for each sequence whose rows verify earlier ones.
    pub drafts: usize,
    /// How the rows are computed, if they are a part of a prompt, or the last parts of several.
    pub part: Option<Part<'a>>,
}

/// A row of a step.
#[derive(Clone, Copy)]
pub struct Row<'a> {
    /// The index of its sequence within the request.
    pub of: usize,
    pub token: Token,
    pub want: Want<'a>,
}

/// The token of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token {
    Known(u32),
    /// The token that was sampled after the last one. The host need not know it yet.
    Sampled,
    /// A guess: its id, or the name of a value on the device. It is fed if it is the token that is sampled after the
    /// row before it.
    Draft(u32),
    /// The last token of the sequence, which was fed before.
    Last,
}

/// What is wanted of a row in addition to its KV row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want<'a> {
    Nothing,
    Logits,
    /// The next token, sampled from those that the mask allows, if there is one.
    Sample(Option<&'a [u32]>),
}

/// A submitted step.
pub struct Ticket {
    /// The places of the previous result and of its own.
    before: usize,
    place: usize,
    run: u64,
    /// Whether it was abandoned because it would have taken too long. Then it feeds nothing.
    pub given_up: bool,
    /// The plan, if it verifies drafts, which are fed as far as they are right.
    verifies: Option<BatchShape>,
    /// What it feeds each sequence, beginning with the token that was sampled before; empty if all tokens are known.
    feeds: Vec<Fed>,
}

/// What a step feeds a sequence.
struct Fed {
    /// The first row.
    row: usize,
    /// The token that was sampled before, if the host knows it.
    first: Option<u32>,
    drafts: usize,
    /// How many further drafts the block makes.
    made: usize,
    /// Whether the next token is sampled.
    samples: bool,
}

impl<'a> StepRequest<'a> {
    pub fn new(rows: Vec<Row<'a>>) -> Self {
        Self { rows, drafts: 0, part: None }
    }

    /// A single row.
    pub fn row(token: Token, want: Want<'a>) -> Self {
        Self::new(vec![Row { of: 0, token, want }])
    }

    /// A row, and drafts of the tokens that follow it.
    pub fn verification(first: Token, drafts: &[u32], want: Want<'a>) -> Self {
        let tokens = [first].into_iter().chain(drafts.iter().map(|draft| Token::Draft(*draft)));
        Self::new(tokens.map(|token| Row { of: 0, token, want }).collect())
    }

    /// Whether any row's token satisfies a condition.
    fn has(&self, is: impl Fn(&Token) -> bool) -> bool {
        self.rows.iter().any(|row| is(&row.token))
    }

    /// Whether a row has a draft.
    fn verifies(&self) -> bool {
        self.has(|token| matches!(token, Token::Draft(_)))
    }

    /// The first row of a sequence, and the number of its rows.
    fn rows_of(&self, of: usize) -> (usize, usize) {
        let first = self.rows.iter().position(|row| row.of == of).unwrap_or_default();
        (first, self.rows.iter().filter(|row| row.of == of).count())
    }

    /// How many drafts the block makes for a sequence: none, unless the rows verify drafts that the block has made.
    fn makes(&self, of: usize) -> usize {
        let is_made = |row: &Row<'_>| matches!(row.token, Token::Draft(name) if name >= RowHeader::SAMPLED);
        if self.rows.iter().any(|row| row.of == of && is_made(row)) { self.drafts } else { 0 }
    }

    /// The mask of the only row, if it has one.
    fn mask(&self) -> Option<&'a [u32]> {
        if let [Row { want: Want::Sample(mask), .. }] = self.rows[..] { mask } else { None }
    }
}

impl PoolState {
    /// Submits a step. Known tokens belong to their sequences afterwards, and others once the ticket is taken.
    ///
    /// # Errors
    /// [`Error::PoolFull`], [`Error::OutOfMemory`] for a plan that does not fit, and [`Error::Argument`] for a sequence
    /// without an output: after these the sequences still have their tokens. Any error from the device.
    pub fn run(&mut self, sequences: &mut [&mut Sequence], mut request: StepRequest<'_>) -> Result<Ticket> {
        let batch = match self.write(sequences, &mut request) {
            Err(error @ Error::DeviceLost { .. }) => {
                sequences.iter_mut().for_each(|sequence| sequence.output = None);
                return Err(error);
            }
            written => self.or_rewound(sequences, written)?,
        };
        sequences.iter_mut().for_each(|sequence| sequence.output = None); // until there is another
        let before = self.submissions.place;
        // The previous result is read later, so this one gets the other place.
        let turns = batch.samples && request.has(|token| matches!(token, Token::Sampled | Token::Draft(_)));
        let place = before ^ usize::from(turns);
        let submitted = match &mut request.part {
            Some(part) => {
                let held = sequences.iter().map(|sequence| sequence.tokens.len()).max().unwrap_or_default();
                self.submit_part(&batch, part, held)
            }
            None => {
                let filters = sequences.iter().any(|sequence| sequence.sampling.filters());
                let (adjustments, verifies) = (batch.adjustments.as_deref(), request.verifies());
                let sampled = Sampled { adjustments, filters, mask: request.mask(), verifies };
                let ready = self.plans.get(&self.model, batch.plan, &mut || Ok(()))?;
                let sampled = batch.samples.then_some(sampled);
                self.submissions.run(ready, batch.steps.clone(), sampled, place).map(|_| true)
            }
        };
        let given_up = !self.or_rewound(sequences, submitted)?;
        let verifies = match batch.plan {
            PlanKey::Shape(shape) if batch.samples && request.verifies() => Some(shape),
            _ => None,
        };
        if verifies.is_some() && !unless_too_large(self.make_drafts(sequences, &request, &batch, before))? {
            request.drafts = 0;
        }
        if !given_up {
            self.note(sequences, &request, &batch)?;
        }
        let feeds = if request.has(|token| *token == Token::Sampled) || verifies.is_some() {
            (0..sequences.len()).map(|of| fed(&request, &batch, of)).collect()
        } else {
            Vec::new()
        };
        Ok(Ticket { before, place, run: batch.run, given_up, verifies, feeds })
    }

    /// Waits for the tokens that a step has fed, and returns them for each sequence, to which they belong afterwards.
    /// If no logit of a sequence is a number, its result is [`Error::NotANumber`], and it has no output any more.
    ///
    /// # Errors
    /// [`Error::NoResult`] if work was lost; any error from the device.
    pub fn take(&mut self, sequences: &mut [&mut Sequence], ticket: &Ticket) -> Result<Vec<Result<Vec<u32>>>> {
        if ticket.feeds.is_empty() {
            return Ok(sequences.iter().map(|_| Ok(Vec::new())).collect());
        }
        let taken = self.take_fed(sequences, ticket);
        if taken.is_err() {
            sequences.iter_mut().for_each(|sequence| sequence.output = None);
        }
        taken
    }

    fn take_fed(&mut self, sequences: &mut [&mut Sequence], ticket: &Ticket) -> Result<Vec<Result<Vec<u32>>>> {
        // Another session's work may have left its number at the place of the previous result.
        let are_known = self.sessions() == 1 && ticket.feeds.iter().all(|fed| fed.first.is_some());
        let before = if are_known { Vec::new() } else { self.results(sequences, ticket.before)? };
        let after = match ticket.verifies {
            Some(shape) => Some((shape, self.results(sequences, ticket.place)?)),
            None => None,
        };
        let mut all = Vec::with_capacity(sequences.len());
        for (sequence, fed) in sequences.iter_mut().zip(&ticket.feeds) {
            let first = fed.first.map_or_else(|| known(before[sequence.index][0]), Ok);
            let tokens = first.and_then(|first| match &after {
                Some((shape, words)) => self.take_verified(sequence, (first, fed), (ticket.run, *shape, words)),
                None => {
                    sequence.tokens.push(first);
                    Ok(vec![first])
                }
            });
            all.push(tokens.inspect_err(|_| sequence.output = None));
        }
        Ok(all)
    }

    /// Takes the tokens that a step with drafts has fed a sequence.
    fn take_verified(
        &mut self,
        sequence: &mut Sequence,
        (first, of): (u32, &Fed),
        (run, shape, words): (u64, BatchShape, &[[u32; Plan::SAMPLED_WORDS]]),
    ) -> Result<Vec<u32>> {
        let accepted = (words[self.drafting_of(sequence)][0] as usize).min(of.drafts);
        let following = words[self.sessions() + of.row..].iter().map(|[sampled, ..]| *sampled);
        let fed: Vec<u32> = [first].into_iter().chain(following.take(accepted)).collect();
        if fed.contains(&NO_TOKEN) {
            return Err(Error::NotANumber);
        }
        sequence.tokens.extend_from_slice(&fed);
        self.confirm(sequence);
        if of.made > 0 {
            sequence.block.computed_to(sequence.tokens.len());
        }
        sequence.output =
            Some(Output { run, values: Values::Row { shape, row: of.row + accepted }, sampled: of.samples });
        sequence.sampled = known(words[sequence.index][0]).ok().filter(|_| of.samples);
        Ok(fed)
    }

    /// What the newest step has sampled for a sequence: the token, the most likely one, and how many tokens the filters
    /// kept.
    ///
    /// # Errors
    /// [`Error::NoResult`] if work was lost; any error from the device.
    pub fn newest(&mut self, sequence: &mut Sequence) -> Result<[u32; Plan::SAMPLED_WORDS]> {
        let index = sequence.index;
        Ok(self.results(&mut [sequence], self.submissions.place)?[index])
    }

    /// The result at a place. It confirms all tokens of the sequences.
    fn results(&mut self, sequences: &mut [&mut Sequence], place: usize) -> Result<Vec<[u32; Plan::SAMPLED_WORDS]>> {
        let taken = self.submissions.take(self.model.gpu(), place);
        let words = self.or_rewound(sequences, taken)?;
        sequences.iter_mut().for_each(|sequence| self.confirm(sequence));
        Ok(words)
    }

    /// If the result is that work was lost, removes the tokens that no result has confirmed.
    pub fn or_rewound<T>(&mut self, sequences: &mut [&mut Sequence], result: Result<T>) -> Result<T> {
        if let Err(Error::NoResult) = result {
            self.lose();
            for sequence in sequences {
                sequence.output = None;
                let _ = self.settle(sequence); // it returns the same error, if any
            }
        }
        result
    }

    /// Submits the drafts of the tokens after those that a step verifies.
    fn make_drafts(
        &mut self,
        sequences: &mut [&mut Sequence],
        request: &StepRequest<'_>,
        batch: &Batch,
        before: usize,
    ) -> Result<()> {
        let (mut rows, mut from) = (Vec::new(), Vec::new());
        for (of, sequence) in sequences.iter_mut().enumerate() {
            sequence.block.made = 0;
            if request.makes(of) > 0 {
                let (first, verified) = request.rows_of(of);
                let following = |row: &RowHeader| RowHeader { next: RowHeader::sampled(row.result as usize), ..*row };
                rows.extend(batch.headers[first..first + verified].iter().map(following));
                from.push(Continued { of, position: sequence.tokens.len(), verified });
            }
        }
        if from.is_empty() {
            return Ok(());
        }
        self.compute_saved(&rows)?;
        self.draft(sequences, &from, request.drafts)?;
        if batch.adjustments.is_none() {
            // The next step is probably the same, and recording it takes the host almost as long as the GPU computes.
            let filters = sequences.iter().any(|sequence| sequence.sampling.filters());
            let ready = self.plans.get(&self.model, batch.plan, &mut || Ok(()))?;
            self.submissions.prepare(ready, filters, before)?;
        }
        Ok(())
    }

    /// Records the tokens of the sequences after a step, and the output that it leaves on the device.
    fn note(&mut self, sequences: &mut [&mut Sequence], request: &StepRequest<'_>, batch: &Batch) -> Result<()> {
        for Row { of, token, .. } in &request.rows {
            if let Token::Known(token) = token {
                sequences[*of].tokens.push(*token);
            }
        }
        if let Some(part) = &request.part {
            return self.end_part(sequences, part, batch);
        }
        for (number, Row { of, token, want }) in request.rows.iter().enumerate() {
            let sequence = &mut *sequences[*of];
            let values = match (batch.plan, want) {
                (_, Want::Nothing) => continue,
                (PlanKey::Alone, _) => batch.values,
                // How many of the verified rows survive is only known from the result.
                (PlanKey::Shape(_), _) if matches!(token, Token::Draft(_)) => continue,
                (PlanKey::Shape(shape), _) => Values::Row { shape, row: number },
            };
            let sampled = matches!(want, Want::Sample(_));
            sequence.output = Some(Output { run: batch.run, values, sampled });
        }
        Ok(())
    }

    /// Computes what is wanted of the last token of a sequence. If its values are gone, the token is computed again; if
    /// that fails, the sequence keeps it.
    ///
    /// # Errors
    /// See [`PoolState::run`].
    pub fn run_last(&mut self, sequence: &mut Sequence, want: Want<'_>) -> Result<()> {
        let Sequence { tokens, confirmed, output, .. } = &*sequence;
        let (held, last, confirmed, output) = (tokens.len(), tokens.last().copied(), *confirmed, *output);
        let ran = self.run(&mut [&mut *sequence], StepRequest::row(Token::Last, want)).map(drop);
        let is_cut = sequence.tokens.len() + 1 == held && !matches!(ran, Err(Error::NoResult));
        if let (Err(_), Some(last), true) = (&ran, last, is_cut) {
            sequence.tokens.push(last); // its KV row is still there
            sequence.output = output; // whose values the device no longer holds
            if sequence.confirmed == confirmed.min(held - 1) {
                sequence.confirmed = confirmed;
            }
        }
        ran
    }

    /// Samples after the last token of a sequence, from all tokens, if that was left for later.
    ///
    /// # Errors
    /// [`Error::Argument`] if nothing was fed since the start or the last rewind; as [`PoolState::run`].
    pub fn sample_if_left(&mut self, sequence: &mut Sequence) -> Result<()> {
        self.check_output(sequence)?;
        if sequence.is_sampled() {
            return Ok(());
        }
        self.run_last(sequence, Want::Sample(None))
    }

    /// An error for a sequence of whose last token no logits were computed.
    pub fn check_output(&self, sequence: &Sequence) -> Result<()> {
        if sequence.has_output() {
            return Ok(());
        }
        Err(Error::argument("session", "at least one token fed since the start or the last rewind", "none"))
    }

    /// Which values of the last token of a sequence the device holds.
    pub fn held(&self, sequence: &Sequence) -> Values {
        sequence.output.map_or(Values::Gone, |output| self.owners.values(&output))
    }

    /// Brings the values of a sequence's last token that a step needs to the single-row plan; if they are gone, the
    /// token is computed again. Returns the token of the row.
    fn bring_last(&mut self, sequence: &mut Sequence) -> Result<Token> {
        match (self.held(sequence), sequence.tokens.last()) {
            (Values::Gone, Some(&last)) => {
                sequence.cut(sequence.tokens.len() - 1); // without releasing its page
                return Ok(Token::Known(last));
            }
            (Values::StateRow { shape, row }, _) => {
                let to = self.plans.alone.executor.local(self.plans.alone.planned.hidden.buffer.local()?).clone();
                self.bring_row((shape, row), |planned| Ok(planned.hidden), &to)?;
                let run = self.owners.take_alone();
                sequence.output = sequence.output.map(|output| Output { run, values: Values::State, ..output });
            }
            (Values::Row { shape, row }, _) => {
                let to = self.plans.alone.executor.local(self.plans.alone.head()?.logits.buffer.local()?).clone();
                self.bring_row((shape, row), |planned| Ok(planned.head()?.logits), &to)?;
                let run = self.owners.take_alone();
                sequence.output = sequence.output.map(|output| Output { run, values: Values::Logits, ..output });
            }
            _ => {}
        }
        Ok(Token::Last)
    }

    /// Copies what the plan of a shape has computed of a row to a buffer of the single-row plan.
    fn bring_row(
        &mut self,
        (shape, row): (BatchShape, usize),
        tensor: impl Fn(&BatchPlan) -> Result<Tensor>,
        to: &Buffer,
    ) -> Result<()> {
        let ready = self.plans.get(&self.model, PlanKey::Shape(shape), &mut || Ok(()))?;
        let rows = tensor(&ready.planned)?;
        let (offset, bytes) = (4 * (row * rows.pitch) as u64, 4 * rows.shape[0] as u64);
        let from = ready.executor.local(rows.buffer.local()?).clone();
        let range = BufferRange { from: &from, offset, bytes };
        self.submissions.copy(&self.plans.alone, &[BufferCopy { range, to, at: 0 }])
    }
}

/// What a step feeds one of its sequences.
fn fed(request: &StepRequest<'_>, batch: &Batch, of: usize) -> Fed {
    let (row, rows) = request.rows_of(of);
    let samples = matches!(request.rows[row].want, Want::Sample(_));
    Fed { row, first: batch.first[of], drafts: rows - 1, made: request.makes(of), samples }
}

/// The sampled token, or an error if no logit was a number.
pub fn known(token: u32) -> Result<u32> {
    if token == NO_TOKEN { Err(Error::NotANumber) } else { Ok(token) }
}
