//! Measures and checks on the device that a model was loaded on.
//!
//! All candidates share one set of buffers: activations of the same name and size lie in the same place for all of
//! them, because the addresses of buffers change times by one or two percent.

use super::question::Workload;
use super::search::Bench;
use crate::error::{Error, Result};
use crate::gpu::Buffer;
use crate::model::{BatchPlan, BatchShape, BatchWriter, CacheShape, CheckedBatch, Model, Outputs, PromptOptions};
use crate::model::{plan_alone, plan_batch};
use crate::plan::{Choices, Executor, Local, LocalId, Plan, RowHeader, Target};
use crate::session::fill_with_noise;
use crate::shader::{Pipelines, Variant};
use crate::threads::StopCheck;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Instant;

/// Seconds of a measurement: shorter work is repeated.
const SAMPLE: f64 = 5e-3;
const MAX_REPEATS: usize = 32;
/// The maximum duration of a submission in seconds: longer work is submitted in slices, because drivers abort work that
/// takes seconds.
const SUBMISSION: f64 = 0.1;
/// The slices of work whose time is unknown.
const UNKNOWN: usize = 16;
/// The maximum number of executors that are cached, and of plans without an executor.
const EXECUTORS: usize = 200;
const PLANS: usize = 100;
/// The maximum number of tokens in a batch that is checked: more than a tile has.
const CHECKED: usize = 160;

/// Measures and checks choices for a model.
pub(super) struct GpuBench<'a> {
    model: &'a Model,
    cache: CacheShape,
    base: Target,
    since: Instant,
    /// Whether to stop measuring or planning at once.
    stop: Option<&'a dyn Fn() -> bool>,
    /// Whether that also applies to the last comparison.
    strict: bool,
    /// The plan of a token with the default choices, whose weights and cache all plans share.
    token: Option<Arc<BatchPlan>>,
    writer: BatchWriter,
    /// The candidates' kernels, dropped with this.
    pipelines: Pipelines,
    buffers: HashMap<(String, u64), Buffer>,
    /// What is known about the plans that were made.
    known: HashMap<(Choices, BatchShape), Planned>,
    /// Plans by their identities, and their executors.
    plans: HashMap<u64, Arc<BatchPlan>>,
    executors: HashMap<u64, Arc<Executor>>,
    rhythms: HashMap<(Workload, usize), Rhythm>,
    /// Shaders whose results were found to be correct.
    proven: HashSet<(Variant, usize)>,
}

/// A plan, without its steps.
#[derive(Debug, Clone, Copy)]
struct Planned {
    identity: u64,
    splits: usize,
    steps: usize,
    /// The step that few ways of sampling need.
    rare: Option<usize>,
}

/// How work is measured.
#[derive(Debug, Clone, Copy)]
struct Rhythm {
    repeats: usize,
    slices: usize,
}

