//! Lists the shaders that a conversation needs, alone or together with others.
//!
//! A driver compiles each of them, Metal from source, so the number of shaders determines how long the first start of a
//! model takes. Plans for few tokens, for many, and for a deep cache share shaders that would differ only in the number
//! of tokens.
//!
//! A conversation with GLM-4.7-Flash needs at most 86, and 96 if the file has many formats. All are compiled at load.

use super::draft_plan::block_shapes;
use super::{BatchPlan, BatchShape, CacheShape, Config, DraftInputs, Model, PromptOptions};
use super::{plan_batch, plan_drafted_rows, plan_drafting, plan_sampling};
use crate::error::Result;
use crate::plan::{Plan, Target};
use crate::shader::Variant;
use crate::speculate::DraftKind;
use std::collections::HashSet;

/// Shaders, each in the first list that needs it.
#[derive(Debug, Clone, Default)]
pub struct Shaders {
    /// The shaders of a token, sampling included.
    pub token: Vec<Variant>,
    /// The additional shaders of prompts of any length at any depth.
    pub prompts: Vec<Variant>,
    /// The additional shaders of steps that verify drafts, and of a multi-token-prediction block.
    pub drafts: Vec<Variant>,
    /// The additional shaders of sampling with bias or penalties.
    pub sampling: Vec<Variant>,
}

impl Shaders {
    /// The shaders that a conversation needs, given the plan of a token.
    ///
    /// # Errors
    /// The errors of [`plan_batch`], and [`Error::TooLarge`](crate::Error::TooLarge) for a plan of prompts that needs a
    /// binding of more than `allowed` bytes.
    pub fn of(
        config: &Config,
        token: &BatchPlan,
        target: &Target,
        prompt: PromptOptions,
        guesses: DraftKind,
        allowed: u64,
    ) -> Result<Self> {
        let mut seen = HashSet::new();
        let mut new = |plan: Plan| -> Vec<Variant> {
            plan.variants.into_iter().filter(|variant| seen.insert(variant.clone())).collect()
        };
        let mut shaders = Self { token: new(token.plan.clone()), ..Self::default() };
        for shape in BatchShape::all(prompt, token.cache.context) {
            let plan = plan_batch(config, token, target, shape)?.plan;
            plan.check_bindings(allowed)?;
            shaders.prompts.extend(new(plan));
        }
        for shape in BatchShape::verified(config, guesses, token.cache.context) {
            shaders.drafts.extend(new(plan_batch(config, token, target, shape)?.plan));
        }
        if token.weights.block.is_some() {
            let (weights, cache) = (&token.weights, token.cache);
            shaders.drafts.extend(new(plan_drafting(weights, config, cache, target, BatchShape::ALONE)?.plan));
            for shape in block_shapes(prompt, cache.context) {
                shaders.drafts.extend(new(plan_drafted_rows(weights, config, cache, target, shape)?.plan));
            }
        }
        if let Some(head) = &token.head {
            shaders.sampling = new(plan_sampling(config, token, head, target, 1, false)?.plan);
        }
        Ok(shaders)
    }

    /// All shaders.
    pub fn all(self) -> Vec<Variant> {
        [self.token, self.prompts, self.drafts, self.sampling].concat()
    }

    /// The number of shaders.
    pub fn count(&self) -> usize {
        self.token.len() + self.prompts.len() + self.drafts.len() + self.sampling.len()
    }
}

impl Model {
    /// The shaders of steps of up to `most` rows of several sequences, with bias and penalties or without, and of
    /// drafts for them; those of a row alone, and of masks.
    pub(crate) fn shaders_of_sequences(&self, cache: CacheShape, most: usize) -> Result<Vec<Variant>> {
        let (weights, config, target) = (self.model_weights(), self.config(), self.target());
        let alone = self.plan(cache, BatchShape::ALONE)?;
        let mut variants = self.plan_sampling(&alone, alone.head()?, 1, true)?.plan.variants;
        variants.extend(alone.plan.variants.iter().cloned());
        for shape in BatchShape::of_sequences(most, cache.context) {
            let planned = self.plan(cache, shape)?;
            variants.extend(planned.plan.variants.iter().cloned());
            variants.extend(self.plan_sampling(&planned, planned.head()?, 1, false)?.plan.variants);
            if self.has_block() {
                let rows = plan_drafted_rows(weights, config, cache, target, (shape, DraftInputs::Kept))?;
                variants.extend(rows.plan.variants);
                variants.extend(plan_drafting(weights, config, cache, target, shape)?.plan.variants);
            }
        }
        Ok(variants)
    }
}
