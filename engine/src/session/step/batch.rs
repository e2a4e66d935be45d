//! Prepares the batch of a step: its plan, its rows as the device reads them, and everything that they depend on.

use super::{Row, StepRequest, Token, Want, known};
use crate::error::Result;
use crate::kernels::Adjustment;
use crate::model::{BatchShape, Outputs};
use crate::plan::RowHeader;
use crate::session::owners::Values;
use crate::session::plans::{PlanKey, Ready};
use crate::session::pool_state::PoolState;
use crate::session::sequence::Sequence;
use std::ops::Range;

/// A batch on the device.
pub struct Batch {
    pub plan: PlanKey,
    /// The steps of the plan that compute what is wanted.
    pub steps: Range<usize>,
    /// The number of the run.
    pub run: u64,
    pub headers: Vec<RowHeader>,
    /// The adjustments of logits, if there may be any.
    pub adjustments: Option<Vec<Adjustment>>,
    /// Whether tokens are sampled.
    pub samples: bool,
    /// For each sequence the token that was sampled before a step with drafts, if the host knows it.
    pub first: Vec<Option<u32>>,
    /// The values that the single-row plan holds of the row afterwards.
    pub values: Values,
    /// The rows of each of several prompts.
    pub prompts: Vec<Range<usize>>,
}

impl PoolState {
    /// Prepares a step and writes its batch. The previous content of the buffers that it uses is lost.
    pub fn write(&mut self, sequences: &mut [&mut Sequence], request: &mut StepRequest<'_>) -> Result<Batch> {
        let plan = self.plan_for(sequences, request);
        if request.drafts > 0 {
            // They have to fit the context too.
            let end = |of: usize| sequences[of].tokens.len() + request.rows_of(of).1;
            let deepest = (0..sequences.len()).filter(|of| request.makes(*of) > 0).map(end).max();
            request.drafts = request.drafts.min(self.cache.context.saturating_sub(deepest.unwrap_or_default()));
        }
        for (of, sequence) in sequences.iter_mut().enumerate() {
            self.make_ready(sequence, of, request)?;
        }
        let first = self.first_known(sequences, request)?;
        let samples = plan.outputs() == Some(Outputs::Sequences)
            || request.rows.iter().any(|row| matches!(row.want, Want::Sample(_)));
        let adjusts = samples && sequences.iter().any(|sequence| sequence.sampling.adjusts());
        let (mut headers, adjustments) = self.headers(sequences, request, (plan, &first, adjusts));
        let before = sequences[0].output.map_or(Values::Gone, |output| output.values);
        let held = sequences[0].tokens.len();
        let run = self.owners.begin(plan);
        let Self { plans, submissions, model, .. } = self;
        let ready = match &mut request.part {
            Some(part) => plans.get(model, plan, &mut || (part.check_stop)(held))?,
            None => plans.get(model, plan, &mut || Ok(()))?,
        };
        if adjusts || request.mask().is_some() {
            // With spare capacity if lists grow with every token, since a longer one needs another plan.
            let most = adjustments.len();
            let fixed = most == 0 || plan == PlanKey::Alone && request.mask().is_none();
            let most = if fixed { most } else { most.next_power_of_two() };
            ready.sample_with(model, most, request.mask().is_some())?;
        }
        let mut prompts = Vec::new();
        if let Some(Outputs::LastOfEach { .. }) = plan.outputs() {
            (headers, prompts) = aligned(&headers, ready.planned.plan.aligned);
        }
        submissions.write(ready, &headers)?;
        let (steps, values) = steps_of(ready, request, before);
        let adjustments = adjusts.then_some(adjustments);
        Ok(Batch { plan, steps, run, headers, adjustments, samples, first, values, prompts })
    }

    /// The plan that computes the rows of a request.
    fn plan_for(&self, sequences: &[&mut Sequence], request: &StepRequest<'_>) -> PlanKey {
        let rows = request.rows.len();
        match &request.part {
            Some(part) => PlanKey::Shape(part.shape),
            None if rows == 1 => PlanKey::Alone,
            None => {
                let outputs = if sequences.len() == 1 { Outputs::Verified } else { Outputs::Sequences };
                let deepest = sequences.iter().map(|sequence| sequence.tokens.len()).max().unwrap_or_default();
                PlanKey::Shape(BatchShape::of(rows.next_power_of_two(), outputs, deepest, self.cache.context))
            }
        }
    }

