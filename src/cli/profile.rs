//! `profile`: where a token's time goes, by kind of step, from the GPU's timestamps.
//!
//! Timestamps take time themselves. How much, a pass of as many of them and nothing else tells, and it is taken off
//! every step. What the token takes in one pass beyond its steps is shown as a kind of its own: the time that no step
//! accounts for.

use super::args::ProfileArgs;
use super::figures::median;
use super::model;
use super::profile_report::report;
use super::setup::Setup;
use serde::Serialize;
use std::time::Instant;
use wglm::Session;
use wglm::model::CacheShape;
use wglm::plan::Moved;
use wglm::session::TokenProfile;

/// The steps of one name, over all layers.
#[derive(Serialize)]
pub struct Kind {
    pub step: String,
    pub kernel: String,
    pub count: usize,
    /// All of them together, timestamps taken off.
    pub microseconds: f64,
    pub bytes: u64,
    pub gigabytes_per_second: f64,
    /// Of the token in one pass.
    pub share: f64,
}

/// Times of a token, in microseconds. Medians over the repetitions.
#[derive(Serialize)]
pub struct Times {
    /// In one pass on the GPU, as it runs otherwise.
    pub pass: f64,
    /// Its steps, timed one by one.
    pub steps: f64,
    /// A timestamp, of so many in a pass of nothing else.
    pub timestamp: f64,
    pub timestamps: usize,
    /// Of the pass, what the steps do not account for once the timestamps are taken off.
    pub unaccounted: f64,
    /// On the host: to record and submit it, and to the result, that included.
    pub submit: f64,
    pub whole: f64,
}

/// Everything there is to tell.
#[derive(Serialize)]
pub struct Profile {
    #[serde(flatten)]
    pub setup: Setup,
    pub n_depth: usize,
    pub repetitions: usize,
    pub microseconds: Times,
    pub kinds: Vec<Kind>,
}

pub fn profile(args: ProfileArgs) -> anyhow::Result<()> {
    let model = model::load(&model::open(args.model.file.model.as_deref())?, &args.model)?;
    let (n_depth, repetitions) = (args.depth, args.repetitions as usize);
    let cache = CacheShape { context: n_depth.saturating_add(1), ..model.cache() };
    let mut session = Session::with_cache(&model, cache)?;
    session.pretend(n_depth)?;
    let (submit, whole) = host_times(&mut session, repetitions)?;
    let mut runs = Vec::new();
    for _ in 0..repetitions {
        runs.push(session.profile(0)?);
        session.rewind(n_depth);
    }
    let timestamp = timestamp(&session, repetitions)?;
    let steps = medians(&runs);
    let pass = median(runs.iter().map(|run| run.pass)) / 1e3;
    let kinds = by_kind(&session, &steps, timestamp, pass);
    let unaccounted = pass - kinds.iter().map(|kind| kind.microseconds).sum::<f64>();
    let (timestamps, steps) = (steps.len(), steps.iter().sum());
    let microseconds = Times { pass, steps, timestamp, timestamps, unaccounted, submit, whole };
    let setup = Setup::of(&model, &args.model.file);
    report(args.output, &Profile { setup, n_depth, repetitions, microseconds, kinds })
}

/// A token as it runs outside a profile, after one that does not count, in microseconds: to record and submit it,
/// and to the result.
fn host_times(session: &mut Session, repetitions: usize) -> anyhow::Result<(f64, f64)> {
    let depth = session.tokens().len();
    let (mut submits, mut wholes) = (Vec::new(), Vec::new());
    for _ in 0..=repetitions {
        let start = Instant::now();
        session.feed(&[0])?;
        submits.push(start.elapsed().as_secs_f64() * 1e6);
        session.most_likely()?;
        wholes.push(start.elapsed().as_secs_f64() * 1e6);
        session.rewind(depth);
    }
    Ok((median(submits.split_off(1)), median(wholes.split_off(1))))
}

/// Microseconds of a timestamp: the median of passes that hold one for every step of the plan and nothing else.
fn timestamp(session: &Session, repetitions: usize) -> anyhow::Result<f64> {
    let count = session.plan().steps.len();
    let empty = || Ok(session.model().gpu().time_nothing(count)?.iter().sum::<f64>() / count as f64 / 1e3);
    Ok(median((0..repetitions).map(|_| empty()).collect::<anyhow::Result<Vec<f64>>>()?))
}

/// The median of every step over the runs, in microseconds.
fn medians(runs: &[TokenProfile]) -> Vec<f64> {
    let steps = runs.first().map_or(0, |run| run.steps.len());
    (0..steps).map(|step| median(runs.iter().map(|run| run.steps[step])) / 1e3).collect()
}

fn by_kind(session: &Session, times: &[f64], timestamp: f64, pass: f64) -> Vec<Kind> {
    let (plan, tokens) = (session.plan(), session.tokens().len() as u64 + 1);
    let mut kinds: Vec<Kind> = Vec::new();
    for (step, time) in plan.steps.iter().zip(times) {
        let name = match step.label.split_once('.') {
            Some((layer, name)) if layer.starts_with('L') => name,
            _ => &step.label,
        };
        let index = kinds.iter().position(|kind| kind.step == name).unwrap_or(kinds.len());
        if index == kinds.len() {
            kinds.push(Kind::new(name, &plan.variants[step.variant].label));
        }
        let Moved { weights, cache, activations } = step.moved;
        let kind = &mut kinds[index];
        kind.count += 1;
        kind.microseconds += time - timestamp;
        kind.bytes += weights + cache * tokens + activations;
    }
    for kind in &mut kinds {
        kind.gigabytes_per_second = kind.bytes as f64 / 1e3 / kind.microseconds.max(1e-3);
        kind.share = kind.microseconds / pass.max(1e-3);
    }
    kinds
}

impl Kind {
    fn new(step: &str, kernel: &str) -> Self {
        let (step, kernel) = (step.to_owned(), kernel.to_owned());
        Self { step, kernel, count: 0, microseconds: 0.0, bytes: 0, gigabytes_per_second: 0.0, share: 0.0 }
    }
}
