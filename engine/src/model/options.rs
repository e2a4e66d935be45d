//! The options of a load.

use super::tuning::Tuning;
use super::verdict::Check;
use super::{CacheShape, Config, PromptOptions, usual_arithmetic};
use crate::error::Verdict;
use crate::gguf::Gguf;
use crate::gpu::{AdapterReport, Gpu, Matrices};
use crate::kernels::CacheType;
use crate::plan::{Choices, Fusions, StepLimit, Target};
use crate::quant::Arithmetic;
use crate::shader::{Pipelines, Variant};
use crate::speculate::DraftKind;
use std::sync::Arc;
use std::time::Duration;

/// The options of a load. Fields will be added, so construct it as `LoadOptions { …, ..LoadOptions::default() }`.
#[derive(Debug, Clone, Default)]
pub struct LoadOptions {
    /// The default context of sessions in tokens; 0 for the context that the model was trained for, `None` for that or
    /// 8192, whichever is less.
    pub context: Option<usize>,
    /// The type of the cache's values; `None` for f32 if the cache then takes up to 64 MiB, and f16 otherwise.
    pub cache: Option<CacheType>,
    /// The arithmetic of matrix-vector products; `None` for [`usual_arithmetic`].
    pub arithmetic: Option<Arithmetic>,
    /// Uses weights in F32, F16 and BF16 in place, in the mapped file (the first of several files), if the GPU shares
    /// the system's memory. The file must not change while the model lives: if another program cuts it short, the
    /// process ends. This is for Metal ([`Gpu::shares_pages`]), and has not been run on a Mac yet; elsewhere the pages
    /// of the file are copied unchanged, which gains nothing.
    pub zero_copy: bool,
    /// How prompts are computed, unless a session sets it otherwise.
    pub prompt: PromptOptions,
    /// Whether the load compiles everything that a conversation needs, so that neither the first token nor the first
    /// prompt nor the first penalty waits. `None` means yes on a GPU. Drivers that compute on the CPU compile one
    /// kernel at a time, which takes too long for a prompt that may never come, so for them only the kernels of a token
    /// are compiled.
    pub compile_all: Option<bool>,
    /// When kernels are checked.
    pub check: Check,
    /// The results of earlier loads ([`Model::verdict`](super::Model::verdict)), of this model and of others. Results
    /// about other kernels or adapters are ignored.
    pub verdicts: Vec<Verdict>,
    /// What guesses tokens: with [`DraftKind::Auto`] the multi-token-prediction block is loaded if the file has one,
    /// with [`DraftKind::Mtp`] it has to be there, and with others it is left out.
    /// [`Session::set_speculation`](crate::Session::set_speculation) sets how a session guesses.
    pub speculation: DraftKind,
    /// A separate file with a multi-token-prediction block, as published with some models. It replaces a block in the
    /// model's file, and uses the model's embeddings and output matrix unless it has its own under the block's name.
    pub draft_model: Option<Gguf>,
    /// What [`tune`](crate::tune::tune()) found for the GPU and the model. A tuning for another GPU, driver, version or
    /// model is not used, nor one for another arithmetic than is requested here; [`Config::notices`] says why. Its
    /// prompt chunk is used where [`LoadOptions::prompt`] has the default.
    pub tuning: Option<Tuning>,
    /// What measurements and tests override.
    #[doc(hidden)]
    pub overrides: LoadOverrides,
}

/// What measurements and tests override in the plans of a model. Apps have no use for it.
#[doc(hidden)]
#[derive(Debug, Clone, Default)]
pub struct LoadOverrides {
    /// Which steps are fused.
    pub fusions: Fusions,
    /// Choices that override the tables and [`LoadOptions::tuning`].
    pub choices: Choices,
    /// How long a step of a prompt may take; `None` for a limit that suits the GPU.
    pub limit: Option<StepLimit>,
    /// Replacements that make kernels wrong, for tests of the check at load.
    pub altered: Option<Altered>,
    /// How long the load waits for a driver; `None` for a limit that suits the GPU.
    pub timeouts: Option<DriverTimeouts>,
}

/// How long a load waits for a driver before it considers a kernel endless.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct DriverTimeouts {
    /// How long the driver may compile without finishing a kernel.
    pub compile: Duration,
    /// How long a step of the check may run.
    pub run: Duration,
}

impl DriverTimeouts {
    /// The limits for an adapter. A step takes less than a second on a GPU; a driver that computes on the CPU shares it
    /// with all other programs.
    pub(super) fn on(report: &AdapterReport) -> Self {
        let run = Duration::from_secs(if report.is_software() { 600 } else { 30 });
        Self { compile: Pipelines::usual_patience(report), run }
    }
}

/// Replaces kernels of the plans, and makes the adapter seem to have matrices.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Altered {
    /// The matrices that plans are made for.
    pub matrices: Matrices,
    /// The variant that is compiled in place of another.
    pub alter: fn(&Variant) -> Variant,
}

/// The largest default context in tokens.
const USUAL_CONTEXT: usize = 8192;
/// The size in bytes up to which a cache is f32 by default. For such a small cache that costs hardly any speed.
const SMALL_CACHE: usize = 64 << 20;

impl LoadOptions {
    /// The cache that these options give for a model: its context, and the type of its values.
    pub fn cache_for(&self, config: &Config) -> CacheShape {
        let context = match self.context {
            Some(0) => config.context,
            Some(n) => n,
            None => config.context.min(USUAL_CONTEXT),
        };
        let line = CacheType::F32.row_bytes(config.latent_rank, config.rotary);
        let exact = config.layers.saturating_mul(line).saturating_mul(context);
        let usual = if exact <= SMALL_CACHE { CacheType::F32 } else { CacheType::F16 };
        CacheShape { context, ty: self.cache.unwrap_or(usual) }
    }

    /// Whether a load on this GPU compiles everything; without a GPU, the answer is that for a GPU that is not emulated
    /// in software.
    pub(super) fn compiles_all(&self, gpu: Option<&Gpu>) -> bool {
        self.compile_all.unwrap_or(!gpu.is_some_and(|gpu| gpu.report().is_software()))
    }

    /// These options with a tuning's choices where nothing else is requested.
    pub(super) fn choosing(&self, tuned: &Choices) -> Self {
        let choices = self.overrides.choices.or(tuned);
        let mut prompt = self.prompt;
        prompt.chunk = prompt.chunk.or(choices.chunk);
        Self { prompt, overrides: LoadOverrides { choices, ..self.overrides.clone() }, ..self.clone() }
    }

    /// The requested arithmetic, or the adapter's `usual` one.
    pub(super) fn arithmetic_or(&self, usual: Arithmetic) -> Arithmetic {
        self.arithmetic.or(self.overrides.choices.arithmetic).unwrap_or(usual)
    }
}

impl LoadOverrides {
    /// A target with these overrides.
    pub fn apply(&self, usual: Target) -> Target {
        Target {
            fusions: self.fusions,
            tilings: self.choices.table.unwrap_or(usual.tilings),
            choices: Arc::new(self.choices.clone()),
            limit: self.limit.unwrap_or(usual.limit),
            matrices: self.altered.map_or(usual.matrices, |altered| altered.matrices),
            ..usual
        }
    }
}

/// The target of plans for a device.
pub(super) fn target(gpu: &Gpu, options: &LoadOptions) -> Target {
    let arithmetic = options.arithmetic_or(usual_arithmetic(gpu.report()));
    options.overrides.apply(Target { arithmetic, ..Target::of(gpu) })
}
