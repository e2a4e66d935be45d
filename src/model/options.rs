//! How a model is loaded.

use super::verdict::{Check, Verdict};
use super::{CacheShape, Config, PromptOptions, usual_arithmetic};
use crate::gpu::{Gpu, Matrices};
use crate::kernels::{Cache, CacheType};
use crate::plan::{Fusions, StepLimit, Target, TilingOverride};
use crate::quant::Arithmetic;
use crate::shader::Variant;

/// How a model is loaded. Fields will be added: make it by `LoadOptions { …, ..LoadOptions::default() }`.
#[derive(Debug, Clone, Default)]
pub struct LoadOptions {
    /// Tokens a session's cache holds unless it asks otherwise; 0 for what the model was made for, none
    /// for that or 8192, whichever is less.
    pub context: Option<usize>,
    /// What the values of the cache are; none for f32 while that takes up to 64 MiB, f16 beyond.
    pub cache: Option<CacheType>,
    /// In what matrix-vector products multiply; none for [`usual_arithmetic`].
    pub arithmetic: Option<Arithmetic>,
    /// Which steps become one.
    pub fusions: Fusions,
    /// Products whose rows are divided otherwise than usual: for measurements.
    pub tiling_overrides: &'static [TilingOverride],
    /// Use the weights where they lie in the file, of several files the first, which is mapped for that, if the GPU shares
    /// the system's memory and wants them as they are: tensors in F32, F16 and BF16. The file must stay as it is while the
    /// model lives then: if another program cuts it short, the process ends. That is for Metal ([`Gpu::shares_pages`]), and has not run on a Mac yet;
    /// elsewhere the file's pages are copied as they are, which gains nothing.
    pub zero_copy: bool,
    /// How prompts are computed, unless a session is told otherwise.
    pub prompt: PromptOptions,
    /// How long a step of a prompt may take; none for what suits the GPU.
    pub limit: Option<StepLimit>,
    /// Whether everything that a conversation needs is compiled during the load, so that neither the first token nor the
    /// first prompt nor the first penalty waits. None for that on a GPU; drivers that compute on the CPU compile one
    /// kernel at a time, longer than a prompt is worth that may never come, so there only a token's are.
    pub compile_all: Option<bool>,
    /// Whether kernels are checked.
    pub check: Check,
    /// What earlier loads found ([`Model::verdict`](super::Model::verdict)), of this model and of others: what is about
    /// something else does not count.
    pub verdicts: Vec<Verdict>,
    /// Kernels that are wrong on purpose.
    #[doc(hidden)]
    pub altered: Option<Altered>,
}

/// Other kernels than the plans', and an adapter that seems to have matrices: for tests of what a check makes of them.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Altered {
    /// The matrices that plans are made for.
    pub matrices: Matrices,
    /// What is compiled in a variant's place.
    pub alter: fn(&Variant) -> Variant,
}

/// Tokens of a cache nobody asked a length for.
const USUAL_CONTEXT: usize = 8192;
/// Bytes up to which a cache is exact unless asked otherwise: so small, it costs no speed worth having.
const SMALL_CACHE: usize = 64 << 20;

impl LoadOptions {
    /// The cache these options mean for a model: its tokens, and the type of its values.
    pub fn cache_for(&self, config: &Config) -> CacheShape {
        let context = match self.context {
            Some(0) => config.context,
            Some(n) => n,
            None => config.context.min(USUAL_CONTEXT),
        };
        let line = Cache::row_values(config.latent_rank, config.rotary) * CacheType::F32.bytes();
        let exact = config.layers.saturating_mul(line).saturating_mul(context);
        let usual = if exact <= SMALL_CACHE { CacheType::F32 } else { CacheType::F16 };
        CacheShape { context, ty: self.cache.unwrap_or(usual) }
    }
}

/// What plans for a device are made for.
pub(super) fn target(gpu: &Gpu, options: &LoadOptions) -> Target {
    let arithmetic = options.arithmetic.unwrap_or_else(|| usual_arithmetic(gpu.report()));
    let usual = Target::of(gpu);
    let matrices = options.altered.map_or(usual.matrices, |altered| altered.matrices);
    let (fusions, tiling_overrides, limit) =
        (options.fusions, options.tiling_overrides, options.limit.unwrap_or(usual.limit));
    Target { arithmetic, matrices, fusions, tiling_overrides, limit, ..usual }
}
