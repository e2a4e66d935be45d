//! Drafts by the multi-token-prediction block: its plans on the device, and what they have computed for a sequence.
//!
//! The block has a row for every token of a sequence, with its KV rows in the sequence's pages. Rows of a prompt are
//! computed after the model's rows, part by part. For all other rows the model's hidden states are saved in a ring
//! buffer of their sequence, and the block catches up when drafts are wanted, or when the buffer is full. Drafts are
//! made on the device, for several sequences at a time, and the rows that verify them refer to them by index, so
//! nothing waits for the host.

use super::plans::SharedBuffers;
use super::pool_state::PoolState;
use super::sequence::Sequence;
use super::step::unless_too_large;
use crate::error::Result;
use crate::gpu::Buffer;
use crate::kernels::{DRAFTING, KEPT_ROWS, VERIFIED_ROWS};
use crate::model::{
    BatchShape, CacheShape, DraftInputs, DraftPlan, Drafting, Model, Outputs, plan_drafted_rows, plan_drafting,
};
use crate::plan::{Executor, LocalId, Plan, RowHeader};
use std::collections::HashMap;
use std::ops::Range;

/// The plans of the block on the device.
pub struct BlockPlans {
    /// The single-row plan, which makes drafts.
    pub alone: ReadyBlock,
    /// The plans of several rows, created on first use: those that compute rows from some inputs, or those that make
    /// drafts, with a row for each of several sequences.
    pub rows: HashMap<(BatchShape, Option<DraftInputs>), ReadyBlock>,
    /// The saved hidden states of the model.
    kept: Buffer,
    /// The errors of the block.
    drafted: Buffer,
}

/// A plan of the block on the device.
pub struct ReadyBlock {
    pub planned: DraftPlan,
    pub executor: Executor,
}

impl BlockPlans {
    /// Creates the plans for this many sequences with this cache, whose KV rows take `layer_bytes` bytes. `kept` is the
    /// ring buffer of the model's plans.
    pub fn new(
        model: &Model,
        cache: CacheShape,
        (layer_bytes, sequences): (u64, usize),
        shared: &SharedBuffers,
        kept: Buffer,
    ) -> Result<Self> {
        let weights = model.model_weights();
        let mut planned = plan_drafting(weights, model.config(), cache, model.target(), BatchShape::ALONE)?;
        planned.plan.local_mut(planned.drafted).bytes *= sequences as u64;
        let caches: Vec<LocalId> = planned.plan.caches().collect();
        caches.into_iter().for_each(|cache| planned.plan.local_mut(cache).bytes = layer_bytes);
        let locals = shared.states().into_iter().collect();
        let executor = Executor::with_locals(model.pipelines(), &planned.plan, model.weights(), &locals)?;
        let drafted = executor.local(planned.drafted).clone();
        Ok(Self { alone: ReadyBlock { planned, executor }, rows: HashMap::new(), kept, drafted })
    }

    /// The KV rows of the block.
    pub fn cache(&self) -> Option<Buffer> {
        let local = self.alone.planned.plan.caches().next()?;
        Some(self.alone.executor.local(local).clone())
    }

    /// Plans rows of the block.
    pub fn plan(
        &self,
        model: &Model,
        cache: CacheShape,
        shape: BatchShape,
        inputs: Option<DraftInputs>,
    ) -> Result<DraftPlan> {
        let (weights, config, target) = (model.model_weights(), model.config(), model.target());
        match inputs {
            Some(inputs) => plan_drafted_rows(weights, config, cache, target, (shape, inputs)),
            None => plan_drafting(weights, config, cache, target, shape),
        }
    }

    /// The buffers of a plan that it shares with others.
    pub fn locals(&self, planned: &DraftPlan, shared: &SharedBuffers) -> HashMap<LocalId, Buffer> {
        let cache = planned.plan.caches().zip(self.cache());
        let states =
            [(planned.drafted, self.drafted.clone())].into_iter().chain(planned.kept.zip(Some(self.kept.clone())));
        shared.states().into_iter().chain(states).chain(cache).collect()
    }
}

