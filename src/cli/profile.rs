//! `profile`: where a token's time goes, by kind of step, from the GPU's timestamps.

use super::args::ProfileArgs;
use super::{model, output};
use std::time::Instant;
use wglm::Session;
use wglm::model::CacheShape;
use wglm::plan::Moved;
use wglm::session::TokenProfile;

/// The steps of one name, over all layers.
struct Kind {
    name: String,
    variant: String,
    count: usize,
    nanoseconds: f64,
    bytes: u64,
}

pub fn profile(args: ProfileArgs) -> anyhow::Result<()> {
    let model = model::load(&model::open(args.model.file.model.as_deref())?, &args.model)?;
    let repetitions = args.repetitions as usize;
    let context = args.depth + repetitions + 2;
    let mut session = Session::with_cache(&model, CacheShape { context, ..model.cache() })?;
    session.feed(&vec![1; args.depth + 1])?;
    let host = host_times(&mut session, repetitions)?;
    let mut runs = Vec::new();
    for _ in 0..repetitions {
        runs.push(session.profile(1)?);
        session.rewind(args.depth + 1);
    }
    let kinds = by_kind(&session, &medians(&runs), args.depth as u64 + 1);
    let pass = median(&mut runs.iter().map(|run| run.pass).collect::<Vec<_>>());
    report(&kinds, pass, &host)?;
    Ok(())
}

/// A token as it runs outside a profile, in nanoseconds.
struct HostTimes {
    /// To record and submit it.
    submit: f64,
    /// To the result, that included.
    whole: f64,
}

fn host_times(session: &mut Session, repetitions: usize) -> anyhow::Result<HostTimes> {
    let depth = session.tokens().len();
    let (mut submits, mut wholes) = (Vec::new(), Vec::new());
    for _ in 0..repetitions {
        let start = Instant::now();
        session.feed(&[1])?;
        submits.push(start.elapsed().as_secs_f64() * 1e9);
        session.most_likely()?;
        wholes.push(start.elapsed().as_secs_f64() * 1e9);
        session.rewind(depth);
    }
    Ok(HostTimes { submit: median(&mut submits), whole: median(&mut wholes) })
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The median of every step over the runs.
fn medians(runs: &[TokenProfile]) -> Vec<f64> {
    let steps = runs.first().map_or(0, |run| run.steps.len());
    (0..steps).map(|step| median(&mut runs.iter().map(|run| run.steps[step]).collect::<Vec<_>>())).collect()
}

fn by_kind(session: &Session, times: &[f64], tokens: u64) -> Vec<Kind> {
    let plan = session.plan();
    let mut kinds: Vec<Kind> = Vec::new();
    for (step, &nanoseconds) in plan.steps.iter().zip(times) {
        let name =
            step.label.split_once('.').filter(|(layer, _)| layer.starts_with('L')).map_or(&*step.label, |(_, s)| s);
        let Moved { weights, cache, activations } = step.moved;
        let bytes = weights + cache * tokens + activations;
        match kinds.iter_mut().find(|kind| kind.name == name) {
            Some(kind) => {
                (kind.count, kind.nanoseconds, kind.bytes) =
                    (kind.count + 1, kind.nanoseconds + nanoseconds, kind.bytes + bytes)
            }
            None => {
                let variant = plan.variants[step.variant].label.clone();
                kinds.push(Kind { name: name.to_owned(), variant, count: 1, nanoseconds, bytes });
            }
        }
    }
    kinds
}

fn report(kinds: &[Kind], pass: f64, host: &HostTimes) -> anyhow::Result<()> {
    let total: f64 = kinds.iter().map(|kind| kind.nanoseconds).sum();
    let mut lines = vec![format!(
        "{:<18} {:<40} {:>5} {:>9} {:>9} {:>8} {:>7}",
        "step", "kernel", "count", "us each", "us", "GB/s", "share"
    )];
    lines.extend(kinds.iter().map(|kind| {
        let microseconds = kind.nanoseconds / 1e3;
        format!(
            "{:<18} {:<40} {:>5} {:>9.2} {microseconds:>9.1} {:>8.0} {:>6.1}%",
            kind.name,
            kind.variant,
            kind.count,
            microseconds / kind.count as f64,
            kind.bytes as f64 / kind.nanoseconds.max(1.0),
            100.0 * kind.nanoseconds / total.max(1.0)
        )
    }));
    let [steps, pass, submit, whole] = [total, pass, host.submit, host.whole].map(|ns| ns / 1e3);
    lines.push(format!("all steps, timed one by one   {steps:>9.1} us"));
    lines.push(format!("the token in one pass         {pass:>9.1} us on the GPU"));
    lines.push(format!("recording and submitting it   {submit:>9.1} us on the host"));
    lines.push(format!("the token, result included    {whole:>9.1} us on the host"));
    output::lines(lines)?;
    Ok(())
}
