//! The one way to the GPU for whatever has rows to compute: parts of prompts, tokens, drafts, and choices from logits that
//! are there already.
//!
//! A [`StepRequest`] says which rows, of which sequences, and what is wanted of each. [`Device::run`] finds the plan, writes
//! the batch, notes who owns which buffer from then on, and submits. [`Device::take`] reads the result later: the next token
//! is submitted before the result of the one before it is read, so that the GPU does not wait for the host.
//!
//! The result also shows whether any work since the result before it was lost. If so, nobody knows what the cache holds of
//! the tokens that no result has confirmed, and they are removed from the sequences.

mod batch;
mod part;

pub use batch::Batch;
pub use part::Part;

use super::device::Device;
use super::owners::{Output, Values};
use super::plans::PlanKey;
use super::sequence::Sequence;
use super::submissions::Sampled;
use crate::error::{Error, Result};
use crate::gpu::{BufferCopy, BufferRange};
use crate::kernels::{NO_TOKEN, VERIFIED_ROWS};
use crate::model::{BatchShape, Outputs};
use crate::plan::{Plan, RowHeader};

/// What the GPU computes next.
pub struct StepRequest<'a> {
    pub rows: Vec<Row<'a>>,
    /// How many drafts the block makes after these rows, which verify others.
    pub drafts: usize,
    /// How the rows are computed if they are a part of a prompt.
    pub part: Option<Part<'a>>,
}

/// A row of a step.
#[derive(Clone, Copy)]
pub struct Row<'a> {
    /// The index of its sequence among those of the request.
    pub of: usize,
    pub token: Token,
    pub want: Want<'a>,
}

/// The token of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token {
    Known(u32),
    /// The one that was sampled after the last token, which the host need not know yet.
    Sampled,
    /// A guess, by its id or by the name of what the device holds. It is fed if it is what is sampled after the row before.
    Draft(u32),
    /// The last token of the sequence, which was fed already.
    Last,
}

/// What is wanted of a row, beside its KV row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want<'a> {
    Nothing,
    Logits,
    /// The token that follows, chosen from those that a mask allows, if there is one.
    Sample(Option<&'a [u32]>),
}

/// A step that was submitted.
pub struct Ticket {
    /// The places of the result before it, and of its own.
    before: usize,
    place: usize,
    run: u64,
    /// Whether it would have taken too long and was given up. Then it feeds nothing.
    pub given_up: bool,
    /// Whether it feeds each sequence the token that was sampled before.
    feeds_sampled: bool,
    /// The drafts that it verifies, if any, which are fed as far as they are right.
    verifies: Option<Verified>,
}

/// Drafts that a step verifies.
#[derive(Clone, Copy)]
struct Verified {
    shape: BatchShape,
    /// The token before them, if the host knows it.
    first: Option<u32>,
    drafts: usize,
    /// How many others the block makes meanwhile.
    made: usize,
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

    /// Whether a row has a token of some kind.
    fn has(&self, is: impl Fn(&Token) -> bool) -> bool {
        self.rows.iter().any(|row| is(&row.token))
    }

    /// How many rows have drafts.
    fn drafted(&self) -> usize {
        self.rows.iter().filter(|row| matches!(row.token, Token::Draft(_))).count()
    }

    /// The mask of the only row, if it has one.
    fn mask(&self) -> Option<&'a [u32]> {
        if let [Row { want: Want::Sample(mask), .. }] = self.rows[..] { mask } else { None }
    }
}

impl Device {
    /// Submits a step. Known tokens belong to their sequences from then on, others once the ticket is taken.
    ///
    /// # Errors
    /// [`Error::PoolFull`], [`Error::OutOfMemory`] for a plan that does not fit, and [`Error::Argument`] for a sequence that
    /// has no output: after these the sequences have the tokens and outputs that they had. What the device reports.
    pub fn run(&mut self, sequences: &mut [&mut Sequence], mut request: StepRequest<'_>) -> Result<Ticket> {
        let batch = match self.write(sequences, &mut request) {
            Err(error @ Error::DeviceLost { .. }) => {
                sequences.iter_mut().for_each(|sequence| sequence.output = None);
                return Err(error);
            }
            written => written?,
        };
        sequences.iter_mut().for_each(|sequence| sequence.output = None); // until there is another
        let before = self.submissions.place;
        // The result before this one is read later, so this one has the other place.
        let turns = batch.samples && request.has(|token| matches!(token, Token::Sampled | Token::Draft(_)));
        let place = before ^ usize::from(turns);
        let submitted = match &mut request.part {
            Some(part) => self.submit_part(&batch, part, sequences[0].tokens.len()),
            None => {
                let filters = sequences.iter().any(|sequence| sequence.sampling.filters());
                let sampled = Sampled { adjustments: batch.adjustments.as_deref(), filters, mask: request.mask() };
                let ready = self.plans.get(&self.model, batch.plan, &mut || Ok(()))?;
                let sampled = batch.samples.then_some(sampled);
                self.submissions.run(ready, batch.steps.clone(), sampled, place).map(|_| true)
            }
        };
        let given_up = !self.or_rewound(sequences, submitted)?;
        let (mut verifies, drafts) = (None, request.drafted());
        if let PlanKey::Shape(shape) = batch.plan
            && batch.samples
            && drafts > 0
        {
            let made = self.make_drafts(sequences[0], &request, &batch, before)?;
            verifies = Some(Verified { shape, first: batch.first, drafts, made });
        }
        if !given_up {
            self.note(sequences, &request, &batch)?;
        }
        let feeds_sampled = request.has(|token| *token == Token::Sampled);
        Ok(Ticket { before, place, run: batch.run, given_up, feeds_sampled, verifies })
    }

