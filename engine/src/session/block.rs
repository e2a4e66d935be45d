//! Drafts by the multi-token-prediction block: its plans on the device, and what they compute for a sequence.
//!
//! The block has a row for every token of a sequence, whose KV rows lie in the sequence's pages. Rows of a prompt follow on
//! the model's rows, part for part. The model's hidden states of single and of verified rows are saved in a ring buffer,
//! and the block catches up with them when drafts are wanted, or when the buffer is full. Drafts are made on the device,
//! and the rows that verify them name where they are, so nothing waits for the host.

use super::device::Device;
use super::plans::SharedBuffers;
use super::sequence::Sequence;
use crate::error::Result;
use crate::gpu::Buffer;
use crate::kernels::{KEPT_ROWS, VERIFIED_ROWS};
use crate::model::{
    BatchShape, CacheShape, DraftInputs, DraftPlan, Drafting, Model, Outputs, plan_drafted_rows, plan_drafting,
};
use crate::plan::{Executor, LocalId, Plan, RowHeader};
use std::collections::HashMap;
use std::ops::Range;

/// The plans of the block on the device.
pub struct BlockPlans {
    /// The plan of a row alone, which makes drafts.
    pub alone: ReadyBlock,
    pub drafting: Drafting,
    /// The plans of several rows, each from its first use on.
    pub rows: HashMap<(BatchShape, DraftInputs), ReadyBlock>,
    /// The model's hidden states that are saved.
    kept: Buffer,
    /// The block's own ones.
    drafted: Buffer,
}

/// A plan of the block on the device.
pub struct ReadyBlock {
    pub planned: DraftPlan,
    pub executor: Executor,
}

impl BlockPlans {
    /// For sessions with a cache as given, whose KV rows take `layer_bytes` bytes. `kept` is the ring buffer of the model's
    /// plans.
    pub fn new(
        model: &Model,
        cache: CacheShape,
        layer_bytes: u64,
        shared: &SharedBuffers,
        kept: Buffer,
    ) -> Result<Self> {
        let mut planned = plan_drafting(model.model_weights(), model.config(), cache, model.target())?;
        let caches: Vec<LocalId> = planned.plan.caches().collect();
        caches.into_iter().for_each(|cache| planned.plan.local_mut(cache).bytes = layer_bytes);
        let locals = shared.states().into_iter().collect();
        let executor = Executor::with_locals(model.pipelines(), &planned.plan, model.weights(), &locals)?;
        let (drafting, drafted) = (planned.drafting()?, executor.local(planned.drafted).clone());
        Ok(Self { alone: ReadyBlock { planned, executor }, drafting, rows: HashMap::new(), kept, drafted })
    }

    /// The KV rows of the block.
    pub fn cache(&self) -> Option<Buffer> {
        let local = self.alone.planned.plan.caches().next()?;
        Some(self.alone.executor.local(local).clone())
    }

    /// Plans rows of the block.
    pub fn plan(&self, model: &Model, cache: CacheShape, shape: BatchShape, inputs: DraftInputs) -> Result<DraftPlan> {
        plan_drafted_rows(model.model_weights(), model.config(), cache, model.target(), (shape, inputs))
    }

    /// The buffers of a plan that are not its own.
    pub fn locals(&self, planned: &DraftPlan, shared: &SharedBuffers) -> HashMap<LocalId, Buffer> {
        let cache = planned.plan.caches().zip(self.cache());
        let states =
            [(planned.drafted, self.drafted.clone())].into_iter().chain(planned.kept.zip(Some(self.kept.clone())));
        shared.states().into_iter().chain(states).chain(cache).collect()
    }
}

/// What the block has computed for a sequence.
#[derive(Debug, Clone, Copy, Default)]
pub struct BlockState {
    /// Whether a row is wanted for every token, because the block may make drafts.
    pub wanted: bool,
    /// For how many tokens there are rows.
    computed: usize,
    /// From which token on hidden states are in the ring buffer.
    saved: usize,
    /// Drafts on the device, of the tokens after the one that was sampled.
    pub made: usize,
}

