//! How long the steps of a token take, by the GPU's clock.
//!
//! A timestamp after every step would take longer than most steps do. So all steps of one kind run in a pass of their
//! own, which is timed at its beginning and its end. Steps that write the same activations wait for each other, as a
//! step of a token waits for the one before it. The time of a step therefore includes that wait, but not the time that
//! a change from one kernel to another takes.

use super::Session;
use super::block::{BlockPlans, Continued, ReadyBlock};
use super::pool_state::PoolState;
use super::sequence::Sequence;
use super::step::{Batch, Part, Row, StepRequest, Token, Want};
use crate::error::{Error, Result};
use crate::model::{BatchPlan, DraftInputs, Outputs, no_block};
use crate::plan::{Executor, Plan, StepKind};
use std::sync::Arc;

/// The fewest steps of a pass. Fewer steps are repeated, so that the time of the pass itself does not count. A step
/// that is repeated finds its data in the GPU's caches if it fits there, and may then seem faster than it is.
const MIN_STEPS_PER_PASS: usize = 16;

/// How long a token took on the GPU, in nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenProfile {
    /// For each of [`Plan::kinds`](crate::plan::Plan::kinds), the mean time of a step in a pass of such steps.
    pub kinds: Vec<f64>,
    /// All of the token in one pass, as it runs otherwise.
    pub pass: f64,
}

impl Session {
    /// Feeds one token and returns how long it took on the GPU.
    ///
    /// Steps out of order leave wrong activations, sums that grow with every run, and a wrong KV row. None of these
    /// remain: each kind of step runs after a whole token, and a whole token comes last and writes everything again.
    ///
    /// # Errors
    /// The errors of [`Session::feed`]; [`Error::Unsupported`] on a device without timestamps.
    #[doc(hidden)]
    pub fn profile(&mut self, token: u32) -> Result<TokenProfile> {
        self.check(self.tokens().len(), &[token])?;
        let request = StepRequest::row(Token::Known(token), Want::Logits);
        let (mut state, sequence) = self.enter()?;
        let (_, profile) = state.profile(sequence, request)?;
        sequence.tokens.push(token);
        Ok(profile)
    }

    /// Like [`Session::profile`], for tokens computed together: at most as many as a part of a prompt has.
    ///
    /// # Errors
    /// The errors of [`Session::profile`]; [`Error::Argument`] for more tokens than that.
    #[doc(hidden)]
    pub fn profile_batch(&mut self, tokens: &[u32]) -> Result<TokenProfile> {
        self.check(self.tokens().len(), tokens)?;
        self.check_part(tokens.len())?;
        let (shape, limit) = (self.shape(tokens.len(), Outputs::Last), self.options.limit);
        let (state, parts, check_stop) = (&mut *self.pool.enter()?, &mut self.parts, &mut |_| Ok(()));
        state.settle(&mut self.sequence)?;
        let row = |token: &u32| Row { of: 0, token: Token::Known(*token), want: Want::Nothing };
        let part = Some(Part { shape, limit, idle: true, parts, then: None, check_stop });
        let request = StepRequest { part, ..StepRequest::new(tokens.iter().map(row).collect()) };
        let (_, profile) = state.profile(&mut self.sequence, request)?;
        self.sequence.tokens.extend_from_slice(tokens);
        Ok(profile)
    }

    /// The times of the parts of a step that verifies `drafts` drafts by the multi-token-prediction block and makes new
    /// ones: the model's rows, the block's rows, and a draft, each with its plan. The session keeps its tokens.
    ///
    /// # Errors
    /// The errors of [`Session::profile`]; [`Error::Argument`] for a model without a block, and for more drafts than a
    /// step verifies.
    #[doc(hidden)]
    pub fn profile_drafts(&mut self, token: u32, drafts: usize) -> Result<Vec<(Plan, TokenProfile)>> {
        if !self.model().has_block() {
            return Err(no_block());
        }
        self.check_drafts(drafts)?;
        let length = self.tokens().len();
        self.check(length + drafts, &[token])?;
        let (mut state, sequence) = self.enter()?;
        let state = &mut *state;
        let mut parts = Vec::new();
        let request = StepRequest::verification(Token::Known(token), &vec![token; drafts], Want::Logits);
        let (batch, profile) = state.profile(sequence, request)?;
        parts.push((state.plans.get(&state.model, batch.plan, &mut || Ok(()))?.planned.plan.clone(), profile));
        state.compute_saved(&batch.headers)?;
        let shape = state.saved_shape(&batch.headers);
        if let Some(ready) = state.plans.block_plan(&state.model, shape, Some(DraftInputs::Kept))? {
            parts.push((ready.planned.plan.clone(), profile_of(&ready.executor, &ready.planned.plan)?));
        }
        state.draft(&mut [sequence], &[Continued { of: 0, position: length, verified: 0 }], drafts)?;
        if let Some(BlockPlans { alone: ReadyBlock { planned, executor }, .. }) = &state.plans.block {
            parts.push((planned.plan.clone(), profile_of(executor, &planned.plan)?));
        }
        sequence.block.forget_states(length);
        Ok(parts)
    }

    /// The plan that computes `count` tokens together, after the current ones.
    ///
    /// # Errors
    /// The errors of the model's file; [`Error::Argument`] for more than one part of a prompt has.
    #[doc(hidden)]
    pub fn batch_plan(&self, count: usize) -> Result<Arc<BatchPlan>> {
        self.check_part(count)?;
        self.model().plan(self.planned.cache, self.shape(count, Outputs::Last))
    }
}

impl Session {
    /// Returns an error for more tokens than a part of a prompt has, or none.
    fn check_part(&self, tokens: usize) -> Result<()> {
        let most = self.options.together();
        if (1..=most).contains(&tokens) {
            return Ok(());
        }
        Err(Error::argument("tokens", format!("1 to {most} tokens"), tokens.to_string()))
    }
}

impl PoolState {
    /// How long a step takes, and its batch. Only the pages that the sequence got for it remain.
    fn profile(&mut self, sequence: &mut Sequence, mut request: StepRequest<'_>) -> Result<(Batch, TokenProfile)> {
        let batch = self.write(&mut [&mut *sequence], &mut request)?;
        sequence.output = None;
        let ready = self.plans.get(&self.model, batch.plan, &mut || Ok(()))?;
        let profile = profile_of(&ready.executor, &ready.planned.plan)?;
        Ok((batch, profile))
    }
}

/// How long the kinds of a plan's steps take, and all steps in one pass.
fn profile_of(executor: &Executor, plan: &Plan) -> Result<TokenProfile> {
    let all: Vec<usize> = (0..plan.steps.len()).collect();
    let time = |kind: &StepKind<'_>| kind_time(executor, &all, &repeated(kind));
    let kinds = plan.kinds().iter().map(time).collect::<Result<_>>()?;
    Ok(TokenProfile { kinds, pass: executor.time(&[&all])?[0] })
}

/// The time of a step of a kind, which runs after all steps of a token or of a part of a prompt.
fn kind_time(executor: &Executor, all: &[usize], pass: &[usize]) -> Result<f64> {
    Ok(executor.time(&[all, pass])?[1] / pass.len() as f64)
}

/// The steps of a kind, repeated until they are enough for a pass.
fn repeated(kind: &StepKind<'_>) -> Vec<usize> {
    let times = MIN_STEPS_PER_PASS.div_ceil(kind.steps.len().max(1));
    kind.steps.repeat(times)
}
