//! The plans of a session's prompts. Each is put on the device when it is first used, and stays there.
//!
//! A part of a prompt runs in the smallest plan that has room for it, so that few tokens do not take the grids of many.
//! All plans share the weights and the caches of the token's plan, and they share their activations with each other. When
//! a plan needs a larger buffer of activations than there is, that buffer is dropped together with the plans that use it,
//! which are made again when they are needed. So of each buffer only the largest one that a plan needs is held.

use super::pace::Pace;
use crate::error::Result;
use crate::gpu::Buffer;
use crate::model::{BatchPlan, BatchShape, Model, Outputs, PromptOptions, State, TokenPlan};
use crate::plan::{Executor, Plan, ScratchKey};
use crate::threads::GoOn;
use std::collections::HashMap;

/// The plans of a session's prompts.
pub struct PromptPlans {
    /// How prompts are computed.
    pub options: PromptOptions,
    plans: HashMap<BatchShape, PromptPlan>,
    /// The buffers of activations that the plans share.
    scratch: HashMap<ScratchKey, Buffer>,
}

/// A plan of a prompt's part on the device.
pub struct PromptPlan {
    pub executor: Executor,
    pub planned: BatchPlan,
    pub pace: Pace,
}

impl PromptPlan {
    /// Writes what belongs to tokens from a position on, with the number of the submissions that compute them.
    pub fn write(&self, state: &State, position: usize, tokens: &[u32], submission: u32) -> Result<()> {
        let (gpu, splits) = (self.executor.gpu(), self.planned.plan.splits);
        let bytes = state.chunk(position, tokens.len(), splits, submission);
        gpu.write(self.executor.local(Plan::BATCH), 0, &bytes)?;
        gpu.write(self.executor.local(Plan::TOKENS), 0, bytemuck::cast_slice(tokens))
    }
}

impl PromptPlans {
    pub fn new(options: PromptOptions) -> Self {
        Self { options, plans: HashMap::new(), scratch: HashMap::new() }
    }

    /// The plan for `count` tokens after `before` others. While kernels are compiled for it, `go_on` is called again and
    /// again.
    pub fn plan(
        &mut self,
        (before, count): (usize, usize),
        outputs: Outputs,
        model: &Model,
        token: (&TokenPlan, &Executor),
        go_on: &mut GoOn<'_>,
    ) -> Result<&mut PromptPlan> {
        let tokens = self.options.room_for(count);
        let shape = BatchShape::of(tokens, outputs, before, token.0.cache.context);
        let plan = match self.plans.remove(&shape) {
            Some(known) => known,
            None => self.make(shape, model, token, go_on)?,
        };
        Ok(self.plans.entry(shape).or_insert(plan))
    }

    fn make(
        &mut self,
        shape: BatchShape,
        model: &Model,
        token: (&TokenPlan, &Executor),
        go_on: &mut GoOn<'_>,
    ) -> Result<PromptPlan> {
        let planned = model.plan_batch(token.0, shape)?;
        model.pipelines().prepare_while(&planned.plan.variants, go_on)?;
        self.drop_outgrown(&planned.plan);
        let known = |(index, key, _)| Some((index, self.scratch.get(&key)?.clone()));
        let mut locals: HashMap<usize, Buffer> = planned.plan.scratch().filter_map(known).collect();
        locals.extend(planned.shared.iter().map(|(here, there)| (*here, token.1.local(*there).clone())));
        let executor = Executor::with_locals(model.pipelines(), &planned.plan, model.weights(), &locals)?;
        for (index, key, _) in planned.plan.scratch() {
            self.scratch.entry(key).or_insert_with(|| executor.local(index).clone());
        }
        let pace = Pace::new(self.options.limit);
        Ok(PromptPlan { executor, planned, pace })
    }

    /// Drops buffers that are too small for a plan, and the plans that use them.
    fn drop_outgrown(&mut self, plan: &Plan) {
        let before = self.scratch.len();
        for (_, key, bytes) in plan.scratch() {
            if self.scratch.get(&key).is_some_and(|buffer| buffer.bytes() < bytes) {
                self.scratch.remove(&key);
            }
        }
        if self.scratch.len() < before {
            self.plans.clear();
        }
    }
}
