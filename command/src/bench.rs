//! The command `bench`: measures speed and prints it in the table of llama-bench, followed by other times that users
//! notice.

use super::args::BenchArgs;
use super::bandwidth;
use super::bench_chart;
use super::bench_report;
use super::context;
use super::failure::Usage;
use super::figures::{mean_and_deviation, median};
use super::model;
use super::output;
use super::progress::ProgressLine;
use super::setup::Setup;
use super::tunings;
use serde::Serialize;
use std::ops::ControlFlow;
use std::time::Instant;
use wglm_engine::instruments::{Cost, PAGE};
use wglm_engine::{CacheShape, DraftKind, Gpu, Model, Pool, SamplerParams, Session};

/// One row of the table: the numbers of tokens in the prompt, to generate, and already in the cache, and the number of
/// sessions side by side.
#[derive(Clone, Copy, Serialize)]
struct BenchTest {
    n_prompt: usize,
    n_gen: usize,
    n_depth: usize,
    n_sessions: usize,
}

impl BenchTest {
    fn name(&self) -> String {
        let kind = if self.n_gen > 0 { format!("tg{}", self.n_gen) } else { format!("pp{}", self.n_prompt) };
        let kind = if self.n_sessions > 1 { format!("{kind} x{}", self.n_sessions) } else { kind };
        if self.n_depth > 0 { format!("{kind} @ d{}", self.n_depth) } else { kind }
    }

    /// Tokens of a session.
    fn tokens(&self) -> usize {
        self.n_prompt + self.n_gen
    }

    /// The context in tokens that the test needs.
    fn needed(&self) -> usize {
        self.n_depth.saturating_add(self.tokens())
    }
}

/// The columns that are the same in all rows. Fields have the names of llama-bench where it has them.
#[derive(Serialize)]
pub struct BenchConditions {
    #[serde(flatten)]
    pub setup: Setup,
    pub device_seconds: f64,
    /// Seconds to open the file and load the model.
    pub load_seconds: f64,
    /// Seconds to create a session with the default context.
    pub session_seconds: f64,
    /// Seconds until the result of the first token after the load, and the median for the tokens after it.
    pub first_token_seconds: f64,
    pub next_token_seconds: f64,
    /// Bytes per second that a kernel reads and writes when it copies a buffer, and the size of each buffer in bytes.
    pub copy_bandwidth: f64,
    pub copy_bytes: u64,
}

/// The columns that differ between rows.
#[derive(Serialize)]
pub struct BenchRow {
    pub test: String,
    /// Results are totals of its sessions.
    #[serde(flatten)]
    of: BenchTest,
    avg_ns: f64,
    stddev_ns: f64,
    pub avg_ts: f64,
    pub stddev_ts: f64,
    samples_ns: Vec<f64>,
    samples_ts: Vec<f64>,
    /// Bytes that a generated token reads: of weights, and of the cache in the middle of the test.
    weight_bytes: u64,
    cache_bytes: u64,
    /// The time to copy those bytes as a share of the time of a generated token.
    pub floor_share: Option<f64>,
    /// Bytes in buffers during the test, the highest such number so far, and the bytes that wgpu's allocator has
    /// reserved at the driver.
    gpu_memory: u64,
    pub gpu_memory_peak: u64,
    pub gpu_memory_reserved: Option<u64>,
}

pub fn bench(args: BenchArgs) -> anyhow::Result<()> {
    measured(args, &mut |_| Ok(ControlFlow::Continue(())))
}

/// Does the same, and passes each row to `tell` until `tell` returns `Break`.
pub fn measured(
    args: BenchArgs,
    tell: &mut dyn FnMut(&BenchRow) -> anyhow::Result<ControlFlow<()>>,
) -> anyhow::Result<()> {
    if !args.from.is_empty() {
        let results = bench_chart::saved(&args.from)?;
        if let Some((name, _)) = results.iter().find(|(_, rows)| rows.is_empty()) {
            return Err(Usage(format!("--from: `{name}` has no results to draw")).into());
        }
        return output::lines([bench_chart::draw(&results)?]);
    }
    let (tests, given) = (tests(&args), args.model.file.context);
    let fit = |given| tests.iter().try_for_each(|test| context::enough(&test.name(), test.needed(), given).map(drop));
    fit(given.filter(|tokens| *tokens > 0))?; // 0 means the model's maximum, which is known after the load
    let (model, conditions) = start(&args)?;
    fit(given.map(|_| model.cache().context))?;
    let mut report = bench_report::begin(args.output.format(), &conditions)?;
    let progress = ProgressLine::new(tests.len());
    for test in tests {
        let row = measure(&model, &conditions, test, &args, &progress)?;
        progress.advance();
        let goes_on = tell(&row)?;
        progress.aside(|| report.row(row))?;
        if goes_on.is_break() {
            break;
        }
    }
    drop(progress);
    bench_report::end(&report)
}

