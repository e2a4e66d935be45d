//! A model on the GPU: its weights, its compiled kernels, its text side.
//!
//! While the weights are uploaded, kernels compile on other threads. When both are there, the kernels are checked, and
//! a first token is computed, so that the first one that a user waits for takes no longer than the others. All of this
//! happens in parallel with the calling thread, which asks at short intervals whether to continue.

use super::batch_plan::plan_alone;
use super::check::{self, CheckedBatch};
use super::kernel_selection::{KernelSelection, avoiding, nothing_left};
use super::options::{DriverTimeouts, LoadOptions, target};
use super::planner::Planner;
use super::progress::{LoadProgress, LoadStage, Meter};
use super::tuning::Tuning;
use super::upload::{Uploaded, upload};
use super::verdict::Check;
use super::{BatchPlan, BatchShape, BatchWriter, CacheShape, Config, Head, ModelWeights, PromptOptions, SamplingPlan};
use super::{plan_batch, plan_sampling};
use crate::cancel::Cancel;
#[cfg(feature = "constrain")]
use crate::constrain::Vocabulary;
use crate::error::{Error, KernelFinding, Result, Verdict};
use crate::gguf::Gguf;
use crate::gpu::{Buffer, Gpu, Results, SubmissionNumber};
use crate::plan::{BatchHeader, Executor, Plan, RowHeader, Target};
use crate::sample::SamplerParams;
use crate::shader::{Pipelines, Refusal, Variant};
use crate::text::{ChatTemplate, Tokenizer, Vocab};
use crate::threads::{StopCheck, beside, work};
use std::collections::{HashMap, HashSet};
use std::mem::offset_of;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

const LOADING: &str = "loading the model";
/// The first token, which [`LoadStage::Check`] counts as one step.
const WARM_UP: u64 = 1;

/// A model on the GPU. Clones share it, and several threads can use it.
///
/// ```
/// # fn main() -> wglm::Result<()> {
/// use wglm::offers::Fit;
/// use wglm::{Cancel, Gguf, Gpu, GpuOptions, LoadOptions, Model};
///
/// let gpu = Gpu::open(&GpuOptions::default())?;
/// let file = Gguf::from_static(wglm::DEMO_MODEL)?; // or Gguf::open("GLM-4.7-Flash-Q4_0.gguf")
/// let options = LoadOptions { context: Some(1024), ..LoadOptions::default() };
/// let estimate = Model::estimate(&file, &options, Some(&gpu))?;
/// assert!(!matches!(estimate.fit, Fit::Memory { .. }), "{} bytes are too many", estimate.most());
/// let cancel = Cancel::default(); // a clone of it in another thread stops the load
/// let model = Model::load_with(&file, &gpu, &options, &cancel, &mut |progress| {
///     println!("{:?}: {} of {}", progress.stage, progress.done, progress.total);
/// })?;
/// assert_eq!(gpu.memory().held, estimate.weights);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Model {
    shared: Arc<Shared>,
    planned: Arc<Planned>,
}

/// What plans are made for, and those that were made.
struct Planned {
    target: Target,
    /// The target without a tuning.
    untuned: Target,
    verdict: Option<Verdict>,
    plans: Mutex<Plans>,
}

struct Shared {
    file: Gguf,
    /// Computed for the first snapshot.
    fingerprint: OnceLock<u64>,
    digest: OnceLock<[u64; 4]>,
    config: Config,
    cache: CacheShape,
    tuning: Option<Tuning>,
    prompt: PromptOptions,
    pipelines: Pipelines,
    weights: Arc<ModelWeights>,
    uploaded: Uploaded,
    /// What verdicts on its kernels are about.
    subject: String,
    tokenizer: Option<Result<Arc<Tokenizer>>>,
    template: Option<Result<ChatTemplate>>,
    /// Made for the first constraint.
    #[cfg(feature = "constrain")]
    vocabulary: OnceLock<Arc<Vocabulary>>,
}