    /// Reserves the pages for a sequence's rows, samples the token before them, and keeps the hidden states
    /// that the block has not used.
    fn make_ready(&mut self, sequence: &mut Sequence, of: usize, request: &mut StepRequest<'_>) -> Result<()> {
        let (alone, few) = (request.rows.len() == 1 && request.part.is_none(), request.part.is_none());
        let Some(row) = request.rows.iter_mut().find(|row| row.of == of) else { return Ok(()) };
        match row.token {
            Token::Last => row.token = self.bring_last(sequence)?,
            Token::Sampled => self.sample_if_left(sequence)?,
            Token::Known(_) | Token::Draft(_) => {}
        }
        let first = row.token;
        let (length, follows) = (sequence.tokens.len(), request.part.as_ref().is_some_and(|part| part.then.is_some()));
        let count = request.rows.iter().filter(|row| row.of == of && row.token != Token::Last).count();
        let made = request.makes(of);
        self.reach(sequence, count + made)?;
        let known = if let Token::Known(token) = first { Some(token) } else { None };
        if known.is_some() || first == Token::Last {
            sequence.forget_sampled();
            sequence.block.reopen_last(length);
        }
        if few && !request.verifies() {
            sequence.forget_sampled();
        }
        if follows && self.uses_block(sequence) {
            self.catch_up_if_possible(sequence, known)?;
        } else if few && count > 0 && made == 0 {
            self.reserve_states(sequence, count, known)?;
        }
        if alone { self.list_alone(sequence) } else { Ok(()) }
    }

    /// For each sequence the token that was sampled before a step with drafts, if the host knows it. Penalties on rows
    /// with drafts depend on it, so in that case the host waits for it.
    fn first_known(&mut self, sequences: &mut [&mut Sequence], request: &StepRequest<'_>) -> Result<Vec<Option<u32>>> {
        let mut all = vec![None; sequences.len()];
        if !request.verifies() {
            return Ok(all);
        }
        for (of, sequence) in sequences.iter_mut().enumerate() {
            let (first, rows) = request.rows_of(of);
            if request.rows[first].token != Token::Sampled {
                continue;
            }
            if sequence.sampled.is_none() && rows > 1 && sequence.sampling.penalises() {
                let [sampled, ..] = self.newest(sequence)?;
                sequence.sampled = known(sampled).ok(); // otherwise the session gets an error
            }
            all[of] = sequence.sampled;
        }
        Ok(all)
    }

    /// The headers of a request's rows, and the adjustments of their logits.
    fn headers(
        &self,
        sequences: &mut [&mut Sequence],
        request: &StepRequest<'_>,
        (plan, first, adjusts): (PlanKey, &[Option<u32>], bool),
    ) -> (Vec<RowHeader>, Vec<Adjustment>) {
        let (mut rows, mut adjustments) = (Vec::with_capacity(request.rows.len()), Vec::new());
        let (mut fed, mut fed_known) = (vec![0; sequences.len()], vec![Vec::new(); sequences.len()]);
        for Row { of, token, .. } in &request.rows {
            let sequence = &mut *sequences[*of];
            let length = sequence.tokens.len();
            let known = match *token {
                Token::Known(id) | Token::Draft(id) => Some(id),
                Token::Sampled => first[*of],
                Token::Last => None,
            };
            let mut row = match token {
                Token::Last => sequence.row(0, length.saturating_sub(1)),
                _ => sequence.row(known.unwrap_or(RowHeader::sampled(sequence.index)), length + fed[*of]),
            };
            if plan == PlanKey::Alone {
                row.first_page = 0;
            } else if request.verifies() {
                row.result = (self.sessions() + rows.len()) as u32;
            }
            if adjusts {
                fed_known[*of].extend(known);
                let ahead = *token == Token::Sampled && known.is_none();
                let listed = sequence.sampling.adjustments(&sequence.tokens, &fed_known[*of], ahead);
                (row.first_adjustment, row.adjustments) = (adjustments.len() as u32, listed.len() as u32);
                adjustments.extend(listed);
            }
            fed[*of] += 1;
            rows.push(row);
        }
        (rows, adjustments)
    }
}

/// The rows of several sequences, each followed by copies of its last row, so that the next sequence begins at a
/// multiple of `to`; and where the sequences' own rows are. A copy writes what the row writes.
fn aligned(rows: &[RowHeader], to: usize) -> (Vec<RowHeader>, Vec<Range<usize>>) {
    let (mut all, mut own) = (Vec::new(), Vec::new());
    for rows in rows.chunk_by(|row, next| row.sequence == next.sequence) {
        own.push(all.len()..all.len() + rows.len());
        all.extend_from_slice(rows);
        all.resize(all.len().next_multiple_of(to.max(1)), rows[rows.len() - 1]);
    }
    (all, own)
}

/// The steps of a plan that compute what is wanted, and the values that the single-row plan holds of the row
/// afterwards. `before` are those that it holds of the last token.
fn steps_of(ready: &Ready, request: &StepRequest<'_>, before: Values) -> (Range<usize>, Values) {
    let (head, end) = (ready.planned.plan.head, ready.planned.end());
    match request.rows[..] {
        _ if request.part.is_some() => (0..end, Values::State),
        [Row { token: Token::Last, .. }] if before == Values::State => {
            // The hidden state of the last token is kept just before the head.
            (head - usize::from(ready.planned.kept.is_some())..end, Values::Whole)
        }
        [Row { token: Token::Last, .. }] => (end..end, before),
        [Row { want: Want::Nothing, .. }] => (0..head, Values::Gone),
        _ => (0..end, Values::Whole),
    }
}
