//! The plans of a session's chunks, each on the device from its first use on.
//!
//! A chunk runs in the smallest plan that has room for it, so that few tokens do not take the grids of many. All of
//! them share the weights and the caches of the token's plan, and each other's activations.

use super::pace::Pace;
use crate::error::Result;
use crate::gpu::Buffer;
use crate::model::{BatchPlan, BatchShape, Model, Outputs, PromptOptions, State, TokenPlan};
use crate::plan::{Executor, Plan, Purpose};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// The plans there are so far.
pub struct Chunks {
    pub options: PromptOptions,
    classes: HashMap<BatchShape, Class>,
    /// The largest buffer of each name, and of those that have the same, of each in turn.
    scratch: HashMap<(String, usize), Buffer>,
}

/// A plan on the device.
pub struct Class {
    pub executor: Executor,
    pub planned: BatchPlan,
    pub pace: Pace,
}

impl Class {
    /// Writes what belongs to tokens from a position on.
    pub fn write(&self, state: &State, position: usize, tokens: &[u32]) -> Result<()> {
        let gpu = self.executor.gpu();
        gpu.write(self.executor.local(Plan::STATE), 0, &state.chunk(position, tokens.len()))?;
        gpu.write(self.executor.local(Plan::TOKEN), 0, bytemuck::cast_slice(tokens))
    }
}

impl Chunks {
    pub fn new(options: PromptOptions) -> Self {
        Self { options, classes: HashMap::new(), scratch: HashMap::new() }
    }

    /// The plan for `count` tokens, up to what the options allow, after `before` others.
    pub fn class(
        &mut self,
        (before, count): (usize, usize),
        outputs: Outputs,
        model: &Model,
        token: (&TokenPlan, &Executor),
    ) -> Result<&mut Class> {
        let tokens = self.options.room_for(count);
        let shape = BatchShape { tokens, outputs, deep: before >= BatchShape::DEEP };
        match self.classes.entry(shape) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(place) => {
                let planned = model.plan_batch(token.0, shape)?;
                let mut locals = scratch_of(&planned.plan, &self.scratch);
                locals.extend(planned.lent.iter().map(|(here, there)| (*here, token.1.local(*there).clone())));
                let executor = Executor::with_locals(model.pipelines(), &planned.plan, model.weights(), &locals)?;
                for (index, key, bytes) in named(&planned.plan) {
                    if self.scratch.get(&key).is_none_or(|buffer| buffer.bytes() < bytes) {
                        self.scratch.insert(key, executor.local(index).clone());
                    }
                }
                let pace = Pace::new(self.options.limit);
                Ok(place.insert(Class { executor, planned, pace }))
            }
        }
    }
}

/// The activations of a plan: their places, their names with how many of that name came before, their bytes.
fn named(plan: &Plan) -> impl Iterator<Item = (usize, (String, usize), u64)> {
    let mut seen: HashMap<&str, usize> = HashMap::new();
    let locals = plan.locals.iter().enumerate().filter(|(_, local)| local.purpose == Purpose::Scratch);
    let all: Vec<_> = locals
        .map(|(index, local)| {
            let count = seen.entry(&local.name).or_default();
            *count += 1;
            (index, (local.name.clone(), *count), local.bytes)
        })
        .collect();
    all.into_iter()
}

/// The buffers there are that have room for a plan's activations.
fn scratch_of(plan: &Plan, known: &HashMap<(String, usize), Buffer>) -> HashMap<usize, Buffer> {
    let fits = |(index, key, bytes)| {
        let buffer: &Buffer = known.get(&key)?;
        (buffer.bytes() >= bytes).then(|| (index, buffer.clone()))
    };
    named(plan).filter_map(fits).collect()
}
