//! The command `report`: everything that wglm can find out about itself on a GPU, in one file.
//!
//! wglm's authors may not have that GPU, and its owner runs the command once. So a failure must not lose other results:
//! each stage runs in its own process (this command with `--stage`), with limits for its time and its silence, and its
//! output is appended to the file as it arrives. After a crash or a hang the later stages still run. A stage with a
//! list of items continues after the one that failed. The file ends with a summary for an issue. It is meant to be
//! published, so home folders and user names are removed ([`private`]).
//!
//! A line of a stage that begins with `summary: ` becomes part of the summary. A line `[N] …` begins item N of a list:
//! after a crash or a hang the stage is started again with the following item. A new stage is an entry in `STAGES` and
//! a `StageName`; a new comparison is an entry in `pairs`.

mod device;
mod file;
mod measured;
mod models;
mod pairs;
mod pipelines;
mod private;
mod process;
mod shape;
mod stages;
mod system;

use super::args::ReportArgs;
use super::interrupts::{self, OnInterrupt};
use super::model;
use super::output::{self, FaintText};
use file::ReportFile;
use private::Private;
use process::{Ended, Limits};
use stages::Stage;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

/// The prefix of a stage's lines that belong to the summary.
const SUMMARY: &str = "summary: ";

/// How often a stage continues after an item that crashed or hung.
const MAX_FAILED_ITEMS: usize = 8;

pub fn report(args: ReportArgs) -> anyhow::Result<ExitCode> {
    if let Some(name) = args.stage {
        return stages::run_here(name, &args).map(|()| ExitCode::SUCCESS);
    }
    if let Some(path) = &args.model {
        model::open(Some(path))?; // before anything runs, to report a wrong name
    }
    if let Some(folder) = &args.shaders {
        std::fs::create_dir_all(folder)?;
    }
    interrupts::begin(OnInterrupt::CancelWork);
    interrupts::listen(false)?;
    let mut report = Report {
        file: ReportFile::create(args.out.as_deref(), Private::of_environment(args.model.as_deref()))?,
        args: &args,
        aside: FaintText::new(),
        summary: Vec::new(),
    };
    report.write()
}

struct Report<'a> {
    args: &'a ReportArgs,
    file: ReportFile,
    aside: FaintText,
    summary: Vec<String>,
}

impl Report<'_> {
    fn write(&mut self) -> anyhow::Result<ExitCode> {
        self.file.line(&format!("# wglm {} report", env!("CARGO_PKG_VERSION")))?;
        for stage in stages::chosen(self.args) {
            if interrupts::asked() {
                self.sum_up(&format!("{}: not run, stopped by Ctrl-C", stage.name()));
                continue;
            }
            self.stage(stage)?;
        }
        self.end()?;
        Ok(if interrupts::asked() { interrupts::INTERRUPTED.into() } else { ExitCode::SUCCESS })
    }

    /// Runs a stage, and writes a line about its outcome to stderr.
    fn stage(&mut self, stage: &Stage) -> anyhow::Result<()> {
        let (name, limits, start) = (&stage.name(), stage.limits(self.args), Instant::now());
        self.file.line(&format!("\n## {name}: {}\n", stage.title))?;
        self.aside.passing(format_args!("{name}: {} ...", stage.title));
        let before = self.summary.len();
        let mut from = 0;
        for failed in 1.. {
            let whole = limits.whole.saturating_sub(start.elapsed());
            let mut seen = StageOutput { from, ..StageOutput::default() };
            let ended = self.run(stage, Limits { whole, ..limits }, &mut seen)?;
            if let Some(trouble) = seen.trouble(&ended) {
                self.file.line(&format!("\n{name} {trouble}"))?;
                self.sum_up(&format!("{name}: {trouble}"));
            }
            from = match seen.item {
                Some(item) if ended.may_go_on() && failed < MAX_FAILED_ITEMS && !whole.is_zero() => item + 1,
                _ => break,
            };
        }
        let took = start.elapsed().as_secs_f64();
        self.file.line(&format!("\n({name} took {took:.1} s)"))?;
        self.file.sync();
        if self.summary.len() == before {
            self.sum_up(&format!("{name}: done"));
        }
        let results: Vec<&str> = self.summary[before..].iter().map(|line| shown(line, name)).collect();
        self.aside.passing(format_args!(""));
        output::note(format_args!("{name}: {} ({took:.1} s)", results.join("; ")));
        Ok(())
    }

    /// Runs a stage's process from an item on. It gets the silence in addition to its time, to end on its own.
    fn run(
        &mut self,
        stage: &Stage,
        Limits { whole, silence }: Limits,
        seen: &mut StageOutput,
    ) -> anyhow::Result<Ended> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["report", "--stage", &stage.name(), "--from", &seen.from.to_string()]);
        command.args(["--seconds", &whole.as_secs_f32().to_string()]);
        command.args(passed_on(self.args));
        let limits = Limits { whole: whole + silence, silence };
        let (file, summary) = (&mut self.file, &mut self.summary);
        process::run(command, limits, &interrupts::asked, &mut |line| {
            match line.strip_prefix(SUMMARY) {
                Some(text) => summary.push(file.private.hidden(&format!("{}: {text}", stage.name()))),
                None => seen.line(line),
            }
            file.line(line)
        })
    }

    fn sum_up(&mut self, line: &str) {
        self.summary.push(self.file.private.hidden(line));
    }

    /// Writes the summary, to the file and to stdout.
    fn end(&mut self) -> anyhow::Result<()> {
        self.file.line("\n## Summary\n")?;
        for line in &self.summary {
            self.file.line(line)?;
        }
        self.file.sync();
        output::lines(&self.summary)?;
        let path = self.file.path.display();
        output::note(format_args!(
            "\nthe whole report is in {path}; please attach it to an issue, with the lines above"
        ));
        Ok(())
    }
}