impl Model {
    /// Loads the model in `file` onto the device.
    ///
    /// # Errors
    /// [`Error::Metadata`], [`Error::Tensor`] and [`Error::Unsupported`] if the file has a defect, inside an
    /// [`Error::File`] if it has a path; [`Error::Io`] if it cannot be read or was written to meanwhile;
    /// [`Error::HostMemory`], [`Error::TooLarge`], [`Error::ContextTooLarge`] and [`Error::OutOfMemory`] if something
    /// does not fit, [`Error::Upload`] if weights did not arrive, [`Error::WrongKernel`] if a kernel cannot be used and
    /// nothing can take its place, or if it ended the device; [`Error::Endless`] if the GPU does not finish a first
    /// token. A tokenizer or a chat template that cannot be used is no error here, because a model computes without
    /// them: [`Config::notices`] say so, and [`Model::tokenizer`] and [`Model::template`] return the error.
    pub fn load(file: &Gguf, gpu: &Gpu, options: &LoadOptions) -> Result<Self> {
        Self::load_with(file, gpu, options, &Cancel::default(), &mut |_| {})
    }

    /// Like [`Model::load`]. `progress` is called on this thread before anything is uploaded, then at every step and at
    /// least every tenth of a second, and once everything is done. It checks `cancel` after each call. Kernels that a
    /// driver is compiling at that moment are compiled to the end, because no driver can be interrupted, so stopping
    /// may take as long as the slowest of them.
    ///
    /// The first load on an adapter computes some results of the kernels again on the CPU, which takes less than a
    /// second: see [`LoadOptions::check`]. A kernel that the driver refuses, that is wrong or that does not end is
    /// replaced by one without subgroup operations or matrices; the other kernels stay as they are. A kernel does not
    /// end if the driver compiles it for a minute during which it finishes no other one either, or runs it for half a
    /// minute (ten minutes each for drivers in software). The thread on which such a compiler runs is abandoned.
    /// [`Model::verdict`] returns the result, which an app should save for the next load; if the load fails,
    /// [`Error::verdict`] does.
    ///
    /// # Errors
    /// The errors of [`Model::load`], and [`Error::Cancelled`].
    pub fn load_with(
        file: &Gguf,
        gpu: &Gpu,
        options: &LoadOptions,
        cancel: &Cancel,
        progress: &mut dyn FnMut(LoadProgress),
    ) -> Result<Self> {
        gpu.check_process()?; // a thread that compiles a kernel may exist only in the parent
        let meter = Meter::default();
        let mut tell = || {
            progress(meter.now());
            cancel.check()
        };
        // On another thread, so that this one can check for cancellation at any time.
        let loaded = beside(LOADING, |check_stop| Self::loaded(file, gpu, options, &meter, check_stop), &mut tell);
        loaded.map_err(|error| file.name(error))
    }