/// Loads the model, and times everything from opening the device to the first few tokens.
fn start(args: &BenchArgs) -> anyhow::Result<(Model, BenchConditions)> {
    let mut clock = LapTimer(Instant::now());
    let gpu = Gpu::open(&args.model.gpu.options()?)?;
    let device_seconds = clock.lap();
    let model =
        model::load_on(&gpu, &model::open(args.model.file.model.as_deref())?, &args.model, args.speculation().kind)?;
    let load_seconds = clock.lap();
    tunings::hint(&model, &args.model);
    let context = model.cache().context.max(1 + NEXT);
    let mut session = Session::with_cache(&model, CacheShape { context, ..model.cache() })?;
    let session_seconds = clock.lap();
    let mut token = || -> anyhow::Result<f64> {
        session.feed(&[0])?;
        session.most_likely()?;
        Ok(clock.lap())
    };
    let first_token_seconds = token()?;
    let next_token_seconds = median((0..NEXT).map(|_| token()).collect::<anyhow::Result<Vec<_>>>()?);
    drop(session);
    // The bandwidth is measured on a separate device, so that its buffers are not counted as the model's.
    let bandwidth = bandwidth::measure(&Gpu::open(&args.model.gpu.options()?)?)?;
    let conditions = BenchConditions {
        setup: Setup::of(&model, &args.model.file),
        device_seconds,
        load_seconds,
        session_seconds,
        first_token_seconds,
        next_token_seconds,
        copy_bandwidth: bandwidth.per_second,
        copy_bytes: bandwidth.bytes,
    };
    Ok((model, conditions))
}

/// The number of tokens that are timed after the first.
const NEXT: usize = 5;

/// Measures the seconds between calls.
struct LapTimer(Instant);

impl LapTimer {
    fn lap(&mut self) -> f64 {
        let now = Instant::now();
        now.duration_since(std::mem::replace(&mut self.0, now)).as_secs_f64()
    }
}

fn tests(args: &BenchArgs) -> Vec<BenchTest> {
    let mut tests = Vec::new();
    for &n_depth in &args.n_depth {
        tests.extend(args.n_prompt.iter().map(|&n_prompt| BenchTest { n_prompt, n_gen: 0, n_depth, n_sessions: 1 }));
        for &n_gen in &args.n_gen {
            let with = |&sessions: &u32| BenchTest { n_prompt: 0, n_gen, n_depth, n_sessions: sessions as usize };
            tests.extend(args.sessions.iter().map(with));
        }
    }
    tests.retain(|test| test.tokens() > 0);
    tests
}

/// Runs a test as often as requested. The cache is filled with synthetic values up to the depth, because computing it
/// would take long and not affect times.
fn measure(
    model: &Model,
    conditions: &BenchConditions,
    test: BenchTest,
    args: &BenchArgs,
    progress: &ProgressLine,
) -> anyhow::Result<BenchRow> {
    let assumed = args.assume_acceptance.as_slice();
    let name = test.name() + &if test.n_gen > 0 { args.generation_name() } else { String::new() };
    progress.doing(format!("{name}: warmup"));
    let context = context::enough(&name, test.needed(), args.model.file.context.map(|_| model.cache().context))?;
    let pool = Pool::new(
        model,
        test.n_sessions,
        CacheShape { context, ..model.cache() },
        test.n_sessions * context.next_multiple_of(PAGE),
    )?;
    let mut sessions = sessions(&pool, test, args)?;
    let from_text = args.speculation().kind == DraftKind::Lookup;
    let mut once = |test: BenchTest| match sessions.as_mut_slice() {
        [session] if test.n_gen == 0 => read(session, test),
        sessions => generate(&pool, sessions, test, (assumed, from_text)),
    };
    if !args.no_warmup {
        // With drafts, warm up making and verifying them too.
        let n_gen = test.n_gen.min(if args.speculation().is_off() { 2 } else { 16 });
        once(BenchTest { n_gen, ..test })?;
    }
    let sample = |run| {
        progress.doing(format!("{name}: run {run} of {}", args.repetitions));
        once(test)
    };
    let samples_ns = (1..=args.repetitions).map(sample).collect::<anyhow::Result<Vec<f64>>>()?;
    let cost = sessions.first().map(|session| session.plan().cost()).unwrap_or_default();
    Ok(figures(model, conditions, (name, test), samples_ns, cost))
}

