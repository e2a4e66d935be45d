//! The stages that run other commands and summarize them.

use super::models::load;
use super::shape;
use super::stages::{Here, say, sum_up};
use crate::args::{Arguments, Command};
use crate::selftest::{SelftestRow, TestStatus, each_row};
use crate::selftest_report::{self, counts, name, worst};
use crate::table::{head, row};
use crate::{bench as benches, model, output, profile as profiles, profile_report};
use anyhow::bail;
use clap::Parser;
use std::ffi::OsString;
use std::ops::ControlFlow;
use wglm_engine::instruments::KERNELS;
use wglm_engine::{Check, Gguf, Gpu};

/// The maximum number of failed rows that the summary names.
const NAMED: usize = 8;

/// Tests the kernels one by one, to name one that crashes. Failures are in the summary at once, since the stage may not
/// reach its end.
pub fn selftest(here: &Here<'_>) -> anyhow::Result<()> {
    let gpu = here.gpu()?;
    output::lines(head(&selftest_report::COLUMNS))?;
    let mut rows = Vec::new();
    for (index, kernel) in KERNELS.iter().enumerate().skip(here.args.from) {
        if here.left() == 0.0 {
            sum_up(format_args!("{} kernels skipped for lack of time", KERNELS.len() - index))?;
            break;
        }
        say(format_args!("[{index}] {}", kernel.name))?;
        each_row(kernel, &gpu, 1.0, &mut |tested| -> anyhow::Result<ControlFlow<()>> {
            output::lines([row(&selftest_report::COLUMNS, &selftest_report::cells(&tested))])?;
            output::lines(selftest_report::remarks_on(&tested))?;
            if tested.result == TestStatus::Fail {
                failed(&tested, rows.iter().filter(|row: &&SelftestRow| row.result == TestStatus::Fail).count())?;
            }
            rows.push(tested);
            if here.left() > 0.0 {
                return Ok(ControlFlow::Continue(()));
            }
            say(format_args!("more rows of {} may be skipped for lack of time", kernel.name))?;
            Ok(ControlFlow::Break(()))
        })?;
    }
    sum_up_rows(&rows, here.args.from)
}

/// Names a row that failed after `before` others.
fn failed(row: &SelftestRow, before: usize) -> anyhow::Result<()> {
    match (before, row.passes_at_four) {
        (NAMED, _) => sum_up(format_args!("more rows FAILED")),
        (NAMED.., _) => Ok(()),
        (_, true) => sum_up(format_args!("{} FAILED, but passes with four times its bound", name(row))),
        (_, false) => sum_up(format_args!("{} FAILED", name(row))),
    }
}

fn sum_up_rows(rows: &[SelftestRow], from: usize) -> anyhow::Result<()> {
    let ([passed, failed, skipped], worst) = (counts(rows), worst(rows));
    let wider = rows.iter().filter(|row| row.passes_at_four).count();
    let part = if from > 0 { format!("from kernel {from} on: ") } else { String::new() };
    sum_up(format_args!(
        "{part}{passed} passed, {failed} failed ({wider} of them pass with four times their bound), {skipped} skipped{worst}"
    ))
}

/// Profiles a token of the demonstration model, and one of the model given with -m or of GLM-4.7-Flash's shape.
pub fn profile(here: &Here<'_>) -> anyhow::Result<()> {
    let gpu = here.gpu()?;
    if !gpu.report().timestamps {
        return sum_up(format_args!("none: this GPU has no timestamps at the ends of passes"));
    }
    profiled(here, &gpu, "the demonstration model", &model::demonstration()?)?;
    match &here.args.model {
        Some(path) => {
            let file = model::open(Some(path))?;
            profiled(here, &gpu, &model::title(&file), &file)
        }
        None => profiled(here, &gpu, &format!("two layers and the head of {}", shape::NAME), &shape::model(&gpu)?),
    }
}

fn profiled(here: &Here<'_>, gpu: &Gpu, name: &str, file: &Gguf) -> anyhow::Result<()> {
    let repetitions = if gpu.report().is_software() { "1" } else { "11" };
    let Command::Profile(args) = parsed(here, ["profile", "--tuning", "off", "-r", repetitions])? else {
        bail!("`profile` was parsed as another command");
    };
    let profile = profiles::measure(&load(gpu, file, Check::Auto)?, &args)?;
    say(format_args!("{name}\n"))?;
    output::lines(profile_report::table(&profile, true))?;
    say(format_args!(""))?;
    let times = &profile.microseconds;
    let mut kinds: Vec<_> = profile.kinds.iter().collect();
    kinds.sort_by(|a, b| b.microseconds.total_cmp(&a.microseconds));
    let largest = |kind: &&profiles::KindProfile| {
        format!("{} {:.0} ({:.0} GB/s)", kind.step, kind.microseconds, kind.gigabytes_per_second)
    };
    let largest: Vec<String> = kinds.iter().take(3).map(largest).collect();
    sum_up(format_args!(
        "{name}: a token takes {:.0} us on the GPU, {:.0} us with the host; {}",
        times.pass,
        times.whole,
        largest.join(", ")
    ))
}

/// Measures the model given with -m, with an empty and with a deep cache.
pub fn bench(here: &Here<'_>) -> anyhow::Result<()> {
    let Some(path) = &here.args.model else {
        return sum_up(format_args!("skipped: no model was given (-m FILE)"));
    };
    let mut line: Vec<OsString> =
        ["bench", "--tuning", "off", "-p", "512", "-n", "32", "-d", "0,4096,32768", "-r", "3", "-m"]
            .map(OsString::from)
            .to_vec();
    line.push(path.into());
    let Command::Bench(args) = parsed(here, line)? else { bail!("`bench` was parsed as another command") };
    benches::measured(args, &mut |row| {
        sum_up(format_args!("{}: {:.1} tokens per second", row.test, row.avg_ts))?;
        if here.left() > 0.0 {
            return Ok(ControlFlow::Continue(()));
        }
        sum_up(format_args!("the tests after it are skipped for lack of time"))?;
        Ok(ControlFlow::Break(()))
    })
}

/// A command line of wglm, with the device of the report.
fn parsed(here: &Here<'_>, line: impl IntoIterator<Item = impl Into<OsString>>) -> anyhow::Result<Command> {
    let mut words = vec![OsString::from("wglm")];
    words.extend(line.into_iter().map(Into::into));
    let adapter = &here.args.gpu.adapter;
    let options = [("--gpu", &adapter.gpu), ("--backend", &adapter.backend)];
    for (name, value) in options.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?))) {
        words.extend([name.into(), value.into()]);
    }
    words.extend(here.args.gpu.no_subgroups.then(|| "--no-subgroups".into()));
    Ok(Arguments::try_parse_from(words)?.command)
}