impl<'a> GpuBench<'a> {
    /// A bench for a model, with a cache of this shape that holds noise. Once `stop` returns true, measurements and
    /// plans end with [`Error::Cancelled`], between two submissions or compilations; unless `strict`, only until
    /// [`Bench::begin_last`].
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::ContextTooLarge`]; any error from the device.
    pub fn new(
        model: &'a Model,
        cache: CacheShape,
        since: Instant,
        (stop, strict): (Option<&'a dyn Fn() -> bool>, bool),
    ) -> Result<Self> {
        let writer = BatchWriter::new(model.config());
        let mut bench = Self {
            model,
            cache,
            base: model.untuned().clone(),
            since,
            stop,
            strict,
            token: None,
            writer,
            pipelines: model.pipelines().beside(),
            buffers: HashMap::new(),
            known: HashMap::new(),
            plans: HashMap::new(),
            executors: HashMap::new(),
            rhythms: HashMap::new(),
            proven: HashSet::new(),
        };
        let start = bench.start();
        let token = bench.plan(&start, BatchShape::ALONE)?;
        token.check(model.gpu().capabilities())?;
        let (_, executor) = bench.executor(&start, BatchShape::ALONE)?;
        let caches: Vec<Buffer> = token.plan.caches().map(|cache| executor.local(cache).clone()).collect();
        fill_with_noise(model, cache.ty, &caches.iter().collect::<Vec<_>>())?;
        bench.token = Some(token);
        Ok(bench)
    }

    /// The initial choices of the search.
    pub fn start(&self) -> Choices {
        (*self.base.choices).clone()
    }

    /// An error if the bench should stop.
    fn going(&self) -> Result<()> {
        if self.stop.is_some_and(|stop| stop()) { Err(Error::Cancelled) } else { Ok(()) }
    }

    fn target(&self, choices: &Choices) -> Target {
        Target {
            tilings: choices.table.unwrap_or(self.base.tilings),
            arithmetic: choices.arithmetic.unwrap_or(self.base.arithmetic),
            choices: Arc::new(choices.clone()),
            ..self.base.clone()
        }
    }

    /// Makes the plan for a shape.
    fn plan(&self, choices: &Choices, shape: BatchShape) -> Result<Arc<BatchPlan>> {
        let (config, weights, target) = (self.model.config(), self.model.model_weights(), self.target(choices));
        let planned = match (shape, &self.token) {
            (BatchShape::ALONE, _) => plan_alone(weights, config, self.cache, &target)?,
            (_, Some(token)) => plan_batch(config, token, &target, shape)?,
            (_, None) => plan_batch(config, &*self.plan(choices, BatchShape::ALONE)?, &target, shape)?,
        };
        Ok(Arc::new(planned))
    }

    /// What is known about the plan for a shape.
    fn planned(&mut self, choices: &Choices, shape: BatchShape) -> Result<Planned> {
        self.going()?;
        let key = (choices.clone(), shape);
        if let Some(known) = self.known.get(&key) {
            return Ok(*known);
        }
        let made = self.plan(choices, shape)?;
        let (splits, steps) = (made.plan.splits, made.plan.steps.len());
        let rare = made.head.map(|head| head.sampling.histogram);
        let planned = Planned { identity: identity(&made.plan), splits, steps, rare };
        if self.plans.len() >= PLANS {
            self.plans.clear();
        }
        self.plans.insert(planned.identity, made);
        self.known.insert(key, planned);
        Ok(planned)
    }

    /// The plan for a shape, made again if it was dropped.
    fn made(&mut self, choices: &Choices, shape: BatchShape) -> Result<Arc<BatchPlan>> {
        let identity = self.planned(choices, shape)?.identity;
        match self.plans.get(&identity) {
            Some(made) => Ok(made.clone()),
            None => self.plan(choices, shape),
        }
    }

    /// The executor of the plan for a shape.
    fn executor(&mut self, choices: &Choices, shape: BatchShape) -> Result<(Planned, Arc<Executor>)> {
        let planned = self.planned(choices, shape)?;
        if let Some(known) = self.executors.get(&planned.identity) {
            return Ok((planned, known.clone()));
        }
        if self.executors.len() >= EXECUTORS {
            self.executors.clear();
        }
        let plan = &self.made(choices, shape)?.plan;
        self.plans.remove(&planned.identity); // which takes much memory
        self.pipelines.prepare_while(&plan.variants, &mut || self.going())?;
        let place = |(id, local): (LocalId, &Local)| (id, (local.name.clone(), local.bytes));
        let places: Vec<(LocalId, (String, u64))> = plan.locals_by_id().map(place).collect();
        let known = places.iter().filter_map(|(id, key)| Some((*id, self.buffers.get(key)?.clone())));
        let executor = Executor::with_locals(&self.pipelines, plan, self.model.weights(), &known.collect())?;
        for (id, key) in places {
            self.buffers.entry(key).or_insert_with(|| executor.local(id).clone());
        }
        let executor = Arc::new(executor);
        self.executors.insert(planned.identity, executor.clone());
        Ok((planned, executor))
    }

    /// The shape of the plan for some work, the tokens before it, and how often it runs.
    fn shape(&self, choices: &Choices, work: Workload) -> (BatchShape, usize, usize) {
        let of = |rows, depth| BatchShape::of(rows, Outputs::Last, depth, self.cache.context);
        match work {
            Workload::Token { depth } => (BatchShape::ALONE, depth, 1),
            Workload::Rows { rows, depth } => (of(self.model.prompt_options().capacity_for(rows), depth), depth, 1),
            Workload::Prompt { tokens } => {
                let rows = self.chunk(choices).min(tokens);
                let middle = (tokens - rows) / 2; // attention takes the average time there
                (of(rows, middle), middle, tokens.div_ceil(rows))
            }
        }
    }

    fn chunk(&self, choices: &Choices) -> usize {
        choices.chunk.map_or(self.model.prompt_options().together(), |chunk| chunk.clamp(1, PromptOptions::MAX_CHUNK))
    }

    /// The seconds that the steps of a plan take once, as the mean of some repeats.
    fn measured(&self, executor: &Executor, steps: &[usize], Rhythm { repeats, slices }: Rhythm) -> Result<f64> {
        self.going()?;
        let gpu = executor.gpu();
        if gpu.measures_passes() {
            if slices == 1 {
                let times = executor.time(&vec![steps; repeats])?;
                return Ok(times.iter().sum::<f64>() / repeats as f64 / 1e9);
            }
            let mut sum = 0.0;
            for slice in steps.chunks(steps.len().div_ceil(slices)) {
                self.going()?;
                sum += executor.time(&[slice])?.iter().sum::<f64>();
            }
            return Ok(sum / 1e9);
        }
        let start = Instant::now();
        for _ in 0..repeats {
            for slice in steps.chunks(steps.len().div_ceil(slices)) {
                self.going()?;
                let submission = executor.submit(slice.iter().copied(), &[])?;
                gpu.wait(&submission)?;
            }
        }
        Ok(start.elapsed().as_secs_f64() / repeats as f64)
    }

    /// The share of each kind of step in the time of a plan, the largest first. Shares are measured, each kind in a
    /// pass of its own, if `measured` and the GPU has timestamps, and otherwise estimated from the steps' costs.
    pub fn shares(&mut self, choices: &Choices, work: Workload, measured: bool) -> Result<Vec<(String, f64)>> {
        let (shape, depth, _) = self.shape(choices, work);
        let (plan, limit) = (&self.plan(choices, shape)?.plan, self.base.limit);
        let mut executor = None;
        if measured && self.model.gpu().measures_passes() {
            self.time(choices, work)?;
            executor = Some(self.executor(choices, shape)?.1);
        }
        let mut shares = Vec::new();
        for kind in plan.kinds() {
            self.going()?;
            let seconds = match &executor {
                Some(executor) => executor.time(&[&kind.steps])?.iter().sum(),
                None => kind.steps.iter().map(|step| limit.seconds(&plan.steps[*step].cost, depth as u64)).sum::<f64>(),
            };
            shares.push((kind.name.to_owned(), seconds));
        }
        let all = shares.iter().map(|(_, seconds)| seconds).sum::<f64>().max(f64::MIN_POSITIVE);
        shares.iter_mut().for_each(|(_, seconds)| *seconds /= all);
        shares.sort_by(|a, b| b.1.total_cmp(&a.1));
        Ok(shares)
    }
}

impl Bench for GpuBench<'_> {
    fn elapsed(&self) -> f64 {
        self.since.elapsed().as_secs_f64()
    }

    fn begin_last(&mut self) {
        self.stop = self.stop.filter(|_| self.strict);
    }

    fn identity(&mut self, choices: &Choices, work: Workload) -> Result<u64> {
        let (shape, ..) = self.shape(choices, work);
        Ok(self.planned(choices, shape)?.identity)
    }

    fn prepare(&mut self, candidates: &[Choices], works: &[Workload], check_stop: &mut StopCheck<'_>) -> Result<()> {
        let mut variants = HashSet::new();
        for (choices, work) in candidates.iter().flat_map(|choices| works.iter().map(move |work| (choices, *work))) {
            check_stop()?;
            let (shape, ..) = self.shape(choices, work);
            variants.extend(self.made(choices, shape)?.plan.variants.iter().cloned());
        }
        let variants: Vec<Variant> = variants.into_iter().collect();
        match self.pipelines.prepare_while(&variants, check_stop) {
            Ok(_) => Ok(()),
            Err(error @ (Error::Cancelled | Error::DeviceLost { .. })) => Err(error),
            Err(_) => Ok(()), // a candidate that does not compile fails when it is timed
        }
    }

    fn time(&mut self, choices: &Choices, work: Workload) -> Result<f64> {
        let (shape, depth, times) = self.shape(choices, work);
        let identity = self.planned(choices, shape)?.identity;
        let new = !self.executors.contains_key(&identity);
        let (planned, executor) = self.executor(choices, shape)?;
        let vocab = u32::try_from(self.model.config().vocab).unwrap_or(u32::MAX).max(1);
        let rows = if let Workload::Rows { rows, .. } = work { rows } else { shape.rows };
        let ids: Vec<u32> = (0..rows as u32).map(|i| i.wrapping_mul(2_654_435_761) % vocab).collect();
        let batch = self.writer.write(&RowHeader::consecutive(depth, &ids), planned.splits, 0);
        executor.gpu().write(executor.local(Plan::BATCH), 0, batch)?;
        let steps: Vec<usize> = (0..planned.steps).filter(|step| Some(*step) != planned.rare).collect();
        let key = (work, shape.rows);
        let rhythm = match self.rhythms.get(&key) {
            Some(rhythm) => *rhythm,
            None => {
                let unknown = Rhythm { repeats: 1, slices: UNKNOWN };
                self.measured(&executor, &steps, unknown)?;
                let rhythm = Rhythm::of(self.measured(&executor, &steps, unknown)?, steps.len());
                self.rhythms.insert(key, rhythm);
                rhythm
            }
        };
        if new {
            self.measured(&executor, &steps, Rhythm { repeats: 1, ..rhythm })?;
        }
        Ok(times as f64 * self.measured(&executor, &steps, rhythm)?)
    }

    fn fault(
        &mut self,
        choices: &Choices,
        works: &[Workload],
        check_stop: &mut StopCheck<'_>,
    ) -> Result<Option<String>> {
        let shapes: Vec<BatchShape> = works.iter().map(|work| self.shape(choices, *work).0).collect();
        let mut batches = Vec::new();
        for shape in shapes.iter().filter(|shape| shape.rows > 1) {
            let (outputs, tokens) = (Outputs::Last, shape.rows.min(CHECKED));
            let batch = CheckedBatch { capacity: shape.rows, outputs, position: 0, tokens };
            if !batches.contains(&batch) {
                batches.push(batch);
            }
        }
        let fault =
            self.model.unusable_kernel((&self.target(choices), &self.pipelines), batches, &self.proven, check_stop)?;
        if let Some(fault) = fault {
            return Ok(Some(fault.place));
        }
        for shape in shapes {
            let plan = &self.made(choices, shape)?.plan;
            self.proven.extend(plan.variants.iter().map(|variant| (variant.clone(), plan.splits)));
        }
        Ok(None)
    }
}

impl Rhythm {
    /// The rhythm of work that takes `seconds` and has `steps` steps.
    fn of(seconds: f64, steps: usize) -> Self {
        let repeats = (SAMPLE / seconds.max(1e-9)).ceil() as usize;
        let slices = (seconds / SUBMISSION).ceil() as usize;
        Self { repeats: repeats.clamp(1, MAX_REPEATS), slices: slices.clamp(1, steps.max(1)) }
    }
}

/// A number that identifies what a plan runs.
fn identity(plan: &Plan) -> u64 {
    let number = |variant: &Variant| {
        let mut hasher = DefaultHasher::new();
        variant.hash(&mut hasher);
        hasher.finish()
    };
    let variants: Vec<u64> = plan.variants.iter().map(number).collect();
    let mut hasher = DefaultHasher::new();
    plan.splits.hash(&mut hasher);
    for step in &plan.steps {
        (variants[step.variant], step.grid, &step.params).hash(&mut hasher);
    }
    for (_, local) in plan.locals_by_id() {
        local.bytes.hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::gguf::Gguf;
    use crate::gpu::{Gpu, GpuOptions, Matrices};
    use crate::model::{Altered, LoadOptions, LoadOverrides};
    use crate::tune::question::Edit;

    const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/fable-10m-q4_0.gguf");
    const TOKEN: Workload = Workload::Token { depth: 0 };
    const FOUR: Workload = Workload::Rows { rows: 4, depth: 0 };

    /// Makes products by workgroups of 512 invocations wrong: they lose a row.
    fn broken(variant: &Variant) -> Variant {
        let mut variant = variant.clone();
        let large = variant.label.starts_with("mul_mv.") && variant.label.contains("w512");
        for (name, value) in &mut variant.constants {
            if large && name == "w_ROWS" {
                *value = crate::shader::Constant::U32(8);
            }
        }
        variant
    }

    fn model(alter: Option<fn(&Variant) -> Variant>) -> Model {
        let gpu = Gpu::open(&GpuOptions::default()).unwrap();
        let matrices = if alter.is_some() { Matrices::None } else { gpu.capabilities().matrices };
        let altered = alter.map(|alter| Altered { matrices, alter });
        let overrides = LoadOverrides { altered, ..LoadOverrides::default() };
        let options = LoadOptions { overrides, context: Some(1024), ..LoadOptions::default() };
        Model::load(&Gguf::open(DEMO).unwrap(), &gpu, &options).unwrap()
    }

    fn bench(model: &Model) -> GpuBench<'_> {
        let cache = CacheShape { context: 1024, ..model.cache() };
        GpuBench::new(model, cache, Instant::now(), (None, false)).unwrap()
    }

    fn tiled(bench: &GpuBench<'_>, tiling: &str) -> Choices {
        Edit::Tiling(tiling.parse().unwrap()).of(&bench.start())
    }

    #[test]
    fn what_runs_tells_choices_apart() {
        let model = model(None);
        let mut bench = bench(&model);
        let (start, all) = (bench.start(), |tiling| vec![tiling]);
        let usual = bench.identity(&start, TOKEN).unwrap();
        for (tiling, alone, four) in [
            ("moe.down@1=8x2x64", true, false),
            ("moe.down@4-7=8x2x64", false, true),
            ("moe.down=8x2x64", true, true),
            ("moe.down@8-32=8x2x64", false, false),
        ] {
            let choices = Choices { tilings: all(tiling.parse().unwrap()), ..start.clone() };
            let usual_four = bench.identity(&start, FOUR).unwrap();
            assert_eq!(bench.identity(&choices, TOKEN).unwrap() != usual, alone, "{tiling}");
            assert_eq!(bench.identity(&choices, FOUR).unwrap() != usual_four, four, "{tiling}");
        }
        let tiles = Edit::FewRows(2).of(&start);
        assert_ne!(bench.identity(&tiles, FOUR).unwrap(), bench.identity(&start, FOUR).unwrap());
        let chunk = Edit::Chunk(256).of(&start);
        let long = Workload::Prompt { tokens: 1024 };
        assert_ne!(bench.identity(&chunk, long).unwrap(), bench.identity(&start, long).unwrap());
    }

    /// Every time is positive, and every step has a share of it.
    #[test]
    fn whole_tokens_are_measured() {
        let model = model(None);
        let mut bench = bench(&model);
        let start = bench.start();
        for work in [TOKEN, Workload::Token { depth: 500 }, FOUR] {
            assert!(bench.time(&start, work).unwrap() > 0.0, "{work}");
        }
        for measured in [true, false] {
            let shares = bench.shares(&start, TOKEN, measured).unwrap();
            let sum: f64 = shares.iter().map(|(_, share)| share).sum();
            assert!((sum - 1.0).abs() < 1e-9 && shares.is_sorted_by(|a, b| a.1 >= b.1), "{shares:?}");
            assert!(shares.iter().any(|(step, _)| step == "moe.gate_up"), "{shares:?}");
        }
    }

    #[test]
    fn wrong_results_are_found() {
        let model = model(Some(broken));
        let mut bench = bench(&model);
        for (tiling, right) in [("output@1=8x1x256", true), ("output@1=8x1x512", false), ("output@1=8x2x128", true)] {
            let choices = tiled(&bench, tiling);
            let fault = bench.fault(&choices, &[TOKEN], &mut || Ok(())).unwrap();
            assert_eq!(fault.is_none(), right, "{tiling}: {fault:?}");
            assert!(fault.is_none_or(|place| place.contains("`output`")), "{tiling}");
        }
    }
}