    fn loaded(
        file: &Gguf,
        gpu: &Gpu,
        options: &LoadOptions,
        meter: &Meter,
        check_stop: &mut StopCheck<'_>,
    ) -> Result<Self> {
        let mut config = Config::read(file)?;
        config.notices.iter().for_each(|notice| tracing::warn!("{notice}"));
        let cache = options.cache_for(&config);
        let all = options.compiles_all(Some(gpu));
        let (weights, notice) = ModelWeights::with_block(file, &config, options)?;
        let (tuned, unused) = tuned(file, gpu, options, |target| plan_alone(&weights, &config, cache, target))?;
        let notices = [notice, weights.notice_of_unknown(&config), unused].into_iter().flatten();
        config.notices.extend(notices.inspect(|notice| tracing::warn!("{notice}")));
        let untuned = target(gpu, options);
        let (tuning, options) =
            (options.tuning.as_ref().filter(|_| tuned.is_some()), &tuned.unwrap_or(options.clone()));
        let (prompt, wanted) = (options.prompt.on(gpu.report()), target(gpu, options));
        let planner =
            Planner { config: &config, weights: &weights, cache, prompt, guesses: options.speculation, gpu, all };
        let mut kernels = KernelSelection::new(&planner, &wanted, options)?;
        let timeouts = options.overrides.timeouts.unwrap_or(DriverTimeouts::on(gpu.report()));
        let pipelines = match &options.overrides.altered {
            None => Pipelines::of(gpu),
            Some(altered) => Pipelines::new(gpu).altered(Some(altered.alter)),
        }
        .patient(timeouts.compile);
        let variants = kernels.compiled();
        let loading = Loading { file, pipelines: &pipelines, weights: &weights, zero_copy: options.zero_copy, meter };
        let (text, uploaded) = loading.run(&variants, check_stop)?;
        let one_token = plan_alone(&weights, &config, CacheShape { context: 1, ..cache }, &kernels.target())?;
        meter.expect(LoadStage::Check, WARM_UP + pipelines.missing(&one_token.plan.variants).count() as u64);
        meter.enter(LoadStage::Check);
        kernels.compile(&pipelines, check_stop)?;
        let patient = &pipelines.through(&gpu.patient(timeouts.run));
        if !kernels.is_checked() && options.check != Check::Never {
            let (planner, pipelines, weights) = (&planner, patient, &uploaded.buffers);
            let batches = CheckedBatch::at_load(&config, (prompt, options.speculation), options.check, all);
            let (proven, looked) = (&HashSet::new(), Default::default());
            let subject = check::Subject { planner, pipelines, weights, batches, proven, looked, meter, timeouts };
            let checked = kernels.check(&subject, check_stop);
            planner.weights.table.unchanged()?; // or kernels would be blamed for what another program wrote
            checked?;
        }
        let one_token = plan_alone(&weights, &config, CacheShape { context: 1, ..cache }, &kernels.target())?;
        warm_up(patient, &one_token, &uploaded.buffers, (BatchWriter::new(&config), meter), check_stop)?;
        check_stop()?;
        let (target, untuned, verdict) = (kernels.target(), kernels.avoiding(&untuned), kernels.verdict());
        let planned = Arc::new(Planned { target, untuned, verdict, plans: Mutex::default() });
        let subject = kernels.subject().to_owned();
        let (file, fingerprint, digest) = (file.clone(), OnceLock::new(), OnceLock::new());
        let Text { tokenizer, template, notices } = text;
        config.notices.extend(notices.into_iter().inspect(|notice| tracing::warn!("{notice}")));
        let shared = Shared {
            file,
            fingerprint,
            digest,
            config,
            cache,
            tuning: tuning.cloned(),
            prompt,
            pipelines,
            weights,
            uploaded,
            subject,
            tokenizer,
            template,
            #[cfg(feature = "constrain")]
            vocabulary: OnceLock::new(),
        };
        Ok(Self { shared: Arc::new(shared), planned })
    }

