//! Drafts by the multi-token-prediction block: its plans on the device, and what they compute for a session.
//!
//! The block has a row for every token of a sequence, whose KV rows lie in the session's pages. Rows of a prompt follow on
//! the model's rows, part for part. The model's hidden states of single and of verified rows are kept in a ring, and the
//! block catches up with them when drafts are wanted, or when the ring is full. Drafts are made on the device, and the step
//! that verifies them is told where they are, so nothing waits for the host.

use super::Session;
use super::plans::SharedBuffers;
use super::pool::Runner;
use crate::error::Result;
use crate::gpu::Buffer;
use crate::kernels::{KEPT_ROWS, VERIFIED_ROWS};
use crate::model::{
    BatchShape, CacheShape, DraftInputs, DraftPlan, Drafting, Model, Outputs, plan_drafted_rows, plan_drafting,
};
use crate::plan::{Executor, LocalId, Plan, RowHeader};
use crate::speculate::DraftKind;
use std::collections::HashMap;
use std::ops::Range;

/// The plans of the block on the device.
pub struct BlockPlans {
    /// The plan of a row alone, which makes drafts.
    pub alone: ReadyBlock,
    pub drafting: Drafting,
    /// The plans of several rows, each from its first use on.
    pub rows: HashMap<(BatchShape, DraftInputs), ReadyBlock>,
    /// The model's hidden states that are kept.
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
    /// For sessions with a cache as given, whose KV rows take `layer_bytes` bytes. `kept` is the ring of the model's plans.
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
        let rings =
            [(planned.drafted, self.drafted.clone())].into_iter().chain(planned.kept.zip(Some(self.kept.clone())));
        shared.states().into_iter().chain(rings).chain(cache).collect()
    }
}

/// What a session knows of its rows of the block.
#[derive(Debug, Clone, Copy, Default)]
pub struct BlockState {
    /// For how many tokens there are rows.
    computed: usize,
    /// From which token on hidden states are in the ring.
    kept: usize,
    /// Drafts on the device, of the tokens behind the one that was sampled.
    pub made: usize,
}

impl BlockState {
    /// After a rewind from so many tokens the last row has to be computed again: another token may follow it. Of tokens too
    /// far back the ring holds nothing any more.
    pub fn truncate(&mut self, before: usize, length: usize) {
        self.computed = self.computed.min(length.saturating_sub(1));
        self.kept = if before - length < KEPT_ROWS / 2 { self.kept.min(length) } else { length };
        self.made = 0;
    }

    /// The first of `length` tokens that rows can be computed for: others before it have none.
    fn pending(&self, length: usize) -> Range<usize> {
        self.computed.max(self.kept).max(length.saturating_sub(KEPT_ROWS))..length
    }

    /// There are rows for `length` tokens.
    pub fn computed_to(&mut self, length: usize) {
        self.computed = length;
    }

    /// Of the tokens before `length` no hidden states are in the ring.
    pub fn forget_states(&mut self, length: usize) {
        self.kept = length;
        self.made = 0;
    }

    /// A token is fed behind `length` others. It need not be the one that was sampled, with which the last row was computed.
    pub fn reopen_last(&mut self, length: usize) {
        self.computed = self.computed.min(length.saturating_sub(1));
        self.made = 0;
    }
}

impl Session {
    /// Whether the block computes a row for every token.
    pub(super) fn uses_block(&self, runner: &Runner) -> bool {
        let wanted = match self.drafter.options.kind {
            DraftKind::Auto => !self.pool.model().gpu().report().is_software(), // on the CPU drafts never pay
            kind => kind == DraftKind::Mtp,
        };
        wanted && runner.plans.block.is_some()
    }

    /// Takes notice that another session may have written over the hidden states and drafts of this one.
    pub(super) fn claim_rings(&mut self, runner: &mut Runner) {
        if runner.drafting.replace(self.sequence) != Some(self.sequence) {
            self.drafter.block.forget_states(self.tokens.len());
        }
    }

    /// Makes room in the ring for the hidden states of `count` further tokens, the first of which is `next`; `None` for the
    /// one that was sampled.
    pub(super) fn keep_room(&mut self, runner: &mut Runner, count: usize, next: Option<u32>) -> Result<()> {
        let pending = self.drafter.block.pending(self.tokens.len());
        if self.uses_block(runner) && pending.len() + count > KEPT_ROWS { self.catch_up(runner, next) } else { Ok(()) }
    }

    /// Computes the rows of the block that are missing. `next` is the token that follows the last one; `None` for the one that
    /// was sampled.
    pub(super) fn catch_up(&mut self, runner: &mut Runner, next: Option<u32>) -> Result<()> {
        let (length, sampled) = (self.tokens.len(), RowHeader::sampled(self.sequence));
        let following = |place: usize| self.tokens.get(place + 1).copied().or(next).unwrap_or(sampled);
        let row = |place: usize| RowHeader { next: following(place), ..self.row(self.tokens[place], place) };
        let rows: Vec<RowHeader> = self.drafter.block.pending(length).map(row).collect();
        self.compute_kept(runner, &rows)?;
        self.drafter.block.computed_to(length);
        Ok(())
    }

