//! A model on the GPU: its weights, its compiled kernels, its text side.

use super::upload::{Uploaded, upload};
use super::{BatchPlan, BatchShape, CacheShape, ChoicePlan, Config, PromptOptions, Shaders, State, TokenPlan};
use super::{plan_batch, plan_choice, plan_token, usual_arithmetic};
use crate::error::{Error, Result};
use crate::gguf::Gguf;
use crate::gpu::{Buffer, Copy, Gpu};
use crate::kernels::{Cache, CacheType};
use crate::plan::{Division, Executor, Fusions, Plan, StepLimit, Target};
use crate::quant::Arithmetic;
use crate::sample::SamplerParams;
use crate::shader::{Pipelines, Variant};
use crate::text::{ChatTemplate, Tokenizer, Vocab};
use crate::threads::join;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

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
    pub divisions: &'static [Division],
    /// Use the weights where they lie in the mapped file, if the GPU shares the system's memory and wants them as they
    /// are: tensors in F32, F16 and BF16. That is for Metal ([`Gpu::shares_pages`]), and has not run on a Mac yet;
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
}

/// How far a load has come, in bytes on the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Bytes there.
    pub done: u64,
    /// Bytes there will be.
    pub total: u64,
}

/// A model on the GPU. Clones share it; it may be used from several threads.
///
/// ```
/// # fn main() -> wglm::Result<()> {
/// # #[cfg(feature = "demo-model")] {
/// use std::ops::ControlFlow;
/// use wglm::{Fit, Gguf, Gpu, GpuOptions, LoadOptions, Model};
///
/// let gpu = Gpu::open(&GpuOptions::default())?;
/// let file = Gguf::from_static(wglm::DEMO_MODEL)?; // or Gguf::open("GLM-4.7-Flash-Q4_0.gguf")
/// let options = LoadOptions { context: Some(1024), ..LoadOptions::default() };
/// let estimate = Model::estimate(&file, &options, Some(&gpu))?;
/// assert!(!matches!(estimate.fit, Fit::Memory { .. }), "{} bytes are too many", estimate.most());
/// let model = Model::load_with(&file, &gpu, &options, &mut |progress| {
///     println!("{} of {} bytes", progress.done, progress.total);
///     ControlFlow::Continue(()) // or Break, to stop
/// })?;
/// assert_eq!(gpu.memory().held, estimate.weights);
/// # }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Model {
    shared: Arc<Shared>,
}

struct Shared {
    file: Gguf,
    /// Its file's, from the first snapshot on.
    fingerprint: OnceLock<u64>,
    config: Config,
    cache: CacheShape,
    target: Target,
    prompt: PromptOptions,
    pipelines: Pipelines,
    weights: Uploaded,
    tokenizer: Option<Tokenizer>,
    template: Option<ChatTemplate>,
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
        let line = Cache::line(config.latent_rank, config.rotary) * CacheType::F32.bytes();
        let exact = config.layers.saturating_mul(line).saturating_mul(context);
        let usual = if exact <= SMALL_CACHE { CacheType::F32 } else { CacheType::F16 };
        CacheShape { context, ty: self.cache.unwrap_or(usual) }
    }
}

impl Model {
    /// Loads the model in `file` to the device.
    ///
    /// # Errors
    /// [`Error::Metadata`], [`Error::Tensor`] and [`Error::Unsupported`] for what is wrong with the file,
    /// [`Error::TooLarge`] and [`Error::OutOfMemory`] for what does not fit, [`Error::Upload`] for weights that did not
    /// arrive.
    pub fn load(file: &Gguf, gpu: &Gpu, options: &LoadOptions) -> Result<Self> {
        Self::load_with(file, gpu, options, &mut |_| ControlFlow::Continue(()))
    }