    /// Whether both are the same model with the same plans.
    pub(crate) fn plans_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.planned, &other.planned)
    }

    /// The same model, whose plans do without kernels that the driver refuses.
    ///
    /// # Errors
    /// [`Error::WrongKernel`] for a kernel that was replaced before.
    pub(crate) fn without(&self, refused: &[Refusal]) -> Result<Self> {
        let (Planned { target, untuned, verdict, .. }, subject) = (&*self.planned, self.shared.subject.clone());
        let mut replaced = verdict.as_ref().map_or(Vec::new(), |verdict| verdict.replaced().to_vec());
        for finding in refused.iter().map(KernelFinding::from) {
            if target.replaced.contains(&finding.kernel) {
                return Err(nothing_left(finding, Verdict::new(subject, false, replaced), self.gpu()));
            }
            if replaced.iter().all(|known| known.kernel != finding.kernel) {
                tracing::warn!("kernel `{}` {}: {}", finding.kernel, finding.fault, finding.place);
                replaced.push(finding);
            }
        }
        let (target, untuned) = (avoiding(target, &replaced), avoiding(untuned, &replaced));
        let verdict = Some(Verdict::new(subject, false, replaced));
        let planned = Arc::new(Planned { target, untuned, verdict, plans: Mutex::default() });
        Ok(Self { shared: self.shared.clone(), planned })
    }

    /// The file of the model.
    pub fn file(&self) -> &Gguf {
        &self.shared.file
    }

    /// A number that identifies the model, by its file's header and all of its weights except a multi-token-prediction
    /// block: see [`Gguf::fingerprint`].
    pub(crate) fn fingerprint(&self) -> u64 {
        let Shared { file, uploaded, weights, .. } = &*self.shared;
        let sums = &uploaded.sums[..weights.without_block()];
        *self.shared.fingerprint.get_or_init(|| file.fingerprint(bytemuck::cast_slice(sums)))
    }

    /// The same as [`Gguf::digest`].
    pub(crate) fn digest(&self) -> [u64; 4] {
        let Shared { file, uploaded, weights, .. } = &*self.shared;
        let sums = &uploaded.sums[..weights.without_block()];
        *self.shared.digest.get_or_init(|| file.digest(bytemuck::cast_slice(sums)))
    }

    /// A number that identifies the multi-token-prediction block by its weights; 0 if there is none.
    pub(crate) fn block_fingerprint(&self) -> u64 {
        let Shared { file, uploaded, weights, .. } = &*self.shared;
        let sums = &uploaded.sums[weights.without_block()..];
        if sums.is_empty() { 0 } else { file.fingerprint(bytemuck::cast_slice(sums)) }
    }

    /// The hyper-parameters.
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// The default cache of sessions.
    pub fn cache(&self) -> CacheShape {
        self.shared.cache
    }

    /// The size in bytes of the weights that are used in place: see [`LoadOptions::zero_copy`].
    pub fn weights_in_place(&self) -> u64 {
        self.shared.uploaded.in_place
    }

    /// The target of its plans, with the chosen tilings and arithmetic.
    #[doc(hidden)]
    pub fn target(&self) -> &Target {
        &self.planned.target
    }

    /// The target of plans without a tuning.
    pub(crate) fn untuned(&self) -> &Target {
        &self.planned.untuned
    }

    /// The tuning of [`LoadOptions::tuning`], if it is used.
    pub fn tuning(&self) -> Option<&Tuning> {
        self.shared.tuning.as_ref()
    }

    /// The result of the check at load, or the one of [`LoadOptions::verdicts`] that applied. `None` if the kernels
    /// were not checked, because that was not requested, or there was too little memory for it, and none had to be
    /// replaced.
    ///
    /// If kernels that steps of several conversations need are compiled later, for a [`Scheduler`](crate::Scheduler),
    /// and the driver refuses one, it is replaced there: the verdict of [`Scheduler::model`](crate::Scheduler::model)
    /// has it.
    ///
    /// An app should save it and pass it to the next load, which then takes less time. The library itself saves
    /// nothing.
    pub fn verdict(&self) -> Option<&Verdict> {
        self.planned.verdict.as_ref()
    }

    /// How sessions compute prompts by default.
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
    /// [`Error::Metadata`] if the file has none, or, like [`Error::Unsupported`], one that cannot be used, which
    /// [`Config::notices`] say too. It is inside an [`Error::File`] if the file has a path.
    pub fn tokenizer(&self) -> Result<&Tokenizer> {
        self.shared_tokenizer().map(|tokenizer| &**tokenizer)
    }

    fn shared_tokenizer(&self) -> Result<&Arc<Tokenizer>> {
        let key = "tokenizer.ggml.model";
        match &self.shared.tokenizer {
            Some(tokenizer) => tokenizer.as_ref().map_err(|error| self.unusable(key, "a tokenizer", error)),
            None => Err(self.missing(key, "a tokenizer")),
        }
    }

    /// The vocabulary as constraints need it, made on first use.
    ///
    /// # Errors
    /// The errors of [`Model::tokenizer`]; [`Error::Constraint`].
    #[cfg(feature = "constrain")]
    pub(crate) fn vocabulary(&self) -> Result<&Arc<Vocabulary>> {
        if let Some(known) = self.shared.vocabulary.get() {
            return Ok(known);
        }
        let made = Arc::new(Vocabulary::new(self.shared_tokenizer()?, self.config().vocab)?);
        Ok(self.shared.vocabulary.get_or_init(|| made))
    }

    /// The chat template.
    ///
    /// # Errors
    /// [`Error::Metadata`] if the file has none, or one that cannot be used, which [`Config::notices`] say too. It is
    /// inside an [`Error::File`] if the file has a path.
    pub fn template(&self) -> Result<&ChatTemplate> {
        let key = "tokenizer.chat_template";
        match &self.shared.template {
            Some(template) => template.as_ref().map_err(|error| self.unusable(key, "a template", error)),
            None => Err(self.missing(key, "a chat template")),
        }
    }

    /// The error for a part of the file that cannot be used. It is about the file, and not about what the part was
    /// needed for.
    fn unusable(&self, key: &str, expected: &str, error: &Error) -> Error {
        let error = match error.cause() {
            stated @ (Error::Metadata { .. } | Error::Unsupported { .. }) => stated.clone(),
            other => {
                let expected = format!("{expected} that can be used");
                Error::Metadata { key: key.into(), expected, found: other.to_string() }
            }
        };
        self.shared.file.name(error)
    }

    fn missing(&self, key: &str, expected: &str) -> Error {
        let (key, expected, found) = (key.into(), expected.into(), "nothing".into());
        self.shared.file.name(Error::Metadata { key, expected, found })
    }

    /// The default sampling parameters: see [`recommended_sampling`].
    ///
    /// # Errors
    /// The errors of [`recommended_sampling`].
    pub fn sampling(&self) -> Result<SamplerParams> {
        recommended_sampling(&self.shared.file)
    }

    pub(crate) fn pipelines(&self) -> &Pipelines {
        &self.shared.pipelines
    }

    pub(crate) fn weights(&self) -> &[Buffer] {
        &self.shared.uploaded.buffers
    }

    /// Whether it has a multi-token-prediction block.
    pub(crate) fn has_block(&self) -> bool {
        self.shared.weights.block.is_some()
    }

    /// The weights as the graph uses them.
    pub(crate) fn model_weights(&self) -> &Arc<ModelWeights> {
        &self.shared.weights
    }

    /// The plan of batches of a shape. Each is made once for all sessions with the same cache.
    pub(crate) fn plan(&self, cache: CacheShape, shape: BatchShape) -> Result<Arc<BatchPlan>> {
        if let Some(known) = self.plans().get(&(cache, shape)) {
            return Ok(known.clone());
        }
        let (Shared { config, weights, .. }, target) = (&*self.shared, &self.planned.target);
        let planned = match shape {
            BatchShape::ALONE => plan_alone(weights, config, cache, target)?,
            _ => plan_batch(config, &*self.plan(cache, BatchShape::ALONE)?, target, shape)?,
        };
        Ok(self.plans().entry((cache, shape)).or_insert(Arc::new(planned)).clone())
    }

    fn plans(&self) -> MutexGuard<'_, Plans> {
        self.planned.plans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Plans sampling with up to `capacity` adjustments, with or without masks, for the batch plan that has this head.
    pub(crate) fn plan_sampling(
        &self,
        batch: &BatchPlan,
        head: &Head,
        capacity: usize,
        masked: bool,
    ) -> Result<SamplingPlan> {
        plan_sampling(&self.shared.config, batch, head, &self.planned.target, capacity, masked)
    }
}

