//! Makes the plans whose kernels a load compiles.

use super::verdict::subject;
use super::{BatchPlan, CacheShape, Config, PromptOptions, Shaders, plan_token};
use crate::error::Result;
use crate::gguf::Gguf;
use crate::gpu::Gpu;
use crate::plan::Target;
use crate::shader::Variant;

/// Everything that determines plans, except for the target.
pub(super) struct Planner<'a> {
    pub file: &'a Gguf,
    pub config: &'a Config,
    pub cache: CacheShape,
    pub prompt: PromptOptions,
    pub gpu: &'a Gpu,
    /// Whether to compile everything that a conversation needs, and not only the kernels of a token.
    pub all: bool,
}

/// The plan of a token, and the kernels of everything that a conversation needs.
pub(super) struct Planned {
    pub token: BatchPlan,
    shaders: Shaders,
}

impl Planner<'_> {
    /// Makes the plans for a target; an error if one would not fit.
    pub fn plan(&self, target: Target) -> Result<Planned> {
        let Self { file, config, cache, prompt, .. } = *self;
        let most = self.gpu.capabilities().max_binding;
        let token = plan_token(file, config, cache, target)?;
        token.check(self.gpu.capabilities())?;
        let shaders = Shaders::of(file, config, &token, target, prompt, most)?;
        Ok(Planned { token, shaders })
    }
}

impl Planned {
    /// The variants that a load compiles.
    pub fn compiled(&self, all: bool) -> Vec<Variant> {
        if all { self.shaders.clone().all() } else { self.shaders.token.clone() }
    }

    /// The subject of a verdict on the kernels.
    pub fn subject(&self, gpu: &Gpu) -> String {
        let Shaders { token, prompts, sampling } = &self.shaders;
        subject(gpu, token.iter().chain(prompts).chain(sampling))
    }
}