impl BlockState {
    /// After a rewind from `before` tokens to `length` the last row has to be computed again: another token may follow it.
    /// Of tokens too far back the ring buffer holds nothing any more.
    pub fn truncate(&mut self, before: usize, length: usize) {
        self.computed = self.computed.min(length.saturating_sub(1));
        self.saved = if before - length < KEPT_ROWS / 2 { self.saved.min(length) } else { length };
        self.made = 0;
    }

    /// The first of `length` tokens that rows can be computed for: others before it have none.
    fn pending(&self, length: usize) -> Range<usize> {
        self.computed.max(self.saved).max(length.saturating_sub(KEPT_ROWS))..length
    }

    /// There are rows for `length` tokens.
    pub fn computed_to(&mut self, length: usize) {
        self.computed = length;
    }

    /// Of the tokens before `length` no hidden states are in the ring buffer.
    pub fn forget_states(&mut self, length: usize) {
        self.saved = length;
        self.made = 0;
    }

    /// A token is fed after `length` others. It need not be the one that was sampled, with which the last row was computed.
    pub fn reopen_last(&mut self, length: usize) {
        self.computed = self.computed.min(length.saturating_sub(1));
        self.made = 0;
    }
}

impl Device {
    /// Whether the block computes a row for every token of a sequence.
    pub fn uses_block(&self, sequence: &Sequence) -> bool {
        sequence.block.wanted && self.plans.block.is_some()
    }

    /// Has the hidden states and drafts of a sequence be those on the device. Another one's may have been there.
    pub fn claim_states(&mut self, sequence: &mut Sequence) {
        if self.owners.take_states(sequence.index) {
            sequence.block.forget_states(sequence.tokens.len());
        }
    }

    /// Sees to it that the ring buffer can take the hidden states of `count` further tokens, the first of which is `next`;
    /// `None` for the one that was sampled.
    pub fn reserve_states(&mut self, sequence: &mut Sequence, count: usize, next: Option<u32>) -> Result<()> {
        let pending = sequence.block.pending(sequence.tokens.len());
        if self.uses_block(sequence) && pending.len() + count > KEPT_ROWS {
            self.catch_up(sequence, next)
        } else {
            Ok(())
        }
    }

    /// Computes the rows of the block that are missing. `next` is the token that follows the last one; `None` for the one
    /// that was sampled.
    pub fn catch_up(&mut self, sequence: &mut Sequence, next: Option<u32>) -> Result<()> {
        let (length, sampled) = (sequence.tokens.len(), RowHeader::sampled(sequence.index));
        let following = |index: usize| sequence.tokens.get(index + 1).copied().or(next).unwrap_or(sampled);
        let row = |index: usize| RowHeader { next: following(index), ..sequence.row(sequence.tokens[index], index) };
        let rows: Vec<RowHeader> = sequence.block.pending(length).map(row).collect();
        self.compute_saved(&rows)?;
        sequence.block.computed_to(length);
        Ok(())
    }

    /// Computes rows of the block, each with the token that follows it, by the plan of a shape: from hidden states in the
    /// ring buffer, or from those that the model's plan of that shape has just left.
    pub fn compute_block(&mut self, rows: &[RowHeader], shape: BatchShape, inputs: DraftInputs) -> Result<()> {
        let Self { plans, submissions, model, .. } = self;
        let Some(ready) = plans.block_rows(model, shape, inputs)? else { return Ok(()) };
        submissions.write_batch(&ready.executor, Plan::BATCH, ready.planned.plan.splits, rows)?;
        submissions.push(model.gpu(), ready.executor.submit(0..ready.planned.plan.steps.len(), &[])?)
    }

    /// Computes rows of the block whose hidden states are in the ring buffer.
    pub fn compute_saved(&mut self, rows: &[RowHeader]) -> Result<()> {
        let Some(first) = rows.first() else { return Ok(()) };
        self.compute_block(rows, self.saved_shape(rows.len(), first.position as usize), DraftInputs::Kept)
    }

