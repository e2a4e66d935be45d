//! The command `profile`: shows how a token's time is divided among the kinds of steps, measured with the GPU's
//! timestamps.
//!
//! The steps of each kind run in a pass of their own ([`Session::profile`]). The token in one pass takes longer than
//! their sum, above all because the GPU has to change from kernel to kernel; the difference is shown as a row of its
//! own.

use super::args::ProfileArgs;
use super::bench::prompt_of;
use super::context;
use super::figures::median;
use super::model;
use super::profile_report::report;
use super::progress::ProgressLine;
use super::setup::Setup;
use serde::Serialize;
use std::time::Instant;
use wglm::model::CacheShape;
use wglm::plan::Plan;
use wglm::session::TokenProfile;
use wglm::{DraftKind, Session};

/// The steps of one name, in all layers together.
#[derive(Serialize)]
pub struct KindProfile {
    pub step: String,
    pub kernel: &'static str,
    /// The full name of the shader variant.
    pub variant: String,
    pub count: usize,
    /// The time of all these steps together.
    pub microseconds: f64,
    pub bytes: u64,
    pub gigabytes_per_second: f64,
    /// The share of the token's time, which is [`Times::longer`].
    pub share: f64,
}

/// Times of a token in microseconds, as medians over the repetitions.
#[derive(Serialize)]
pub struct Times {
    /// On the GPU in one pass, as tokens usually run.
    pub pass: f64,
    /// The sum over the kinds of steps, each in a pass of its own.
    pub steps: f64,
    /// The part of the pass that the steps do not account for; 0 if the sum of the steps is longer than the pass.
    pub unaccounted: f64,
    /// On the host: until the token is submitted, and until its result is read, both from the start.
    pub submit: f64,
    pub whole: f64,
}

impl Times {
    /// The pass or the sum of the steps, whichever is longer. Shares are relative to this, so that none is negative and
    /// their sum is 1. The sum is longer where a pass is costly to begin.
    pub fn longer(&self) -> f64 {
        self.pass.max(self.steps).max(1e-3)
    }
}

/// The complete result.
#[derive(Serialize)]
pub struct Profile {
    #[serde(flatten)]
    pub setup: Setup,
    /// The number of prompt tokens that are computed together; 0 for one generated token.
    pub n_prompt: usize,
    pub n_depth: usize,
    pub repetitions: usize,
    pub microseconds: Times,
    pub kinds: Vec<KindProfile>,
}

pub fn profile(args: ProfileArgs) -> anyhow::Result<()> {
    let together = args.model.file.ubatch_size;
    let fits = args.n_prompt <= together;
    anyhow::ensure!(
        fits,
        "-p: expected at most the prompt batch size of {together} tokens (-ub), found {}",
        args.n_prompt
    );
    let (n_depth, repetitions, prompt) = (args.depth, args.repetitions as usize, args.n_prompt);
    let (needed, given) = (n_depth.saturating_add(prompt.max(1)), args.model.file.context);
    context::enough("this profile", needed, given.filter(|tokens| *tokens > 0))?;
    let model = model::load(&model::open(args.model.file.model.as_deref())?, &args.model, DraftKind::Off)?;
    let context = context::enough("this profile", needed, given.map(|_| model.cache().context))?;
    let mut session = Session::with_cache(&model, CacheShape { context, ..model.cache() })?;
    session.set_synthetic_depth(n_depth)?;
    let tokens = prompt_of(prompt.max(1), model.config().vocab);
    let (submit, whole) = host_times(&mut session, &tokens, repetitions)?;
    let (mut runs, progress) = (Vec::new(), ProgressLine::new(repetitions));
    progress.doing("timing every kind of step");
    for _ in 0..repetitions {
        runs.push(if prompt > 0 { session.profile_batch(&tokens)? } else { session.profile(0)? });
        session.rewind(n_depth);
        progress.advance();
    }
    drop(progress);
    let pass = median(runs.iter().map(|run| run.pass)) / 1e3;
    let batch = if prompt > 0 { Some(session.batch_plan(prompt)?) } else { None };
    let plan = batch.as_ref().map_or(session.plan(), |batch| &batch.plan);
    let mut kinds = by_kind(plan, n_depth + tokens.len(), &runs);
    let steps: f64 = kinds.iter().map(|kind| kind.microseconds).sum();
    let microseconds = Times { pass, steps, unaccounted: (pass - steps).max(0.0), submit, whole };
    kinds.iter_mut().for_each(|kind| kind.share = kind.microseconds / microseconds.longer());
    let setup = Setup::of(&model, &args.model.file);
    let profile = Profile { setup, n_prompt: prompt, n_depth, repetitions, microseconds, kinds };
    report(args.output.format(), &profile, args.verbose)
}

/// The times of a token outside of a profile in microseconds: until it is submitted, and until its result is read. The
/// first run is not counted.
fn host_times(session: &mut Session, tokens: &[u32], repetitions: usize) -> anyhow::Result<(f64, f64)> {
    let depth = session.tokens().len();
    let (mut submits, mut wholes) = (Vec::new(), Vec::new());
    for _ in 0..=repetitions {
        let start = Instant::now();
        session.feed(tokens)?;
        submits.push(start.elapsed().as_secs_f64() * 1e6);
        session.most_likely()?;
        wholes.push(start.elapsed().as_secs_f64() * 1e6);
        session.rewind(depth);
    }
    Ok((median(submits.split_off(1)), median(wholes.split_off(1))))
}

/// The kinds of steps in the plan, with the median time of each over the runs. At the end the cache holds `tokens`
/// tokens.
fn by_kind(plan: &Plan, tokens: usize, runs: &[TokenProfile]) -> Vec<KindProfile> {
    let kind = |(index, kind): (usize, wglm::plan::StepKind<'_>)| {
        let steps = || kind.steps.iter().map(|step| &plan.steps[*step]);
        let count = kind.steps.len();
        let microseconds = median(runs.iter().map(|run| run.kinds[index])) * count as f64 / 1e3;
        let bytes: u64 = steps().map(|step| step.cost.bytes(tokens as u64)).sum();
        let first = steps().next();
        KindProfile {
            step: kind.name.to_owned(),
            kernel: first.map(|step| step.kernel).unwrap_or_default(),
            variant: first.map(|step| plan.variants[step.variant].label.clone()).unwrap_or_default(),
            count,
            microseconds,
            bytes,
            gigabytes_per_second: bytes as f64 / 1e3 / microseconds.max(1e-3),
            share: 0.0,
        }
    };
    plan.kinds().into_iter().enumerate().map(kind).collect()
}