/// The options with their tuning applied, if it can be used, and otherwise why not. `plan` plans a token for a target.
///
/// # Errors
/// The errors of the model's file.
fn tuned(
    file: &Gguf,
    gpu: &Gpu,
    options: &LoadOptions,
    plan: impl Fn(&Target) -> Result<BatchPlan>,
) -> Result<(Option<LoadOptions>, Option<String>)> {
    let Some(tuning) = &options.tuning else { return Ok((None, None)) };
    let tuned = options.choosing(&tuning.choices);
    let planned = || plan(&target(gpu, &tuned));
    match tuning.suits(gpu, file, options).and_then(|()| planned().map(drop)) {
        Ok(()) => Ok((Some(tuned), None)),
        Err(reason) => {
            plan(&target(gpu, options))?; // an error without the tuning is not its fault
            Ok((None, Some(Tuning::unused(&reason))))
        }
    }
}

/// Plans by cache and shape.
type Plans = HashMap<(CacheShape, BatchShape), Arc<BatchPlan>>;

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model")
            .field("cache", &self.cache())
            .field("gpu", &self.gpu().report().name)
            .finish_non_exhaustive()
    }
}

/// The sampling parameters that a file recommends (`general.sampling.*`); for parameters that it does not mention, the
/// recommendation of GLM-4.7-Flash's makers.
///
/// # Errors
/// [`Error::Metadata`] if a recommendation has the wrong type.
pub fn recommended_sampling(file: &Gguf) -> Result<SamplerParams> {
    let usual = SamplerParams::default();
    Ok(SamplerParams {
        temperature: file.opt_f32("general.sampling.temp")?.unwrap_or(usual.temperature),
        // In llama.cpp's convention, all tokens are kept if it is negative; 0 says that here.
        top_k: file.opt_i32("general.sampling.top_k")?.map_or(usual.top_k, |k| usize::try_from(k).unwrap_or(0)),
        top_p: file.opt_f32("general.sampling.top_p")?.unwrap_or(usual.top_p),
        min_p: file.opt_f32("general.sampling.min_p")?.unwrap_or(usual.min_p),
        repeat_penalty: file.opt_f32("general.sampling.penalty_repeat")?.unwrap_or(usual.repeat_penalty),
        repeat_last_n: file.opt_i32("general.sampling.penalty_last_n")?.map_or(usual.repeat_last_n, last_n),
        ..usual
    })
}