/// The row that drafts of a sequence continue from.
pub struct Continued {
    /// The index of the sequence within the call.
    pub of: usize,
    /// The position of the block's last row or, if rows were just verified, of the first of them.
    pub position: usize,
    /// How many rows were just verified: the block's last row is further by the number of accepted drafts.
    pub verified: usize,
}

/// What the block has computed for a sequence.
#[derive(Debug, Clone, Copy, Default)]
pub struct BlockState {
    /// Whether a row is computed for every token, because the block may make drafts.
    pub wanted: bool,
    /// How many tokens have rows: those from `from` on were really computed.
    computed: usize,
    from: usize,
    /// The same as `computed`, with a last row that is computed again because another token may follow it.
    whole: usize,
    /// The first token whose hidden state is in the ring buffer.
    saved: usize,
    /// The number of drafts on the device, after the sampled token.
    pub made: usize,
}

impl BlockState {
    /// After a rewind from `before` tokens to `length`, the last row has to be computed again, since another token may
    /// follow it. Tokens too far back are no longer in the ring buffer.
    pub fn truncate(&mut self, before: usize, length: usize) {
        self.computed = self.computed.min(length.saturating_sub(1));
        self.whole = self.whole.min(length);
        self.from = self.from.min(length);
        self.saved = if before - length < KEPT_ROWS / 2 { self.saved.min(length) } else { length };
        self.made = 0;
    }

    /// The tokens, of `length`, whose rows are missing and can be computed.
    fn pending(&self, length: usize) -> Range<usize> {
        self.computed.max(self.saved).max(length.saturating_sub(KEPT_ROWS))..length
    }

    /// Records that there are rows for `length` tokens, and that all rows that can be computed have been.
    pub fn computed_to(&mut self, length: usize) {
        self.has_from(self.pending(length).start, length);
    }

    /// Records that there are rows for `length` tokens, of which those from `first` on were computed. If `first` is
    /// beyond the rows so far, none of those before it count as computed.
    pub fn has_from(&mut self, first: usize, length: usize) {
        if first > self.whole {
            self.from = first;
        }
        (self.computed, self.whole) = (length, length);
    }

    /// Whether the rows of some tokens were computed, the last one with the token that follows it.
    pub fn has_rows(&self, tokens: Range<usize>) -> bool {
        self.from <= tokens.start && tokens.end < self.computed
    }

    /// Records that the ring buffer has no hidden states of the tokens before `length`.
    pub fn forget_states(&mut self, length: usize) {
        self.saved = length;
        self.made = 0;
    }

    /// Records that a token is fed after `length` others. It need not be the one that was sampled, from which the last
    /// row was computed.
    pub fn reopen_last(&mut self, length: usize) {
        self.computed = self.computed.min(length.saturating_sub(1));
        self.made = 0;
    }
}

impl PoolState {
    /// Whether the block computes a row for every token of a sequence.
    pub fn uses_block(&self, sequence: &Sequence) -> bool {
        sequence.block.wanted && self.plans.block.is_some()
    }

    /// Makes room in the ring buffer for the hidden states of `count` more tokens, the first of which is `next`; `None`
    /// for the sampled one.
    pub fn reserve_states(&mut self, sequence: &mut Sequence, count: usize, next: Option<u32>) -> Result<()> {
        let pending = sequence.block.pending(sequence.tokens.len());
        if self.uses_block(sequence) && pending.len() + count > KEPT_ROWS {
            self.catch_up_if_possible(sequence, next)
        } else {
            Ok(())
        }
    }

