//! The stages of a report, in the order in which they run: the least demanding first.

use super::super::args::{ReportArgs, StageName};
use super::process::Limits;
use super::{SUMMARY, device, measured, models, pairs, pipelines, system};
use crate::output;
use clap::ValueEnum;
use std::fmt::Arguments;
use std::time::{Duration, Instant};
use wglm_engine::Gpu;

pub struct Stage {
    id: StageName,
    /// What it finds out.
    pub title: &'static str,
    limits: Limits,
    run: fn(&Here<'_>) -> anyhow::Result<()>,
}

const fn stage(
    id: StageName,
    title: &'static str,
    [whole, silence]: [u64; 2],
    run: fn(&Here<'_>) -> anyhow::Result<()>,
) -> Stage {
    let limits = Limits { whole: Duration::from_secs(whole), silence: Duration::from_secs(silence) };
    Stage { id, title, limits, run }
}

/// The stages, each with its limits in seconds, in total and without output. A stage checks the clock itself and skips
/// what there is no time for; it is killed only if it does not.
static STAGES: &[Stage] = &[
    stage(StageName::System, "the machine, its GPUs, features and limits", [30, 30], system::run),
    stage(StageName::Bandwidth, "how fast a kernel copies memory", [30, 30], device::bandwidth),
    stage(StageName::Dispatches, "the cost of an empty dispatch", [30, 30], device::dispatches),
    stage(StageName::Answer, "the demonstration model's answer", [60, 60], models::answer),
    stage(StageName::Pipelines, "every kernel of two models, compiled separately", [90, 60], pipelines::run),
    stage(StageName::Selftest, "every kernel in every format against the CPU", [200, 60], measured::selftest),
    stage(StageName::Verdict, "loads, with the check of their kernels", [120, 90], models::verdict),
    stage(StageName::Profile, "how a token's time is divided", [90, 90], measured::profile),
    stage(StageName::Pairs, "two ways to compute the same thing, alternating", [120, 90], pairs::run),
    stage(StageName::Bench, "the speed of the model given with -m", [600, 300], measured::bench),
    stage(StageName::Crash, "a crash, for tests", [20, 20], crash),
    stage(StageName::Hang, "a hang, for tests", [600, 300], hang),
];

/// The stages that the arguments select, in their order.
pub fn chosen(args: &ReportArgs) -> Vec<&'static Stage> {
    match args.only.as_slice() {
        [] => STAGES.iter().filter(|stage| !matches!(stage.id, StageName::Crash | StageName::Hang)).collect(),
        only => only.iter().filter_map(|id| STAGES.iter().find(|stage| stage.id == *id)).collect(),
    }
}

impl Stage {
    pub fn name(&self) -> String {
        self.id.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Its limits, or those of the arguments if they are shorter.
    pub fn limits(&self, args: &ReportArgs) -> Limits {
        let shorter = |usual: Duration, asked: Option<f32>| {
            asked.and_then(|seconds| Duration::try_from_secs_f32(seconds).ok()).map_or(usual, |asked| asked.min(usual))
        };
        Limits { whole: shorter(self.limits.whole, args.seconds), silence: shorter(self.limits.silence, args.silence) }
    }
}

/// A stage that runs in this process.
pub struct Here<'a> {
    pub args: &'a ReportArgs,
    /// When it should end.
    until: Instant,
}

impl Here<'_> {
    /// The remaining seconds.
    pub fn left(&self) -> f64 {
        self.until.saturating_duration_since(Instant::now()).as_secs_f64()
    }

    /// Opens the device. Its shaders do not check indices, as in release builds.
    pub fn gpu(&self) -> anyhow::Result<Gpu> {
        Ok(Gpu::open(&self.args.gpu.options()?)?)
    }
}

pub fn run_here(name: StageName, args: &ReportArgs) -> anyhow::Result<()> {
    let stage = STAGES.iter().find(|stage| stage.id == name);
    stage.map_or(Ok(()), |stage| (stage.run)(&Here { args, until: Instant::now() + stage.limits(args).whole }))
}

pub fn say(line: Arguments<'_>) -> anyhow::Result<()> {
    output::lines([line])
}

/// Writes a line that belongs to the summary.
pub fn sum_up(line: Arguments<'_>) -> anyhow::Result<()> {
    output::lines([format!("{SUMMARY}{line}")])
}

/// Crashes at its second item, like a fault in a driver.
fn crash(here: &Here<'_>) -> anyhow::Result<()> {
    for item in here.args.from..3 {
        output::say(&format!("[{item}] an item: "))?;
        if item == 1 {
            std::process::abort();
        }
        say(format_args!("good"))?;
    }
    sum_up(format_args!("good from item {} on", here.args.from))
}

fn hang(_: &Here<'_>) -> anyhow::Result<()> {
    output::say("the beginning of a line")?;
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}
