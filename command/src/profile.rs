//! The command `profile`: shows how a token's time is divided among the kinds of steps, measured with the GPU's
//! timestamps.
//!
//! The steps of each kind run in a pass of their own ([`Session::profile`]). The token in one pass takes longer than
//! their sum, mainly because the GPU has to switch between kernels; the difference is shown as a separate row.

use super::args::{OutputFormat, ProfileArgs};
use super::bandwidth;
use super::bench::prompt_of;
use super::context;
use super::figures::median;
use super::model;
use super::profile_report::report;
use super::progress::ProgressLine;
use super::setup::Setup;
use serde::Serialize;
use std::time::Instant;
use wglm_engine::instruments::{Plan, TokenProfile};
use wglm_engine::{CacheShape, DraftKind, Model, Session, Speculation};

/// All steps with one name, in all layers together.
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
    /// On the host, both measured from the start: until the token is submitted, and until its result is read. A step
    /// with drafts has several submissions, one of them made ahead of time, so it has only the second time.
    pub submit: Option<f64>,
    pub whole: f64,
}

impl Times {
    /// The pass or the sum of the steps, whichever is longer. Shares are relative to this, so that none is negative and
    /// their sum is 1. The sum is longer if beginning a pass is costly.
    pub fn longer(&self) -> f64 {
        self.pass.max(self.steps).max(1e-3)
    }
}

#[derive(Serialize)]
pub struct Profile {
    #[serde(flatten)]
    pub setup: Setup,
    /// The number of prompt tokens that are computed together; 0 for one generated token.
    pub n_prompt: usize,
    /// The number of drafts that are verified, and then made; 0 for none.
    pub n_drafts: usize,
    pub n_depth: usize,
    pub repetitions: usize,
    /// Bytes per second of a kernel that copies a buffer; measured only for pictures.
    pub copy_bandwidth: Option<f64>,
    pub microseconds: Times,
    pub kinds: Vec<KindProfile>,
}

pub fn profile(args: ProfileArgs) -> anyhow::Result<()> {
    args.model.file.ubatch_size.map_or(Ok(()), |together| fits(args.n_prompt, together))?;
    let given = args.model.file.context.filter(|tokens| *tokens > 0);
    context::enough("this profile", args.depth.saturating_add(rows(&args)), given)?;
    let kind = if args.drafts.is_some() { DraftKind::Mtp } else { DraftKind::Off };
    let model = model::load(&model::open(args.model.file.model.as_deref())?, &args.model, kind)?;
    report(args.output.format(), &measure(&model, &args)?, args.verbose)
}

/// The rows that a profile adds to the cache.
fn rows(args: &ProfileArgs) -> usize {
    let drafts = args.drafts.map(|drafts| (args.repetitions as usize + 2) * (1 + drafts as usize));
    drafts.unwrap_or(args.n_prompt.max(1))
}

pub fn measure(model: &Model, args: &ProfileArgs) -> anyhow::Result<Profile> {
    let (n_depth, repetitions, prompt) = (args.depth, args.repetitions as usize, args.n_prompt);
    let drafts = args.drafts.map_or(0, |drafts| drafts as usize);
    let (rows, given) = (rows(args), args.model.file.context);
    let needed = n_depth.saturating_add(rows);
    let kind = if drafts > 0 { DraftKind::Mtp } else { DraftKind::Off };
    fits(prompt, model.prompt_options().together())?;
    let context = context::enough("this profile", needed, given.map(|_| model.cache().context))?;
    let mut session = Session::with_cache(model, CacheShape { context, ..model.cache() })?;
    session.set_synthetic_depth(n_depth)?;
    session.set_speculation(&Speculation { kind, most: None })?;
    let tokens = prompt_of(prompt.max(1), model.config().vocab);
    let (submit, whole) = match drafts {
        0 => host_times(&mut session, &tokens, repetitions).map(|(submit, whole)| (Some(submit), whole))?,
        _ => (None, draft_time(&mut session, drafts, repetitions)?),
    };
    let (mut runs, progress) = (Vec::new(), ProgressLine::new(repetitions));
    progress.doing("timing every kind of step");
    for _ in 0..repetitions {
        runs.push(match (prompt, drafts) {
            (0, 0) => vec![(session.plan().clone(), session.profile(0)?)],
            (_, 0) => vec![(session.batch_plan(prompt)?.plan.clone(), session.profile_batch(&tokens)?)],
            _ => session.profile_drafts(0, drafts)?,
        });
        session.rewind(n_depth);
        progress.advance();
    }
    drop(progress);
    let (mut pass, mut kinds) = (0.0, Vec::new());
    // The model's rows, and with drafts the block's rows and the drafts, each of which repeats the same steps.
    for (part, (name, times)) in [("", 1), ("block ", 1), ("draft ", drafts)].into_iter().enumerate() {
        let of_part = runs.iter().filter_map(|run| run.get(part).map(|(_, profile)| profile));
        let of_part: Vec<&TokenProfile> = of_part.collect();
        let Some((plan, _)) = runs.first().and_then(|run| run.get(part)) else { break };
        pass += times as f64 * median(of_part.iter().map(|run| run.pass)) / 1e3;
        kinds.extend(by_kind(plan, n_depth + rows, &of_part, (name, times)));
    }
    let steps: f64 = kinds.iter().map(|kind| kind.microseconds).sum();
    let microseconds = Times { pass, steps, unaccounted: (pass - steps).max(0.0), submit, whole };
    kinds.iter_mut().for_each(|kind| kind.share = kind.microseconds / microseconds.longer());
    let setup = Setup::of(model, &args.model.file);
    let copy_bandwidth = match args.output.format() {
        OutputFormat::Svg => Some(bandwidth::measure(model.gpu())?.per_second),
        _ => None,
    };
    Ok(Profile { setup, copy_bandwidth, n_prompt: prompt, n_drafts: drafts, n_depth, repetitions, microseconds, kinds })
}

/// An error for a prompt of more tokens than are computed together.
fn fits(prompt: usize, together: usize) -> anyhow::Result<()> {
    anyhow::ensure!(
        prompt <= together,
        "-p: expected at most the prompt batch size of {together} tokens (-ub), found {prompt}"
    );
    Ok(())
}

/// The times of a token outside a profile in microseconds: until it is submitted, and until its result is read. The
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

/// The time between the results of consecutive steps with drafts, in microseconds. The first run is not counted.
fn draft_time(session: &mut Session, drafts: usize, repetitions: usize) -> anyhow::Result<f64> {
    let (depth, mut times) = (session.tokens().len(), Vec::new());
    session.feed(&[0])?;
    for _ in 0..=repetitions {
        let start = Instant::now();
        session.predict_assumed(drafts, 0)?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    session.rewind(depth);
    Ok(median(times.split_off(1)))
}

/// The kinds of steps in the plan, with the median time of each over the runs. At the end the cache holds `tokens`
/// tokens. The plan runs `times` times, and its steps' names begin with `name`.
fn by_kind(plan: &Plan, tokens: usize, runs: &[&TokenProfile], (name, times): (&str, usize)) -> Vec<KindProfile> {
    let kind = |(index, kind): (usize, wglm_engine::instruments::StepKind<'_>)| {
        let steps = || kind.steps.iter().map(|step| &plan.steps[*step]);
        let count = times * kind.steps.len();
        let microseconds = median(runs.iter().map(|run| run.kinds[index])) * count as f64 / 1e3;
        let bytes = times as u64 * steps().map(|step| step.cost.bytes(tokens as u64)).sum::<u64>();
        let first = steps().next();
        KindProfile {
            step: name.to_owned() + kind.name,
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
