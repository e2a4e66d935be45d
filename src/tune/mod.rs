//! Finds what suits the GPU at hand: measures candidates for the steps of a model by whole tokens and prompts, and keeps
//! what makes these faster.
//!
//! `candidates` lists what is tried, `search` decides what is kept, and `bench` measures and checks on the device.

mod bench;
mod candidates;
mod question;
mod search;

use crate::error::{Error, Result};
use crate::generate::Cancel;
use crate::model::{CacheShape, Model, Tuning, TuningSubject};
use crate::plan::Choices;
use bench::GpuBench;
use candidates::{About, questions};
use question::Work;
use search::{Bench, Found, Search};
use std::time::{Duration, Instant};

/// How to tune. Fields will be added, so construct it as `TuneOptions { …, ..TuneOptions::default() }`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TuneOptions {
    /// About how long it may take; `None` for a minute on a fast GPU, and up to five on a slow one. A driver that compiles
    /// a kernel cannot be interrupted, so it may take somewhat longer.
    pub budget: Option<Duration>,
}

/// How far a tuning is.
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
    /// Those of them that were kept.
    pub kept: usize,
}

impl TuneProgress {
    /// The part of the time that is over, from 0 to 1.
    pub fn share(&self) -> f32 {
        (self.spent.as_secs_f32() / self.budget.as_secs_f32().max(f32::MIN_POSITIVE)).min(1.0)
    }
}

/// The tokens in a deep cache: as many of these as there is room for.
const DEEP: [usize; 4] = [16 << 10, 4 << 10, 1 << 10, 0];
/// The tokens of a long prompt, and room for a part of one behind a deep cache.
const LONG: usize = 4096;
const BEHIND: usize = 512;
/// The part of the GPU's memory that the cache may take.
const SHARE: u64 = 8;
/// The usual budget: so many tokens, within these bounds in seconds.
const TOKENS: f64 = 12_000.0;
const LEAST: f64 = 60.0;
const MOST: f64 = 300.0;

/// Measures what suits the GPU that a model was loaded on, and returns what is faster than the built-in choices, with a
/// list of everything that was tried. Pass it to the next load: [`LoadOptions::tuning`](crate::LoadOptions::tuning).
///
/// Candidates are measured by whole tokens and whole prompts, by turns with what was chosen before, and kept only if these
/// become faster by more than the measurements spread, and if results are correct. In the end all that was chosen is
/// compared with the built-in choices; what is not faster then is dropped. If nothing is faster, [`Tuning::choices`] is
/// empty. The model is not changed, but the GPU is busy, so no session should be in use meanwhile.
///
/// `progress` is called on this thread whenever something else is tried. After a cancellation what was found so far is
/// compared and returned.
///
/// ```
/// # fn main() -> wglm::Result<()> {
/// # #[cfg(feature = "demo-model")] {
/// # use wglm::{Gguf, Gpu, GpuOptions, LoadOptions, Model};
/// # let (gpu, file) = (Gpu::open(&GpuOptions::default())?, Gguf::from_static(wglm::DEMO_MODEL)?);
/// use std::time::Duration;
/// use wglm::{Cancel, TuneOptions, Tuning, tune};
///
/// let model = Model::load(&file, &gpu, &LoadOptions::default())?;
/// let options = TuneOptions { budget: Some(Duration::from_millis(300)), ..TuneOptions::default() }; // or the default
/// let tuning = tune(&model, &options, &Cancel::default(), &mut |progress| {
///     println!("{:3.0} %, {} of {} kept: {}", 100.0 * progress.share(), progress.kept, progress.trials, progress.doing);
/// })?;
/// let kept = tuning.to_string(); // in a file
/// let tuning: Tuning = kept.parse()?;
/// let model = Model::load(&file, &gpu, &LoadOptions { tuning: Some(tuning), ..LoadOptions::default() })?;
/// assert!(model.tuning().is_some());
/// # }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Error::OutOfMemory`] if there is not even room for a small cache; what the device reports.
pub fn tune(
    model: &Model,
    options: &TuneOptions,
    cancel: &Cancel,
    progress: &mut dyn FnMut(&TuneProgress),
) -> Result<Tuning> {
    let since = Instant::now();
    let (mut bench, deep) = bench(model, since)?;
    let start = bench.start();
    let token = bench.time(&start, Work::Token { depth: 0 })?;
    let usual = (TOKENS * token).clamp(LEAST, MOST);
    let budget = options.budget.map_or(usual, |budget| budget.as_secs_f64());
    let about = About {
        target: model.untuned(),
        adapter: model.gpu().report(),
        prompt: model.prompt_options(),
        deep,
        long: LONG.min(model.config().context),
        budget,
    };
    let questions = questions(&mut bench, &about)?;
    let stopped = || cancel.is_cancelled();
    let found = Search::new(&mut bench, start, budget, &stopped, progress).run(&questions)?;
    let Found { choices, comparison, complete, trials } = found;
    let choices = if comparison.is_empty() { Choices::default() } else { choices };
    let subject = TuningSubject::of(model.gpu(), model.file())?;
    Ok(Tuning { subject, choices, comparison, complete, trials })
}

/// What measures, with a cache as deep as there is room for, and the tokens in it.
fn bench(model: &Model, since: Instant) -> Result<(GpuBench<'_>, usize)> {
    let gpu = model.gpu();
    let (config, ty, memory) = (model.config(), model.cache().ty, gpu.memory());
    let free =
        [gpu.report().memory, memory.limit].into_iter().flatten().min().map(|all| all.saturating_sub(memory.held));
    let mut last = None;
    for deep in DEEP {
        let deep = if gpu.report().is_software() { deep.min(1 << 10) } else { deep }.min(config.context / 2);
        let cache = CacheShape { context: (deep + BEHIND).max(LONG.min(config.context)), ty };
        let bytes = cache.layer_bytes(config).saturating_mul(config.layers as u64);
        if deep > 0 && free.is_some_and(|free| bytes > free / SHARE) {
            continue;
        }
        match GpuBench::new(model, cache, since) {
            Ok(bench) => return Ok((bench, deep)),
            Err(error @ (Error::OutOfMemory { .. } | Error::ContextTooLarge { .. })) => last = Some(error),
            Err(error) => return Err(error),
        }
    }
    let found = "room for no cache".to_owned();
    Err(last.unwrap_or(Error::Argument { argument: "memory", expected: "room for a small cache".to_owned(), found }))
}
