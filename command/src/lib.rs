//! The command line of wglm. It parses arguments, calls the engine, and writes results to stdout and everything else to
//! stderr. [`main`] is all that it provides: the crate `wglm` builds the program.

mod args;
mod bandwidth;
mod bench;
mod bench_chart;
mod bench_report;
mod chart;
mod chat;
mod context;
mod devices;
mod divergence;
mod failure;
mod faults;
mod figures;
mod fits;
mod hardware;
#[cfg(feature = "download")]
mod hint;
mod input;
mod inspect;
mod interrupts;
mod largest_step;
mod listing;
mod logits;
mod manual;
mod model;
mod models;
mod output;
mod perplexity;
mod plan;
mod prediction;
mod profile;
mod profile_report;
mod progress;
#[cfg(feature = "download")]
mod pull;
mod recovery;
#[cfg(feature = "download")]
mod remove;
mod reply;
mod report;
mod run;
mod selftest;
mod selftest_report;
#[cfg(feature = "serve")]
mod serve;
mod setup;
mod table;
mod terminal;
mod text;
mod tune;
mod tune_report;
mod tunings;
mod verdicts;
#[cfg(feature = "download")]
mod verify;
mod wrap;

use args::Command;
use std::io::ErrorKind;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

/// Parses the arguments of the process, runs the command, and reports an error in one sentence. Where no model is
/// named, it uses `demonstration`, the bytes of a GGUF file, if there are any.
pub fn main(demonstration: Option<&'static [u8]>) -> ExitCode {
    #[cfg(target_os = "macos")]
    relax_the_watchdog();
    #[cfg(feature = "serve")]
    if serve::compile_child::is_asked() {
        return serve::compile_child::run();
    }
    demonstration.into_iter().for_each(model::set_demonstration);
    let (arguments, notes) = args::parse();
    if arguments.command.is_quiet() {
        output::be_quiet();
    }
    notes.iter().for_each(|note| output::note(format_args!("note: {note}")));
    let filter = match std::env::var_os("RUST_LOG") {
        Some(_) => Some(EnvFilter::from_default_env()),
        None => arguments.command.default_log().map(EnvFilter::new),
    };
    if let Some(filter) = filter {
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_ansi(output::colour())
            .with_writer(|| output::Log)
            .init();
    }
    let json = arguments.command.is_json();
    if json {
        interrupts::set_exit_message(|| output::last_line(failure::as_json(&wglm_engine::Error::Cancelled.into())));
        // Without this, Ctrl-C ends the process without printing them.
        interrupts::listen(false).unwrap_or_else(|error| tracing::warn!("{error:#}"));
    }
    match dispatch(arguments.command) {
        Ok(code) => code,
        // The reader of the output has closed the pipe and does not want the rest.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            if json {
                let _ = interrupts::instead_of_exit_message(|| tell_json(&error));
            }
            if matches!(error.downcast_ref(), Some(wglm_engine::Error::Cancelled)) {
                return interrupts::INTERRUPTED.into();
            }
            failure::tell(&error);
            failure::code(&error)
        }
    }
}

/// Prints an error as a JSON object, unless the command has printed something already.
fn tell_json(error: &anyhow::Error) -> anyhow::Result<()> {
    if output::has_printed() { Ok(()) } else { output::lines([failure::as_json(error)]) }
}

/// Makes macOS more patient with GPU work that keeps the screen waiting, as llama.cpp does (ggml-metal.cpp) and mlx's
/// maintainers advise (mlx#3267). Otherwise it ends such work ("Impacting Interactivity"), and after that Metal may
/// ignore everything that is submitted to the queue. The driver reads the variable when a device is opened. A value
/// that the user set stays.
#[cfg(target_os = "macos")]
fn relax_the_watchdog() {
    const NAME: &str = "AGX_RELAX_CDM_CTXSTORE_TIMEOUT";
    if std::env::var_os(NAME).is_none() {
        // SAFETY: `main` does this first, when the process has no other thread that could read the environment.
        unsafe { std::env::set_var(NAME, "1") };
    }
}

fn dispatch(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Run(args) => return run::run(args),
        Command::Chat(args) => return chat::chat(args),
        #[cfg(feature = "serve")]
        Command::Serve(args) => return serve::serve(*args),
        #[cfg(feature = "download")]
        Command::Pull(args) => return pull::pull(&args),
        Command::Models(args) => return models::models(&args),
        Command::Inspect(args) => inspect::inspect(args)?,
        Command::Devices(args) => devices::devices(&args)?,
        Command::Tokenize(args) => text::tokenize(args)?,
        Command::Template(args) => text::template(args)?,
        Command::Logits(args) => logits::logits(args)?,
        Command::Plan(args) => plan::plan(args)?,
        Command::Bench(args) => bench::bench(args)?,
        Command::Profile(args) => profile::profile(args)?,
        Command::Tune(args) => tune::tune(&args)?,
        Command::Selftest(args) => return selftest::selftest(args),
        Command::Report(args) => return report::report(args),
        Command::Perplexity(args) => perplexity::perplexity(args)?,
        Command::Completions(args) => manual::completions(&args)?,
        Command::Man(args) => manual::man(&args)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let broken = |e: &std::io::Error| e.kind() == ErrorKind::BrokenPipe;
    error.chain().any(|cause| cause.downcast_ref().is_some_and(broken))
}