    /// Computes rows of the block, each with the token that follows it, by the plan of a shape: from hidden states in the
    /// ring, or from those that the model's plan of that shape has just left.
    pub(super) fn compute_block(
        &mut self,
        runner: &mut Runner,
        rows: &[RowHeader],
        shape: BatchShape,
        inputs: DraftInputs,
    ) -> Result<()> {
        let model = self.pool.model().clone();
        let Runner { plans, submissions, .. } = runner;
        let Some(ready) = plans.block_rows(&model, shape, inputs)? else { return Ok(()) };
        submissions.write_batch(&ready.executor, Plan::BATCH, ready.planned.plan.splits, rows)?;
        submissions.push(model.gpu(), ready.executor.submit(0..ready.planned.plan.steps.len(), &[])?)
    }

    /// Computes rows of the block whose hidden states are in the ring.
    pub(super) fn compute_kept(&mut self, runner: &mut Runner, rows: &[RowHeader]) -> Result<()> {
        let Some(first) = rows.first() else { return Ok(()) };
        let shape = self.kept_shape(rows.len(), first.position as usize);
        self.compute_block(runner, rows, shape, DraftInputs::Kept)
    }

    /// The shape of the block's plan for so many rows from a position on, whose hidden states were kept.
    pub(super) fn kept_shape(&self, rows: usize, position: usize) -> BatchShape {
        BatchShape::of(rows.next_power_of_two().max(2), Outputs::Last, position, self.context())
    }

    /// Makes drafts of the tokens behind the sampled one. The block's rows are there; the last of them is at `position` or,
    /// where drafts were verified, so many places further as were accepted.
    pub(super) fn draft(&mut self, runner: &mut Runner, position: usize, verified: usize, count: usize) -> Result<()> {
        let model = self.pool.model().clone();
        self.list_alone(runner)?;
        let place = self.pool.sessions() + VERIFIED_ROWS;
        let candidate =
            |place: usize| RowHeader { result: self.pool.sessions() as u32, first_page: 0, ..self.row(0, place) };
        let candidates: Vec<RowHeader> = (position..position + verified + count).map(candidate).collect();
        let Runner { plans, submissions, .. } = runner;
        let Some(BlockPlans { alone: ReadyBlock { planned, executor }, drafting, .. }) = &plans.block else {
            return Ok(());
        };
        if verified == 0 {
            let none: [u32; 2] = [0; 2]; // drafts that were accepted, and that were made since
            model.gpu().write(&plans.shared.sampled, word_of(place), bytemuck::cast_slice(&none))?;
        }
        submissions.write_batch(executor, drafting.candidates, 0, &candidates)?;
        let (all, head) = (planned.plan.steps.len(), drafting.head);
        let first = (0..drafting.block).chain(head..all);
        let steps = first.chain((1..count).flat_map(|_| 0..all));
        submissions.push(model.gpu(), executor.submit(steps, &[])?)?;
        self.drafter.block.made = count;
        Ok(())
    }

    /// The names of the drafts that were made, for rows that verify them.
    pub(super) fn made(&self, count: usize) -> Vec<u32> {
        let first = RowHeader::sampled(self.pool.sessions() + VERIFIED_ROWS + 1);
        (first..first + count as u32).collect()
    }
}

/// The first byte of a place in the sampled tokens.
fn word_of(place: usize) -> u64 {
    (4 * place * Plan::SAMPLED_WORDS) as u64
}

impl Session {
    /// The logits {vocab} by which the block predicts the token behind `next`, which follows the last token of the session,
    /// and those of `count` − 1 further drafts, each behind the one before it. For tests.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) for a model without a block; what the device reports.
    #[doc(hidden)]
    pub fn draft_logits(&mut self, next: u32, count: usize) -> Result<Vec<Vec<f32>>> {
        self.check(self.tokens.len().saturating_add(count), &[next])?;
        self.with_runner(|session, runner| {
            let length = session.tokens.len();
            session.claim_rings(runner);
            session.drafter.block.reopen_last(length);
            session.reach(runner, count)?;
            session.catch_up(runner, Some(next))?;
            let mut all = Vec::with_capacity(count);
            for drafts in 1..=count {
                session.draft(runner, length.saturating_sub(1), 0, drafts)?;
                let Some(BlockPlans { alone, drafting, .. }) = &runner.plans.block else { break };
                let (buffer, vocab) = (alone.executor.local(drafting.logits.buffer.local()?), drafting.logits.shape[0]);
                let logits = runner.fetch.read(buffer, 0, 4 * vocab as u64)?;
                all.push(bytemuck::pod_collect_to_vec(&logits));
            }
            Ok(all)
        })
    }
}