    /// As [`Model::load`]. `progress` is told before anything is uploaded, after every few megabytes, and once everything
    /// is there again and again while it is verified and kernels are still compiled. It may stop the load each time.
    ///
    /// # Errors
    /// As [`Model::load`], and [`Error::Cancelled`].
    pub fn load_with(
        file: &Gguf,
        gpu: &Gpu,
        options: &LoadOptions,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Self> {
        let config = Config::read(file)?;
        config.notices.iter().for_each(|notice| tracing::warn!("{notice}"));
        let (cache, target) = (options.cache_for(&config), target(gpu, options));
        let planned = plan_token(file, &config, cache, target)?;
        planned.plan.check_bindings(gpu.capabilities().max_binding)?;
        let pipelines = Pipelines::new(gpu);
        let shaders = Shaders::of(file, &config, &planned, target, options.prompt, gpu.capabilities().max_binding)?;
        let all = options.compile_all.unwrap_or(!gpu.report().is_software());
        let variants = if all { shaders.all() } else { shaders.token };
        let (text, weights) = together(file, &pipelines, &planned, &variants, options.zero_copy, progress)?;
        let one_token = plan_token(file, &config, CacheShape { context: 1, ..cache }, target)?;
        warm_up(&pipelines, &one_token, &weights.buffers, State::new(&config))?;
        let file = file.clone();
        let Text { tokenizer, template } = text;
        let (prompt, fingerprint) = (options.prompt, OnceLock::new());
        let shared =
            Shared { file, fingerprint, config, cache, target, prompt, pipelines, weights, tokenizer, template };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The file it came from.
    pub fn file(&self) -> &Gguf {
        &self.shared.file
    }

    /// What tells its file from others: see [`Gguf::fingerprint`].
    pub(crate) fn fingerprint(&self) -> u64 {
        *self.shared.fingerprint.get_or_init(|| self.shared.file.fingerprint())
    }

    /// The hyper-parameters.
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// The cache of a session that does not ask for another.
    pub fn cache(&self) -> CacheShape {
        self.shared.cache
    }

    /// Bytes of its weights that are used where they lie in the file: see [`LoadOptions::zero_copy`].
    pub fn weights_in_place(&self) -> u64 {
        self.shared.weights.in_place
    }

    /// What its plans are made for: the team and the arithmetic that were chosen, among others.
    pub fn target(&self) -> &Target {
        &self.shared.target
    }

    /// How a session that is not told otherwise computes prompts.
    pub fn prompt_options(&self) -> PromptOptions {
        self.shared.prompt
    }

    /// The device.
    pub fn gpu(&self) -> &Gpu {
        self.shared.pipelines.gpu()
    }

    /// The tokenizer.
    ///
    /// # Errors
    /// [`Error::Metadata`] if the file has none.
    pub fn tokenizer(&self) -> Result<&Tokenizer> {
        self.shared.tokenizer.as_ref().ok_or_else(|| missing("tokenizer.ggml.model", "a tokenizer"))
    }

    /// The chat template.
    ///
    /// # Errors
    /// [`Error::Metadata`] if the file has none.
    pub fn template(&self) -> Result<&ChatTemplate> {
        self.shared.template.as_ref().ok_or_else(|| missing("tokenizer.chat_template", "a chat template"))
    }

    /// How tokens are chosen unless asked otherwise: see [`recommended_sampling`].
    ///
    /// # Errors
    /// As there.
    pub fn sampling(&self) -> Result<SamplerParams> {
        recommended_sampling(&self.shared.file)
    }

    pub(crate) fn pipelines(&self) -> &Pipelines {
        &self.shared.pipelines
    }

    pub(crate) fn weights(&self) -> &[Buffer] {
        &self.shared.weights.buffers
    }

    pub(crate) fn plan(&self, cache: CacheShape) -> Result<TokenPlan> {
        plan_token(&self.shared.file, &self.shared.config, cache, self.shared.target)
    }

    /// Plans a choice with room for so many adjustments beside a token's plan.
    pub(crate) fn plan_choice(&self, token: &TokenPlan, room: usize) -> Result<ChoicePlan> {
        plan_choice(&self.shared.config, token, self.shared.target, room)
    }

    /// Plans chunks beside a token's plan.
    pub(crate) fn plan_batch(&self, token: &TokenPlan, shape: BatchShape) -> Result<BatchPlan> {
        plan_batch(&self.shared.file, &self.shared.config, token, self.shared.target, shape)
    }
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model")
            .field("cache", &self.cache())
            .field("gpu", &self.gpu().report().name)
            .finish_non_exhaustive()
    }
}

/// How a file wants tokens to be chosen (`general.sampling.*`); where it is silent, as GLM-4.7-Flash's makers
/// recommend.
///
/// # Errors
/// [`Error::Metadata`] for a recommendation of the wrong type.
pub fn recommended_sampling(file: &Gguf) -> Result<SamplerParams> {
    let usual = SamplerParams::default();
    Ok(SamplerParams {
        temperature: file.opt_f32("general.sampling.temp")?.unwrap_or(usual.temperature),
        top_k: file.opt_u32("general.sampling.top_k")?.map_or(usual.top_k, |k| k as usize),
        top_p: file.opt_f32("general.sampling.top_p")?.unwrap_or(usual.top_p),
        min_p: file.opt_f32("general.sampling.min_p")?.unwrap_or(usual.min_p),
        repeat_penalty: file.opt_f32("general.sampling.penalty_repeat")?.unwrap_or(usual.repeat_penalty),
        repeat_last_n: file.opt_i32("general.sampling.penalty_last_n")?.map_or(usual.repeat_last_n, last_n),
        ..usual
    })
}

/// Tokens that penalties look at, as llama.cpp counts them: all of them if below zero.
fn last_n(count: i32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

fn missing(key: &str, expected: &str) -> Error {
    Error::Metadata { key: key.into(), expected: expected.into(), found: "nothing".into() }
}

/// The text side of a model.
struct Text {
    tokenizer: Option<Tokenizer>,
    template: Option<ChatTemplate>,
}

impl Text {
    fn read(file: &Gguf) -> Result<Self> {
        let tokenizer = Vocab::read(file)?.map(Tokenizer::new).transpose()?;
        let template = file.opt_string("tokenizer.chat_template")?.map(ChatTemplate::new).transpose()?;
        Ok(Self { tokenizer, template })
    }
}

/// Between two looks whether kernels are still compiled.
const LOOK: Duration = Duration::from_millis(10);

/// Reads the text side and compiles the kernels while the weights are uploaded. A failure of either stops the others,
/// and so does whoever is told of the progress, as long as anything is under way.
fn together(
    file: &Gguf,
    pipelines: &Pipelines,
    planned: &TokenPlan,
    variants: &[Variant],
    zero_copy: bool,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<(Text, Uploaded)> {
    let stop = AtomicBool::new(false);
    let stopping = |failed: bool| stop.fetch_or(failed, Ordering::Relaxed) || failed;
    std::thread::scope(|scope| {
        let text = scope.spawn(|| Text::read(file).inspect_err(|_| _ = stopping(true)));
        let kernels = scope.spawn(|| {
            let compiled = pipelines.prepare_until(variants, &stop);
            compiled.map(drop).inspect_err(|_| _ = stopping(true))
        });
        let mut newest = Progress { done: 0, total: 0 };
        let mut tell = |now: Progress| {
            newest = now;
            if stopping(false) { ControlFlow::Break(()) } else { progress(now) }
        };
        let weights = upload(file, pipelines, planned, zero_copy, &mut tell);
        while !stopping(weights.is_err()) && !kernels.is_finished() {
            std::thread::sleep(LOOK);
            stopping(progress(newest).is_break());
        }
        let text = join(text, "reading the tokenizer")?; // what failed by itself rather than what was stopped by it
        match (join(kernels, "compiling kernels"), weights) {
            (Err(Error::Cancelled), Err(error)) | (Err(error), _) => Err(error),
            (Ok(()), Ok(_)) if stopping(false) => Err(Error::Cancelled),
            (Ok(()), weights) => Ok((text, weights?)),
        }
    })
}

/// Runs a token that nobody asked for, without a cache to speak of: what drivers leave to the first use of a kernel
/// or a buffer is then part of the load, and the first token is like any other. It uses every weight, so what does not
/// fit shows here: a driver that gives up without an error leaves no ticket.
fn warm_up(pipelines: &Pipelines, planned: &TokenPlan, weights: &[Buffer], mut state: State) -> Result<()> {
    const TICKET: u32 = 1;
    let gpu = pipelines.gpu();
    let executor = Executor::new(pipelines, &planned.plan, weights)?;
    gpu.write(executor.local(Plan::STATE), 0, state.at(0, TICKET))?;
    let mut words = [0u32; Plan::TOKEN_WORDS];
    let bytes = size_of_val(&words) as u64;
    let choice = gpu.readback("choice", bytes)?;
    let copy = Copy { from: executor.local(Plan::TOKEN), offset: 0, bytes, to: &choice, at: 0 };
    let submission = executor.submit(0..planned.plan.steps.len(), &[copy])?;
    gpu.read_into(&choice, bytemuck::cast_slice_mut(&mut words), &submission)?;
    if words[Plan::TICKET] == TICKET { Ok(()) } else { Err(Error::NoResult) }
}

/// What plans for a device are made for.
pub(super) fn target(gpu: &Gpu, options: &LoadOptions) -> Target {
    let arithmetic = options.arithmetic.unwrap_or_else(|| usual_arithmetic(gpu.report()));
    let usual = Target::of(gpu);
    let limit = options.limit.unwrap_or(usual.limit);
    Target { arithmetic, fusions: options.fusions, divisions: options.divisions, limit, ..usual }
}