/// The sessions of a test, with caches that are filled up to its depth.
fn sessions(pool: &Pool, test: BenchTest, args: &BenchArgs) -> wglm_engine::Result<Vec<Session>> {
    let session = |_| {
        let mut session = pool.session()?;
        session.set_synthetic_depth(test.n_depth)?;
        session.set_speculation(&args.speculation())?;
        if let Some(temperature) = args.temp {
            session.set_sampling(&SamplerParams { temperature, seed: Some(1), ..SamplerParams::default() })?;
        }
        Ok(session)
    };
    (0..test.n_sessions).map(session).collect()
}

/// The row of a test from the times of its runs and the cost of its plan.
fn figures(
    model: &Model,
    conditions: &BenchConditions,
    (name, test): (String, BenchTest),
    samples_ns: Vec<f64>,
    cost: Cost,
) -> BenchRow {
    let all = test.n_sessions * test.tokens();
    let samples_ts: Vec<f64> = samples_ns.iter().map(|ns| all as f64 * 1e9 / ns).collect();
    let ((avg_ns, stddev_ns), (avg_ts, stddev_ts)) = (mean_and_deviation(&samples_ns), mean_and_deviation(&samples_ts));
    let kv_rows = test.n_depth as u64 + (test.tokens() as u64).div_ceil(2);
    let (weight_bytes, cache_bytes) = (cost.weights, cost.cache * kv_rows);
    let floor_ns = (weight_bytes + cache_bytes) as f64 / conditions.copy_bandwidth * 1e9;
    let memory = model.gpu().memory();
    BenchRow {
        test: name,
        of: test,
        avg_ns,
        stddev_ns,
        avg_ts,
        stddev_ts,
        samples_ns,
        samples_ts,
        weight_bytes,
        cache_bytes,
        // A step of several sessions reads different experts for each.
        floor_share: (test.n_gen > 0 && test.n_sessions == 1).then(|| floor_ns * test.n_gen as f64 / avg_ns),
        gpu_memory: memory.held,
        gpu_memory_peak: memory.most,
        gpu_memory_reserved: memory.reserved,
    }
}

/// Reads a prompt once and returns the nanoseconds. The session is restored afterwards.
fn read(session: &mut Session, test: BenchTest) -> anyhow::Result<f64> {
    let prompt = prompt_of(test.n_prompt, session.model().config().vocab);
    let start = Instant::now();
    session.feed(&prompt)?;
    session.most_likely()?;
    let elapsed = start.elapsed();
    session.rewind(test.n_depth);
    Ok(elapsed.as_secs_f64() * 1e9)
}

/// Generates tokens of one session or several, in the same steps, and returns the nanoseconds. With assumed acceptance,
/// drafts are accepted at random with these probabilities, the same number for each session, so that the steps are
/// those of a model with that acceptance. The multi-token-prediction block makes the drafts, unless they are from the
/// text. The sessions are restored afterwards.
fn generate(
    pool: &Pool,
    sessions: &mut [Session],
    test: BenchTest,
    (assumed, from_text): (&[f32], bool),
) -> anyhow::Result<f64> {
    let vocab = pool.model().config().vocab;
    let (end, mut random) = (test.n_depth + test.n_gen, Uniform(1));
    let start = Instant::now();
    for (number, session) in sessions.iter_mut().enumerate() {
        session.feed(&[token(test.n_depth + number, vocab)])?;
    }
    loop {
        // Without assumed acceptance, some sessions may be ahead of others.
        let mut behind: Vec<&mut Session> =
            sessions.iter_mut().filter(|session| session.tokens().len() < end).collect();
        let left: Vec<usize> = behind.iter().map(|session| end - session.tokens().len()).collect();
        let Some(most) = left.iter().max() else { break };
        let fed = if assumed.is_empty() || *most <= assumed.len() {
            pool.next_tokens_of_each(&mut behind, &left)?
        } else {
            let drawn = random.next();
            let accepted = assumed.iter().take_while(|part| drawn < f64::from(**part)).count();
            pool.predict_assumed(&mut behind, (assumed.len(), accepted), from_text)?
        };
        fed.into_iter().try_for_each(|fed| fed.map(drop))?;
    }
    sessions.iter_mut().try_for_each(|session| session.sampled_token().map(drop))?;
    let elapsed = start.elapsed();
    sessions.iter_mut().for_each(|session| session.rewind(test.n_depth));
    Ok(elapsed.as_secs_f64() * 1e9)
}

/// Random numbers from 0 to 1, the same in each run.
struct Uniform(u64);

impl Uniform {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A fixed sequence of tokens from the whole vocabulary.
pub fn prompt_of(length: usize, vocab: usize) -> Vec<u32> {
    (0..length).map(|i| token(i, vocab)).collect()
}

fn token(i: usize, vocab: usize) -> u32 {
    (i as u32).wrapping_mul(2_654_435_761) % vocab as u32
}