/// A line of the summary without the name of its stage.
fn shown<'a>(line: &'a str, name: &str) -> &'a str {
    line.strip_prefix(name).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(line)
}

/// The options that each stage gets too.
fn passed_on(args: &ReportArgs) -> Vec<OsString> {
    let mut passed: Vec<OsString> = Vec::new();
    let mut pass = |name: &str, value: Option<&OsStr>| {
        passed.extend(value.into_iter().flat_map(|value| [name.into(), value.to_owned()]));
    };
    pass("--model", args.model.as_deref().map(Path::as_os_str));
    pass("--shaders", args.shaders.as_deref().map(Path::as_os_str));
    pass("--gpu", args.gpu.adapter.gpu.as_deref().map(OsStr::new));
    pass("--backend", args.gpu.adapter.backend.as_deref().map(OsStr::new));
    passed.extend(args.gpu.no_subgroups.then(|| "--no-subgroups".into()));
    passed
}

/// What the lines of a stage's process have reported.
#[derive(Default)]
struct StageOutput {
    /// The first item of the process.
    from: usize,
    /// The last item that it began.
    item: Option<usize>,
    /// Its last line, and the error it reported.
    last: String,
    error: Option<String>,
}

impl StageOutput {
    /// Takes a line. The line of an item begins with its index in brackets.
    fn line(&mut self, line: &str) {
        let index =
            line.strip_prefix('[').and_then(|rest| rest.split_once(']')).and_then(|(index, _)| index.parse().ok());
        self.item = index.or(self.item);
        if let Some(error) = line.strip_prefix("error: ").or(line.contains(" panicked at ").then_some(line)) {
            self.error = Some(error.to_owned());
        } else if !line.trim().is_empty() {
            self.last = line.trim().to_owned();
        }
    }

    /// What went wrong, if anything did.
    fn trouble(&self, ended: &Ended) -> Option<String> {
        let last = if self.last.is_empty() { String::new() } else { format!(", after the line `{}`", self.last) };
        match ended {
            Ended::Well => None,
            Ended::Failed(code) => {
                Some(format!("failed: {}", self.error.clone().unwrap_or(format!("exit status {code}{last}"))))
            }
            ended => Some(format!("{ended}{last}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_and_errors_are_seen() {
        let mut seen = StageOutput::default();
        for line in ["[3] mul_mv", "| a row |", "", "[4] sample: ", "error: no memory", "hint: none"] {
            seen.line(line);
        }
        assert_eq!((seen.item, seen.last.as_str()), (Some(4), "hint: none"));
        assert_eq!(seen.trouble(&Ended::Failed(1)).as_deref(), Some("failed: no memory"));
        assert_eq!(seen.trouble(&Ended::Well), None);
        let crashed = seen.trouble(&Ended::Crashed(6)).unwrap_or_default();
        assert!(crashed.starts_with("CRASHED") && crashed.contains("`hint: none`"), "{crashed}");
    }
}