    /// Takes a step of one sequence, and returns the tokens that it has fed.
    ///
    /// # Errors
    /// As [`Device::run`] and [`Device::take`].
    pub fn step(&mut self, sequence: &mut Sequence, request: StepRequest<'_>) -> Result<Vec<u32>> {
        let ticket = self.run(&mut [&mut *sequence], request)?;
        self.take(&mut [sequence], &ticket)?.pop().unwrap_or(Err(Error::NoResult))
    }

    /// Waits for what a step has fed, and returns these tokens for each sequence, which has them from then on. A sequence of
    /// whose logits none is a number gets [`Error::NotANumber`], and has no output any more.
    ///
    /// # Errors
    /// [`Error::NoResult`] if work was lost; what the device reports.
    pub fn take(&mut self, sequences: &mut [&mut Sequence], ticket: &Ticket) -> Result<Vec<Result<Vec<u32>>>> {
        let taken = match ticket.verifies {
            Some(verified) => self.take_verified(sequences, ticket, verified).map(|fed| vec![Ok(fed)]),
            None if ticket.feeds_sampled => self.take_sampled(sequences, ticket),
            None => Ok(sequences.iter().map(|_| Ok(Vec::new())).collect()),
        };
        if taken.is_err() {
            sequences.iter_mut().for_each(|sequence| sequence.output = None);
        }
        taken
    }

    fn take_sampled(&mut self, sequences: &mut [&mut Sequence], ticket: &Ticket) -> Result<Vec<Result<Vec<u32>>>> {
        let words = self.results(sequences, ticket.before)?;
        let fed = |sequence: &mut Sequence| {
            let token = known(words[sequence.index][0]).inspect_err(|_| sequence.output = None)?;
            sequence.tokens.push(token);
            Ok(vec![token])
        };
        Ok(sequences.iter_mut().map(|sequence| fed(sequence)).collect())
    }

    fn take_verified(
        &mut self,
        sequences: &mut [&mut Sequence],
        ticket: &Ticket,
        Verified { shape, first, drafts, made }: Verified,
    ) -> Result<Vec<u32>> {
        let (index, sessions) = (sequences[0].index, self.sessions());
        let first = match first {
            Some(first) if sessions == 1 => first,
            // Another session's work may have left its number at the place of the result before.
            first => {
                let words = self.results(sequences, ticket.before)?;
                first.map_or_else(|| known(words[index][0]), Ok)?
            }
        };
        let words = self.results(sequences, ticket.place)?;
        let accepted = (words[sessions + VERIFIED_ROWS][0] as usize).min(drafts);
        let following = words[sessions..].iter().map(|[sampled, ..]| *sampled);
        let fed: Vec<u32> = [first].into_iter().chain(following.take(accepted)).collect();
        if fed.contains(&NO_TOKEN) {
            return Err(Error::NotANumber);
        }
        let sequence = &mut *sequences[0];
        sequence.tokens.extend_from_slice(&fed);
        self.confirm(sequence);
        if made > 0 {
            sequence.block.computed_to(sequence.tokens.len());
        }
        let values = Values::Row { shape, row: accepted };
        sequence.output = Some(Output { run: ticket.run, values, sampled: true });
        sequence.sampled = known(words[index][0]).ok();
        Ok(fed)
    }

    /// Of each sequence of the pool what the newest step has sampled: the token, and the likeliest one.
    ///
    /// # Errors
    /// [`Error::NoResult`] if work was lost; what the device reports.
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

    /// Removes the tokens that no result has confirmed if the result is that work was lost.
    fn or_rewound<T>(&mut self, sequences: &mut [&mut Sequence], result: Result<T>) -> Result<T> {
        if let Err(Error::NoResult) = result {
            self.lose();
            for sequence in sequences {
                sequence.output = None;
                let _ = self.settle(sequence); // which has the same error, if any
            }
        }
        result
    }

