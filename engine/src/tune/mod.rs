//! Finds the choices that are fastest on the GPU at hand: measures candidates for the steps of a model by whole tokens
//! and prompts, and chooses those that make these faster.
//!
//! `candidates` lists the candidates, `search` decides between them, and `bench` measures and checks on the device.
//!
//! The chosen values are [`Choices`], which the code asks before its own tables. Because they
//! change shaders, the load that uses a tuning checks its kernels again.

mod bench;
pub(crate) mod candidates;
pub(crate) mod compare;
mod question;
mod search;

use crate::cancel::Cancel;
use crate::error::{Error, Result};
use crate::gpu::{AdapterReport, Gpu};
use crate::model::{CacheShape, Model};
use crate::threads::with_stop_signal;
use bench::GpuBench;
use candidates::{About, questions};
use question::Workload;
use search::{Bench, Found, Search};
use std::cell::Cell;
use std::time::{Duration, Instant};

pub use crate::model::{Comparison, Figure, Outcome, Trial, Tuning, TuningSubject};
pub use crate::plan::Choices;

/// How to tune. Fields will be added, so construct it as `TuneOptions { …, ..TuneOptions::default() }`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TuneOptions {
    /// The approximate time limit; `None` for a minute on a fast GPU, and up to five on a slow one. A driver that
    /// compiles a kernel cannot be interrupted, so a tuning may take somewhat longer.
    pub budget: Option<Duration>,
    /// Whether the budget is a strict limit, for a user who waits: when time is up, or after a cancellation, the call
    /// returns as soon as the present submission or kernel has finished. Choices whose final comparison is not finished
    /// by then are dropped.
    pub strict: bool,
}

/// Seconds of a tuning at a first start.
const FIRST: u64 = 20;
/// The minimum size in bytes of the weights of a model that is worth tuning. A token of a smaller model takes about as
/// long as its dispatches, however they are divided.
const MIN_WEIGHT_BYTES: u64 = 1 << 30;

/// How a program should tune a newly loaded model: once, for at most 20 seconds, if the adapter is a GPU without
/// built-in measurements, the model has a gigabyte of weights, and no tuning was loaded with it. Save the result, even
/// if nothing is faster, and pass it to the next load. wglm itself never tunes unless asked.
pub fn first_tuning(model: &Model) -> Option<TuneOptions> {
    let weights = model.file().tensors().map(|tensor| tensor.bytes as u64).sum();
    let options = TuneOptions { budget: Some(Duration::from_secs(FIRST)), strict: true };
    is_worth_it(model.tuning().is_some(), model.gpu().report(), weights).then_some(options)
}

fn is_worth_it(tuned: bool, adapter: &AdapterReport, weights: u64) -> bool {
    !tuned && !adapter.is_measured() && !adapter.is_software() && weights >= MIN_WEIGHT_BYTES
}

/// The progress of a tuning.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TuneProgress {
    /// What is being tried, such as `moe.down, 1 row`.
    pub doing: String,
    /// The time since the beginning.
    pub spent: Duration,
    /// The time that it should take.
    pub budget: Duration,
    /// The candidates that were tried.
    pub trials: usize,
    /// The candidates that were chosen.
    pub kept: usize,
}

impl TuneProgress {
    /// The fraction of the time that has passed, from 0 to 1.
    pub fn share(&self) -> f32 {
        (self.spent.as_secs_f32() / self.budget.as_secs_f32().max(f32::MIN_POSITIVE)).min(1.0)
    }
}

/// How long a cancelled tuning waits for the end of a pause.
const PATIENCE: Duration = Duration::from_secs(1);

/// The number of tokens in a deep cache: the largest of these that fits into memory.
const DEEP: [usize; 4] = [16 << 10, 4 << 10, 1 << 10, 0];
/// The tokens of a long prompt, and of a prompt's part after a deep cache.
const LONG: usize = 4096;
const AFTER: usize = 512;
/// The maximum number of tokens in a cache or prompt with a software driver, which takes tens of milliseconds for each.
const MAX_ON_SOFTWARE: usize = 256;
/// The part of the GPU's memory that the cache may take.
const SHARE: u64 = 8;
/// The default budget: the time of this many tokens, within these bounds in seconds.
const TOKENS: f64 = 12_000.0;
const MIN_BUDGET_S: f64 = 60.0;
const MAX_BUDGET_S: f64 = 300.0;

