//! Makes the plans whose kernels a load compiles.

use super::batch_plan::plan_alone;
use super::verdict::subject;
use super::{CacheShape, Config, ModelWeights, PromptOptions, Shaders};
use crate::error::Result;
use crate::gpu::Gpu;
use crate::plan::Target;
use crate::shader::Variant;
use crate::speculate::DraftKind;
use std::sync::Arc;

/// Everything that determines plans, except for the target.
pub(super) struct Planner<'a> {
    pub config: &'a Config,
    pub weights: &'a Arc<ModelWeights>,
    pub cache: CacheShape,
    pub prompt: PromptOptions,
    /// What guesses tokens.
    pub guesses: DraftKind,
    pub gpu: &'a Gpu,
    /// Whether to compile everything that a conversation needs, and not only the kernels of a token.
    pub all: bool,
}

impl Planner<'_> {
    /// The shaders of the plans for a target; an error if one of the plans would not fit.
    pub fn shaders(&self, target: &Target) -> Result<Shaders> {
        let Self { config, weights, cache, prompt, .. } = *self;
        let most = self.gpu.capabilities().max_binding;
        let token = plan_alone(weights, config, cache, target)?;
        token.check(self.gpu.capabilities())?;
        Shaders::of(config, &token, target, prompt, self.guesses, most)
    }
}

impl Shaders {
    /// The variants that a load compiles.
    pub(super) fn compiled(&self, all: bool) -> Vec<Variant> {
        if all { self.clone().all() } else { self.token.clone() }
    }

    /// The subject of a verdict on the kernels.
    pub(super) fn subject(&self, gpu: &Gpu) -> String {
        let Self { token, prompts, drafts, sampling } = self;
        subject(gpu, token.iter().chain(prompts).chain(drafts).chain(sampling))
    }
}