    /// Has the block make drafts of the tokens after those that a step verifies, while it does. Returns how many.
    fn make_drafts(
        &mut self,
        sequence: &mut Sequence,
        request: &StepRequest<'_>,
        batch: &Batch,
        before: usize,
    ) -> Result<usize> {
        sequence.block.made = 0;
        if request.drafts == 0 {
            return Ok(0);
        }
        let following = |row: &RowHeader| RowHeader { next: RowHeader::sampled(row.result as usize), ..*row };
        let rows: Vec<RowHeader> = batch.headers.iter().map(following).collect();
        self.compute_saved(&rows)?;
        self.draft(sequence, sequence.tokens.len(), rows.len(), request.drafts)?;
        if batch.adjustments.is_none() {
            // The next step is probably one like this, and recording it takes the host almost as long as the GPU computes.
            let ready = self.plans.get(&self.model, batch.plan, &mut || Ok(()))?;
            self.submissions.prepare(ready, sequence.sampling.filters(), before)?;
        }
        Ok(request.drafts)
    }

    /// Notes which tokens the sequences have after a step, and what it leaves of them on the device.
    fn note(&mut self, sequences: &mut [&mut Sequence], request: &StepRequest<'_>, batch: &Batch) -> Result<()> {
        for Row { of, token, .. } in &request.rows {
            if let Token::Known(token) = token {
                sequences[*of].tokens.push(*token);
            }
        }
        if let Some(part) = &request.part {
            return self.end_part(sequences[0], part, batch);
        }
        for (number, Row { of, token, want }) in request.rows.iter().enumerate() {
            let sequence = &mut *sequences[*of];
            let values = match (batch.plan, want) {
                (_, Want::Nothing) => continue,
                (PlanKey::Alone, _) => batch.values,
                // What is left of rows that verify drafts shows in the result.
                (PlanKey::Shape(_), _) if matches!(token, Token::Draft(_)) => continue,
                (PlanKey::Shape(shape), _) => Values::Row { shape, row: number },
            };
            let sampled = matches!(want, Want::Sample(_));
            sequence.output = Some(Output { run: batch.run, values, sampled });
            if batch.plan.outputs() == Some(Outputs::Sequences) {
                // Such steps save no hidden states.
                sequence.forget_sampled();
                sequence.block.forget_states(sequence.tokens.len() + 1);
            }
        }
        Ok(())
    }

    /// Samples after the last token of a sequence, from all tokens, if that was left for later.
    ///
    /// # Errors
    /// [`Error::Argument`] if nothing was fed since the start or the last rewind; as [`Device::run`].
    pub fn sample_if_left(&mut self, sequence: &mut Sequence) -> Result<()> {
        self.check_output(sequence)?;
        if sequence.is_sampled() {
            return Ok(());
        }
        self.run(&mut [sequence], StepRequest::row(Token::Last, Want::Sample(None))).map(drop)
    }

    /// An error for a sequence of whose last token no logits were computed.
    pub fn check_output(&self, sequence: &Sequence) -> Result<()> {
        if sequence.has_output() {
            return Ok(());
        }
        let expected = "at least one token fed since the start or the last rewind".to_owned();
        Err(Error::Argument { argument: "session", expected, found: "none".into() })
    }

    /// Which values of the last token of a sequence the device holds.
    pub fn held(&self, sequence: &Sequence) -> Values {
        sequence.output.map_or(Values::Gone, |output| self.owners.values(&output))
    }

    /// Has the plan of a row alone hold what a step needs of the last token of a sequence, which is fed again where that is
    /// gone. Returns the token for the step's row.
    fn bring_last(&mut self, sequence: &mut Sequence) -> Result<Token> {
        match (self.held(sequence), sequence.tokens.last()) {
            (Values::Gone, Some(&last)) => {
                self.cut(sequence, sequence.tokens.len() - 1);
                return Ok(Token::Known(last));
            }
            (Values::Row { shape, row }, _) => {
                let to = self.plans.alone.executor.local(self.plans.alone.head()?.logits.buffer.local()?).clone();
                let ready = self.plans.get(&self.model, PlanKey::Shape(shape), &mut || Ok(()))?;
                let rows = ready.planned.head()?.logits;
                let (offset, bytes) = (4 * (row * rows.pitch) as u64, 4 * rows.shape[0] as u64);
                let range = BufferRange { from: ready.executor.local(rows.buffer.local()?), offset, bytes };
                self.model.gpu().copy(&[BufferCopy { range, to: &to, at: 0 }])?;
                let run = self.owners.take_alone();
                sequence.output = sequence.output.map(|output| Output { run, values: Values::Logits, ..output });
            }
            _ => {}
        }
        Ok(Token::Last)
    }
}

/// The token that was sampled, or an error if no logit was a number.
pub fn known(token: u32) -> Result<u32> {
    if token == NO_TOKEN { Err(Error::NotANumber) } else { Ok(token) }
}