/// Measures candidates on the GPU that a model was loaded on, and returns the choices that are faster than the built-in
/// ones, with a list of everything that was tried. Pass it to the next load:
/// [`LoadOptions::tuning`](crate::LoadOptions::tuning).
///
/// Candidates are measured by whole tokens and whole prompts, alternating with the present choices, and chosen only if
/// they are faster by more than the spread of the measurements, and if results are correct. At the end all choices are
/// compared with the built-in ones; those that are not faster are dropped. If nothing is faster, [`Tuning::choices`] is
/// empty. The model is not changed, but the GPU is busy, so do not use a session meanwhile.
///
/// `progress` is called on this thread for every trial. A cancellation takes effect after the present submission or
/// kernel. The choices so far are then compared and returned.
///
/// ```
/// # fn main() -> wglm::Result<()> {
/// # use wglm::{Gguf, Gpu, GpuOptions, LoadOptions, Model};
/// # let (gpu, file) = (Gpu::open(&GpuOptions::default())?, Gguf::from_static(wglm::DEMO_MODEL)?);
/// use std::time::Duration;
/// use wglm::Cancel;
/// use wglm::tune::{TuneOptions, Tuning, tune};
///
/// let model = Model::load(&file, &gpu, &LoadOptions::default())?;
/// let options = TuneOptions { budget: Some(Duration::from_millis(300)), ..TuneOptions::default() }; // or the default
/// let tuning = tune(&model, &options, &Cancel::default(), &mut |progress| {
///     let percent = 100.0 * progress.share();
///     println!("{percent:3.0} %, {} of {} kept: {}", progress.kept, progress.trials, progress.doing);
/// })?;
/// let kept = tuning.to_string(); // in a file
/// let tuning: Tuning = kept.parse()?;
/// let model = Model::load(&file, &gpu, &LoadOptions { tuning: Some(tuning), ..LoadOptions::default() })?;
/// assert!(model.tuning().is_some());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Error::OutOfMemory`] if not even a small cache fits; any error from the device.
pub fn tune(
    model: &Model,
    options: &TuneOptions,
    cancel: &Cancel,
    progress: &mut dyn FnMut(&TuneProgress),
) -> Result<Tuning> {
    model.gpu().check_process()?;
    let since = Instant::now();
    let limit = Cell::new(options.budget.map_or(f64::INFINITY, |budget| budget.as_secs_f64()));
    let stopped = || cancel.is_cancelled() || options.strict && since.elapsed().as_secs_f64() > limit.get();
    let within = options.strict.then_some(&limit);
    let search = || search(model, options, (&stopped, within), since, progress);
    let found = match with_stop_signal(impatient(model.gpu().clone(), cancel.clone()), search) {
        Err(Error::Cancelled) => Found::default(), // before anything was compared
        found => found?,
    };
    let Found { choices, comparison, complete, trials } = found;
    let choices = if comparison.is_empty() { Choices::default() } else { choices };
    let subject = TuningSubject::of(model.gpu(), model.file())?;
    Ok(Tuning { subject, choices, comparison, complete, trials })
}

/// Whether to stop waiting for the end of a pause: after a cancellation, but only once the wait has taken [`PATIENCE`].
/// Otherwise a short pause, as for the resizing of a window, during the last comparison would lose all results.
fn impatient(gpu: Gpu, cancel: Cancel) -> impl Fn() -> bool + 'static {
    let waits = Cell::new(None::<(Instant, Instant)>);
    move || {
        if !gpu.is_paused() {
            waits.set(None);
            return false;
        }
        let now = Instant::now();
        // Only a waiting thread calls this often; a call after a while belongs to another pause.
        let since = waits.get().filter(|(_, asked)| now - *asked < PATIENCE).map_or(now, |(since, _)| since);
        waits.set(Some((since, now)));
        cancel.is_cancelled() && now - since >= PATIENCE
    }
}

