//! A part of a prompt takes several short submissions, so that other users of the GPU get their turns.

use super::batch::Batch;
use super::{PoolState, StepRequest, Token};
use crate::error::Result;
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
    pub go_on: &'a mut dyn FnMut(usize) -> Result<()>,
}

impl PoolState {
    /// Submits a part of a prompt after `held` tokens. Returns false if it abandons the part because it would take too
    /// long; the next parts are then smaller.
    pub(super) fn submit_part(&mut self, batch: &Batch, part: &mut Part<'_>, held: usize) -> Result<bool> {
        self.drafter.clock.interrupt();
        let Self { plans, submissions, model, .. } = self;
        let ready = plans.get(model, batch.plan, &mut || Ok(()))?;
        let (count, writes_out, end) = (batch.headers.len(), ready.planned.writes_out(), batch.steps.end);
        let measured = part.shape.outputs == Outputs::Last;
        let (newest, since) = (submissions.newest().cloned(), Instant::now());
        ready.pace.aim_at(part.limit);
        ready.pace.start(&ready.planned.plan, &model.target().limit, held + count, newest, part.idle);
        let mut first = 0;
        while first < end {
            (part.go_on)(held)?;
            let steps = ready.pace.next(first);
            let steps = steps.start..steps.end.min(end);
            let submission = submissions.run(ready, steps.clone(), None, submissions.place)?;
            first = steps.end;
            ready.pace.submitted(model.gpu(), submission, steps)?;
            let so_far = ready.pace.so_far().filter(|_| measured && first < end);
            if so_far.is_some_and(|(so_far, expected)| part.parts.give_up(count, so_far, expected, writes_out)) {
                return Ok(false);
            }
        }
        if measured {
            part.parts.took(count, since.elapsed(), writes_out);
        }
        Ok(true)
    }

    /// Records the output of a part of a prompt, and computes the block's rows for it.
    pub(super) fn end_part(&mut self, sequence: &mut Sequence, part: &Part<'_>, batch: &Batch) -> Result<()> {
        sequence.forget_sampled();
        sequence.block.forget_states(sequence.tokens.len());
        let run = self.owners.take_alone(); // the last step leaves the last token's hidden state there
        if part.shape.outputs == Outputs::Last {
            sequence.output = Some(Output { run, values: Values::State, sampled: false });
        }
        let Some(then) = part.then.filter(|_| self.uses_block(sequence)) else { return Ok(()) };
        let then = match then {
            Token::Known(token) => token,
            _ => {
                let want = sequence.sampling.want();
                self.run(&mut [sequence], StepRequest::row(Token::Last, want))?;
                sequence.block.forget_states(sequence.tokens.len() - 1);
                RowHeader::sampled(sequence.index)
            }
        };
        let following = batch.headers.iter().skip(1).map(|row| row.token).chain([then]);
        let rows: Vec<RowHeader> =
            batch.headers.iter().zip(following).map(|(row, next)| RowHeader { next, ..*row }).collect();
        self.compute_block(&rows, part.shape, DraftInputs::Stream)?;
        let end = sequence.tokens.len();
        sequence.block.has_from(end - rows.len(), end);
        Ok(())
    }
}
