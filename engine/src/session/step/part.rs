//! Parts of prompts take several short submissions, so that other users of the GPU get their turns.

use super::batch::Batch;
use super::{PoolState, Token};
use crate::error::{Error, Result};
use crate::model::{BatchShape, DraftInputs, Outputs};
use crate::plan::RowHeader;
use crate::session::owners::{Output, Values};
use crate::session::parts::Parts;
use crate::session::sequence::Sequence;
use std::time::{Duration, Instant};

/// How a part of a prompt is computed.
pub struct Part<'a> {
    /// The plan, with capacity for the block of tokens that the part belongs to.
    pub shape: BatchShape,
    /// The time that a submission should take.
    pub limit: Duration,
    /// Whether the GPU has nothing to do before the first submission.
    pub idle: bool,
    /// Learns how long parts take.
    pub parts: &'a mut Parts,
    /// The token after the part, for the block that makes drafts; `None` if the block need not follow.
    pub then: Option<Token>,
    /// Called before each submission and while kernels compile, with the number of the sequence's tokens.
    pub check_stop: &'a mut dyn FnMut(usize) -> Result<()>,
}

impl PoolState {
    /// Submits a part of a prompt after `held` tokens, or of several after at most that many. Returns false if it
    /// abandons the part because it would take too long; the next parts are then smaller.
    pub(super) fn submit_part(&mut self, batch: &Batch, part: &mut Part<'_>, held: usize) -> Result<bool> {
        self.drafter.clock.interrupt();
        let Self { plans, submissions, model, .. } = self;
        let ready = plans.get(model, batch.plan, &mut || Ok(()))?;
        let (count, expands_kv, end) = (batch.headers.len(), ready.planned.expands_kv(), batch.steps.end);
        let measured = matches!(part.shape.outputs, Outputs::Last | Outputs::LastOfEach { .. });
        let (newest, since) = (submissions.newest().cloned(), Instant::now());
        ready.pacer.aim_at(part.limit);
        ready.pacer.start(&ready.planned.plan, &model.target().limit, held + count, newest, part.idle);
        let mut first = 0;
        while first < end {
            (part.check_stop)(held)?;
            let steps = ready.pacer.next(first);
            let steps = steps.start..steps.end.min(end);
            let submission = submissions.run(ready, steps.clone(), None, submissions.place)?;
            first = steps.end;
            ready.pacer.submitted(model.gpu(), submission, steps)?;
            let so_far = ready.pacer.so_far().filter(|_| measured && first < end);
            if so_far.is_some_and(|(so_far, expected)| part.parts.give_up(count, so_far, expected, expands_kv)) {
                return Ok(false);
            }
        }
        if measured {
            part.parts.record_part(count, since.elapsed(), expands_kv);
        }
        Ok(true)
    }

    /// Records the output of a part of a prompt, and computes the block's rows for it.
    pub(super) fn end_part(&mut self, sequences: &mut [&mut Sequence], part: &Part<'_>, batch: &Batch) -> Result<()> {
        if let Outputs::LastOfEach { .. } = part.shape.outputs {
            return self.end_prompts(sequences, part, batch);
        }
        let sequence = &mut *sequences[0];
        sequence.forget_sampled();
        sequence.block.forget_states(sequence.tokens.len());
        let run = self.owners.take_alone(); // the last step leaves the last token's hidden state there
        if part.shape.outputs == Outputs::Last {
            sequence.output = Some(Output { run, values: Values::State, sampled: false });
        }
        let Some(then) = part.then.filter(|_| self.uses_block(sequence)) else { return Ok(()) };
        let then = match then {
            Token::Known(token) => token,
            _ => self.sample_last(sequence)?,
        };
        let rows: Vec<RowHeader> = with_next(&batch.headers, batch.headers.len(), then).collect();
        if unless_too_large(self.compute_block(&rows, part.shape, DraftInputs::Stream))? {
            let end = sequence.tokens.len();
            sequence.block.has_from(end - rows.len(), end);
        }
        Ok(())
    }

    /// Samples after the last row of each of several prompts, and computes the block's rows for those that need them.
    fn end_prompts(&mut self, sequences: &mut [&mut Sequence], part: &Part<'_>, batch: &Batch) -> Result<()> {
        for (sequence, rows) in sequences.iter_mut().zip(&batch.prompts) {
            sequence.forget_sampled();
            sequence.block.forget_states(sequence.tokens.len());
            let values = Values::StateRow { shape: part.shape, row: rows.end - 1 };
            sequence.output = Some(Output { run: batch.run, values, sampled: false });
        }
        let mut rows = Vec::with_capacity(batch.headers.len());
        let of_each = batch.headers.chunk_by(|row, next| row.sequence == next.sequence);
        for ((sequence, of_one), own) in sequences.iter_mut().zip(of_each).zip(&batch.prompts) {
            match self.sample_last(sequence) {
                Ok(then) => rows.extend(with_next(of_one, own.len(), then)),
                Err(error) => {
                    // Other steps may overwrite the hidden states, so the last tokens would have to be computed again.
                    sequences.iter_mut().for_each(|sequence| sequence.output = None);
                    return Err(error);
                }
            }
        }
        if part.then.is_none() || !sequences.iter().any(|sequence| self.uses_block(sequence)) {
            return Ok(());
        }
        if !unless_too_large(self.compute_block(&rows, part.shape, DraftInputs::Stream))? {
            return Ok(());
        }
        for (sequence, own) in sequences.iter_mut().zip(&batch.prompts) {
            if self.uses_block(sequence) {
                let end = sequence.tokens.len();
                sequence.block.has_from(end - own.len(), end);
            }
        }
        Ok(())
    }

    /// Computes the head for the last token of a sequence. Returns the name of the token that is sampled after it.
    fn sample_last(&mut self, sequence: &mut Sequence) -> Result<u32> {
        let want = sequence.sampling.want();
        self.run_last(sequence, want)?;
        sequence.block.forget_states(sequence.tokens.len() - 1);
        Ok(RowHeader::sampled(sequence.index))
    }
}

/// Whether the block has computed something. If there is no memory for that, the drafts are worse, or there are none.
pub fn unless_too_large(computed: Result<()>) -> Result<bool> {
    match computed {
        Err(Error::OutOfMemory { .. } | Error::TooLarge { .. }) => Ok(false),
        computed => computed.map(|()| true),
    }
}

/// The rows of a sequence with the token after each. The token `then` follows the last of its `own` rows, and the
/// copies of that row.
fn with_next(rows: &[RowHeader], own: usize, then: u32) -> impl Iterator<Item = RowHeader> {
    let next = move |row: usize| if row + 1 < own { rows[row + 1].token } else { then };
    rows.iter().enumerate().map(move |(number, row)| RowHeader { next: next(number), ..*row })
}