/// Searches until `stopped` returns true. If the budget is a limit, `stopped` compares with `limit`.
fn search(
    model: &Model,
    options: &TuneOptions,
    (stopped, limit): (&dyn Fn() -> bool, Option<&Cell<f64>>),
    since: Instant,
    progress: &mut dyn FnMut(&TuneProgress),
) -> Result<Found> {
    let (mut bench, deep) = bench(model, since, (Some(stopped), limit.is_some()))?;
    let start = bench.start();
    let token = bench.time(&start, Workload::Token { depth: 0 })?;
    let usual = (TOKENS * token).clamp(MIN_BUDGET_S, MAX_BUDGET_S);
    let budget = options.budget.map_or(usual, |budget| budget.as_secs_f64());
    let about = About {
        target: model.untuned(),
        adapter: model.gpu().report(),
        prompt: model.prompt_options(),
        deep,
        long: long(model),
        budget,
    };
    let questions = questions(&mut bench, &about)?;
    Search::new(&mut bench, start, budget, stopped, progress).within(limit).run(&questions)
}

/// The tokens of a long prompt for this model.
fn long(model: &Model) -> usize {
    let most = if model.gpu().report().is_software() { MAX_ON_SOFTWARE } else { LONG };
    most.min(model.config().context)
}

/// The bench, with a cache as deep as memory allows, and the number of tokens in it.
fn bench<'a>(
    model: &'a Model,
    since: Instant,
    stop: (Option<&'a dyn Fn() -> bool>, bool),
) -> Result<(GpuBench<'a>, usize)> {
    let gpu = model.gpu();
    let (config, ty, memory) = (model.config(), model.cache().ty, gpu.memory());
    let free =
        [gpu.report().memory, memory.limit].into_iter().flatten().min().map(|all| all.saturating_sub(memory.held));
    let mut last = None;
    for deep in DEEP {
        let deep = if gpu.report().is_software() { deep.min(MAX_ON_SOFTWARE) } else { deep }.min(config.context / 2);
        let cache = CacheShape { context: (deep + AFTER).max(long(model)), ty };
        let bytes = cache.layer_bytes(config).saturating_mul(config.layers as u64);
        if deep > 0 && free.is_some_and(|free| bytes > free / SHARE) {
            continue;
        }
        match GpuBench::new(model, cache, since, stop) {
            Ok(bench) => return Ok((bench, deep)),
            Err(error @ (Error::OutOfMemory { .. } | Error::ContextTooLarge { .. })) => last = Some(error),
            Err(error) => return Err(error),
        }
    }
    let found = "too little".to_owned();
    Err(last.unwrap_or(Error::Argument { argument: "memory", expected: "enough for a small cache".to_owned(), found }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::{AdapterKind, Backend, Matrices};

    fn adapter(name: &str, vendor: u32, kind: AdapterKind) -> AdapterReport {
        AdapterReport {
            name: name.to_owned(),
            vendor,
            backend: Backend::Metal,
            kind,
            driver: String::new(),
            subgroup: Some((32, 32)),
            f16: true,
            matrices: Matrices::None,
            timestamps: true,
            max_binding: 0,
            max_buffer: 0,
            memory: None,
            max_workgroup_bytes: 0,
            max_storage_buffers: 0,
        }
    }

    /// Only a GPU without built-in measurements, with a large model and without a tuning.
    #[test]
    fn a_first_start_tunes_where_that_pays() {
        let (mac, flash) = (adapter("Apple M3 Pro", 0, AdapterKind::Integrated), 16 << 30);
        assert!(is_worth_it(false, &mac, flash));
        assert!(!is_worth_it(true, &mac, flash), "it is tuned");
        assert!(!is_worth_it(false, &mac, 6 << 20), "the demonstration model");
        for (name, vendor, kind, worth) in [
            ("NVIDIA H100 80GB HBM3", 0x10de, AdapterKind::Discrete, false),
            ("NVIDIA H200", 0x10de, AdapterKind::Discrete, false),
            ("NVIDIA GeForce RTX 4090", 0x10de, AdapterKind::Discrete, true),
            ("AMD Radeon RX 7900 XTX", 0x1002, AdapterKind::Discrete, true),
            ("Apple Paravirtual device", 0, AdapterKind::Virtual, true),
            ("llvmpipe (LLVM 15.0.6, 256 bits)", 0x10005, AdapterKind::Software, false),
        ] {
            assert_eq!(is_worth_it(false, &adapter(name, vendor, kind), flash), worth, "{name}");
        }
    }
}
