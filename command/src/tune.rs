//! The command `tune`: finds the fastest choices for a model on a GPU, and saves them for all commands.

use super::args::TuneArgs;
use super::interrupts::{self, OnInterrupt};
use super::tune_report::report;
use super::{model, output, progress, tunings};
use indicatif::ProgressBar;
use std::time::Duration;
use wglm_engine::tune::{TuneOptions, TuneProgress, Tuning};
use wglm_engine::{DraftKind, Gpu};

/// The positions of the progress bar.
const FINE: u64 = 1000;

pub fn tune(args: &TuneArgs) -> anyhow::Result<()> {
    let cancel = interrupts::begin(OnInterrupt::ExitAfterGrace);
    interrupts::listen(false)?;
    let gpu = Gpu::open(&args.model.gpu.options()?)?;
    let file = model::open(args.model.file.model.as_deref())?;
    let model = model::load_tuned(&gpu, &file, &args.model, DraftKind::Off, None)?;
    let path = tunings::destination(&args.model, &gpu, &file)?;
    interrupts::cancel_work_from_now_on();
    let options = TuneOptions { budget: args.budget.map(seconds), ..TuneOptions::default() };
    let bar = bar();
    let tuning = wglm_engine::tune::tune(&model, &options, &cancel, &mut |progress| {
        show(&bar, progress, cancel.is_cancelled())
    })?;
    bar.finish_and_clear();
    report(args.output.format(), &tuning)?;
    let found = !tuning.choices.is_empty();
    let written = path.filter(|_| found);
    if let Some(path) = &written {
        tunings::keep(&tuning, path)?;
    }
    output::note(format_args!("{}", ending(&tuning, cancel.is_cancelled())));
    match written {
        Some(path) => output::note(format_args!("saved in {}", path.display())),
        None if found => output::note(format_args!("not saved, because of --tuning off")),
        None => output::note(format_args!("nothing was written")),
    }
    Ok(())
}

/// A number of seconds as a duration, or the longest duration there is.
fn seconds(seconds: f32) -> Duration {
    Duration::try_from_secs_f32(seconds).unwrap_or(Duration::MAX)
}

fn ending(tuning: &Tuning, stopped: bool) -> String {
    let whole = match (stopped, tuning.complete) {
        (true, _) => "stopped; of the candidates tried so far",
        (false, true) => "of all candidates",
        (false, false) => "time was up; of the candidates tried so far",
    };
    match tuning.comparison.len() {
        0 => format!("{whole}, none is faster than the defaults"),
        _ => format!("{whole}, these are faster"),
    }
}

pub fn bar() -> ProgressBar {
    progress::bar(FINE, "tuning {bar:20} {elapsed}, {msg}")
}

pub fn show(bar: &ProgressBar, progress: &TuneProgress, stopped: bool) {
    let TuneProgress { doing, trials, kept, .. } = progress;
    bar.set_position((FINE as f32 * progress.share()) as u64);
    let doing = if stopped { "stopping: comparing the choices so far" } else { doing };
    bar.set_message(format!("{kept} of {trials} kept: {doing}"));
}