    /// The same as [`PoolState::catch_up`] for one sequence, but if there is no memory for the block, its rows stay
    /// missing, and drafts are worse.
    pub fn catch_up_if_possible(&mut self, sequence: &mut Sequence, next: Option<u32>) -> Result<()> {
        if !unless_too_large(self.catch_up(&mut [&mut *sequence], next))? {
            sequence.block.forget_states(sequence.tokens.len());
        }
        Ok(())
    }

    /// Computes the missing rows of the block. `next` is the token after the last one of each sequence; `None` for the
    /// sampled one.
    pub fn catch_up(&mut self, sequences: &mut [&mut Sequence], next: Option<u32>) -> Result<()> {
        let mut rows = Vec::new();
        for sequence in sequences.iter() {
            let (tokens, sampled) = (&sequence.tokens, RowHeader::sampled(sequence.index));
            let following = |index: usize| tokens.get(index + 1).copied().or(next).unwrap_or(sampled);
            let row = |index: usize| RowHeader { next: following(index), ..sequence.row(tokens[index], index) };
            rows.extend(sequence.block.pending(tokens.len()).map(row));
        }
        for rows in rows.chunks(KEPT_ROWS) {
            self.compute_saved(rows)?;
        }
        sequences.iter_mut().for_each(|sequence| sequence.block.computed_to(sequence.tokens.len()));
        Ok(())
    }

    /// Computes rows of the block, each with the token after it, with the plan of a shape: from hidden states in the
    /// ring buffer, or from those that the model's plan of that shape has just computed.
    pub fn compute_block(&mut self, rows: &[RowHeader], shape: BatchShape, inputs: DraftInputs) -> Result<()> {
        let Self { plans, submissions, model, .. } = self;
        let Some(ready) = plans.block_plan(model, shape, Some(inputs))? else { return Ok(()) };
        submissions.write_batch(&ready.executor, Plan::BATCH, ready.planned.plan.splits, rows)?;
        submissions.push(model.gpu(), ready.executor.submit(0..ready.planned.plan.steps.len(), &[])?)
    }

    /// Computes rows of the block whose hidden states are in the ring buffers.
    pub fn compute_saved(&mut self, rows: &[RowHeader]) -> Result<()> {
        if rows.is_empty() { Ok(()) } else { self.compute_block(rows, self.saved_shape(rows), DraftInputs::Kept) }
    }

    /// The shape of the block's plan for rows whose hidden states were saved.
    pub fn saved_shape(&self, rows: &[RowHeader]) -> BatchShape {
        let of_one = rows.iter().all(|row| row.sequence == rows[0].sequence);
        let outputs = if of_one { Outputs::Last } else { Outputs::Sequences };
        let last = rows.iter().map(|row| row.position as usize).max().unwrap_or_default();
        let before = (last + 1).saturating_sub(rows.len());
        BatchShape::of(rows.len().next_power_of_two().max(2), outputs, before, self.cache.context)
    }

    /// Makes drafts after the sampled tokens. The block's rows have been computed.
    pub fn draft(&mut self, sequences: &mut [&mut Sequence], from: &[Continued], count: usize) -> Result<()> {
        let deepest = from.iter().map(|it| it.position).max().unwrap_or_default();
        let shape = match from {
            [Continued { of, .. }] => {
                self.list_alone(sequences[*of])?;
                BatchShape::ALONE
            }
            _ => BatchShape::of(from.len().next_power_of_two(), Outputs::Sequences, deepest, self.cache.context),
        };
        // The device knows from which rows they continue: how many drafts were accepted, and how many were made since.
        let each = count + from.iter().map(|it| it.verified).max().unwrap_or_default();
        let mut candidates = Vec::with_capacity(from.len() * each);
        for Continued { of, position, verified } in from {
            let sequence = &*sequences[*of];
            let first_page = if shape == BatchShape::ALONE { 0 } else { sequence.first_page as u32 };
            let row = |at| RowHeader { result: self.sessions() as u32, first_page, ..sequence.row(0, position + at) };
            candidates.extend((0..each).map(row));
            if *verified == 0 {
                let none: [u32; 2] = [0; 2]; // accepted drafts, and drafts made since
                let at = (4 * self.drafting_of(sequence) * Plan::SAMPLED_WORDS) as u64;
                self.model.gpu().write(&self.plans.shared.sampled, at, bytemuck::cast_slice(&none))?;
            }
        }
        let Self { plans, submissions, model, .. } = self;
        let Some(ReadyBlock { planned, executor }) = plans.block_plan(model, shape, None)? else { return Ok(()) };
        let Drafting { candidates: local, block, head, .. } = planned.drafting()?;
        submissions.write_batch(executor, local, each, &candidates)?;
        let all = planned.plan.steps.len();
        let steps = (0..block).chain(head..all).chain((1..count).flat_map(|_| 0..all));
        submissions.push(model.gpu(), executor.submit(steps, &[])?)?;
        from.iter().for_each(|it| sequences[it.of].block.made = count);
        Ok(())
    }