/// The number of tokens that penalties take into account, in llama.cpp's convention: all of them if it is negative.
fn last_n(count: i32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// The tokenizer and the template of a model, or why they cannot be used.
struct Text {
    tokenizer: Option<Result<Arc<Tokenizer>>>,
    template: Option<Result<ChatTemplate>>,
    /// Notices about them, and about parts of them that are not used.
    notices: Vec<String>,
}

impl Text {
    fn read(file: &Gguf) -> Self {
        let vocab = Vocab::read(file).transpose();
        let source = file.opt_string("tokenizer.chat_template").transpose();
        let template = source.map(|source| source.and_then(ChatTemplate::new));
        let template = match &vocab {
            Some(Ok(vocab)) => template.map(|template| template.map(|template| template.with_vocab(vocab))),
            _ => template,
        };
        let tokenizer = vocab.map(|vocab| vocab.and_then(Tokenizer::new).map(Arc::new));
        let mut notices = match &tokenizer {
            Some(Ok(tokenizer)) => tokenizer.notices().to_vec(),
            Some(Err(error)) => vec![format!("the model neither reads nor writes text: {}", error.cause())],
            None => Vec::new(),
        };
        if let Some(Err(error)) = &template {
            notices.push(format!("the model cannot chat: {}", error.cause()));
        }
        Self { tokenizer, template, notices }
    }
}

/// What a load prepares in parallel.
struct Loading<'a> {
    file: &'a Gguf,
    pipelines: &'a Pipelines,
    weights: &'a ModelWeights,
    zero_copy: bool,
    meter: &'a Meter,
}

impl Loading<'_> {
    /// Reads the tokenizer and the template, and compiles the kernels, while the weights are uploaded.
    fn run(&self, variants: &[Variant], check_stop: &mut StopCheck<'_>) -> Result<(Text, Uploaded)> {
        let Self { file, meter, .. } = *self;
        let mut text = None;
        let compiled = || meter.add(LoadStage::Kernels, 1);
        let missing = self.pipelines.missing(variants);
        meter.expect(LoadStage::Weights, self.weights.table.bytes());
        meter.expect(LoadStage::Kernels, missing.count() as u64);
        check_stop()?;
        let mut jobs = missing.jobs(&compiled);
        jobs.insert(
            0,
            Box::new(|_| {
                text = Some(Text::read(file));
                Ok(())
            }),
        );
        let uploading = |check_stop: &mut StopCheck<'_>| {
            let uploaded = upload(self.pipelines, &self.weights.table, self.zero_copy, meter, check_stop)?;
            meter.enter(LoadStage::Kernels);
            Ok(uploaded)
        };
        let uploaded = work(LOADING, jobs, uploading, check_stop)?;
        Ok((text.ok_or(Error::Worker { doing: "reading the tokenizer" })?, uploaded))
    }
}

/// Runs one token, so that what drivers defer to the first use of a kernel or a buffer is part of the load. The token
/// uses every weight, so a lack of memory shows here: if a driver drops the submission without an error, its number is
/// missing.
fn warm_up(
    pipelines: &Pipelines,
    planned: &BatchPlan,
    weights: &[Buffer],
    (mut writer, meter): (BatchWriter, &Meter),
    check_stop: &mut StopCheck<'_>,
) -> Result<()> {
    let gpu = pipelines.gpu();
    pipelines.prepare_counted(&planned.plan.variants, &|| meter.add(LoadStage::Check, 1), check_stop)?;
    let executor = Executor::new(pipelines, &planned.plan, weights)?;
    let (buffer, offset) = (executor.local(Plan::BATCH), offset_of!(BatchHeader, submission) as u64);
    let number = SubmissionNumber { value: 1, buffer, offset };
    let row = RowHeader::consecutive(0, &[0]);
    gpu.write(buffer, 0, writer.write(&row, planned.plan.splits, number.value))?;
    let mut results = Results::new(gpu, 0, 1)?;
    results.submit(gpu, number, &[], |copies| executor.submit(0..planned.plan.steps.len(), copies))?;
    results.read(gpu, 0)?;
    meter.complete(LoadStage::Check);
    Ok(())
}