    /// The shape of the block's plan for rows from a position on whose hidden states were saved.
    pub fn saved_shape(&self, rows: usize, position: usize) -> BatchShape {
        BatchShape::of(rows.next_power_of_two().max(2), Outputs::Last, position, self.cache.context)
    }

    /// Makes drafts of the tokens after the sampled one. The block's rows are there; the last of them is at `position` or,
    /// where `verified` rows were just verified, as many positions further as drafts were accepted.
    pub fn draft(&mut self, sequence: &mut Sequence, position: usize, verified: usize, count: usize) -> Result<()> {
        self.list_alone(sequence)?;
        let (first, counts) = (self.sessions(), self.sessions() + VERIFIED_ROWS);
        let candidate =
            |position: usize| RowHeader { result: first as u32, first_page: 0, ..sequence.row(0, position) };
        let candidates: Vec<RowHeader> = (position..position + verified + count).map(candidate).collect();
        let Self { plans, submissions, model, .. } = self;
        let Some(BlockPlans { alone: ReadyBlock { planned, executor }, drafting, .. }) = &plans.block else {
            return Ok(());
        };
        if verified == 0 {
            let none: [u32; 2] = [0; 2]; // drafts that were accepted, and that were made since
            let at = (4 * counts * Plan::SAMPLED_WORDS) as u64;
            model.gpu().write(&plans.shared.sampled, at, bytemuck::cast_slice(&none))?;
        }
        submissions.write_batch(executor, drafting.candidates, 0, &candidates)?;
        let (all, head) = (planned.plan.steps.len(), drafting.head);
        let steps = (0..drafting.block).chain(head..all).chain((1..count).flat_map(|_| 0..all));
        submissions.push(model.gpu(), executor.submit(steps, &[])?)?;
        sequence.block.made = count;
        Ok(())
    }

    /// Has the block make drafts of the tokens after the sampled one, unless they are there. Returns their names, for rows
    /// that verify them.
    pub fn prepare_drafts(&mut self, sequence: &mut Sequence, count: usize) -> Result<Vec<u32>> {
        self.sample_if_left(sequence)?;
        self.claim_states(sequence);
        if sequence.block.made < count {
            self.reach(sequence, count)?;
            self.catch_up(sequence, None)?;
            self.draft(sequence, sequence.tokens.len().saturating_sub(1), 0, count)?;
        }
        let first = RowHeader::sampled(self.sessions() + VERIFIED_ROWS + 1);
        Ok((first..first + count as u32).collect())
    }
}

impl super::Session {
    /// The logits {vocab} by which the block predicts the token after `next`, which follows the last token of the session,
    /// and those of `count` − 1 further drafts, each after the one before it. For tests.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) for a model without a block; what the device reports.
    #[doc(hidden)]
    pub fn draft_logits(&mut self, next: u32, count: usize) -> Result<Vec<Vec<f32>>> {
        self.check(self.tokens().len().saturating_add(count), &[next])?;
        let (mut device, sequence) = self.device()?;
        let device = &mut *device;
        let length = sequence.tokens.len();
        device.claim_states(sequence);
        sequence.block.reopen_last(length);
        device.reach(sequence, count)?;
        device.catch_up(sequence, Some(next))?;
        let mut all = Vec::with_capacity(count);
        for drafts in 1..=count {
            device.draft(sequence, length.saturating_sub(1), 0, drafts)?;
            let Some(BlockPlans { alone, drafting, .. }) = &device.plans.block else { break };
            let (buffer, vocab) = (alone.executor.local(drafting.logits.buffer.local()?), drafting.logits.shape[0]);
            let logits = device.fetch.read(buffer, 0, 4 * vocab as u64)?;
            all.push(bytemuck::pod_collect_to_vec(&logits));
        }
        Ok(all)
    }
}