    /// Makes drafts after the sampled tokens of those sequences that want any, unless they exist.
    pub fn prepare_drafts(&mut self, sequences: &mut [&mut Sequence], drafting: &[bool], count: usize) -> Result<()> {
        let mut from = Vec::new();
        for (of, sequence) in sequences.iter_mut().enumerate().filter(|(of, _)| drafting[*of]) {
            self.sample_if_left(sequence)?;
            if sequence.block.made < count {
                self.reach(sequence, count)?;
                from.push(Continued { of, position: sequence.tokens.len().saturating_sub(1), verified: 0 });
            }
        }
        if from.is_empty() {
            return Ok(());
        }
        let drafted = sequences.iter_mut().enumerate().filter(|(of, _)| from.iter().any(|it| it.of == *of));
        let mut drafted: Vec<&mut Sequence> = drafted.map(|(_, sequence)| &mut **sequence).collect();
        self.catch_up(&mut drafted, None)?;
        self.draft(sequences, &from, count)
    }

    /// The name of a draft of a sequence, for the row that verifies it.
    pub fn draft_name(&self, sequence: &Sequence, draft: usize) -> u32 {
        RowHeader::sampled(self.drafting_of(sequence) + 1) + draft as u32
    }

    /// The index among the sampled values at which a sequence's drafts are counted; the drafts follow.
    pub fn drafting_of(&self, sequence: &Sequence) -> usize {
        self.sessions() + VERIFIED_ROWS + DRAFTING * sequence.index
    }
}

impl super::Session {
    /// For tests: the logits {vocab} by which the block predicts the token after `next`, which follows the last token
    /// of the session, and those of `count` − 1 further drafts, each after the previous one.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) for a model without a block; any error from the device.
    #[doc(hidden)]
    pub fn draft_logits(&mut self, next: u32, count: usize) -> Result<Vec<Vec<f32>>> {
        self.check(self.tokens().len().saturating_add(count), &[next])?;
        let (mut state, sequence) = self.enter()?;
        let state = &mut *state;
        let length = sequence.tokens.len();
        sequence.block.reopen_last(length);
        state.reach(sequence, count)?;
        state.catch_up(&mut [&mut *sequence], Some(next))?;
        let mut all = Vec::with_capacity(count);
        for drafts in 1..=count {
            let from = Continued { of: 0, position: length.saturating_sub(1), verified: 0 };
            state.draft(&mut [&mut *sequence], &[from], drafts)?;
            let Some(BlockPlans { alone, .. }) = &state.plans.block else { break };
            let drafting = alone.planned.drafting()?;
            let (buffer, vocab) = (alone.executor.local(drafting.logits.buffer.local()?), drafting.logits.shape[0]);
            let logits = state.fetch.read(buffer, 0, 4 * vocab as u64)?;
            all.push(bytemuck::pod_collect_to_vec(&logits));
        }
        Ok(all)
    }
}
