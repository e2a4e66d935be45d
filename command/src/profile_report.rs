//! Prints the results of `profile` to stdout.

use super::args::OutputFormat;
use super::chart::{self, Bar};
use super::output;
use super::profile::{KindProfile, Profile, Times};
use super::table::{Column, csv, head, record, row};
use serde_json::{Value, json};

const COLUMNS: [Column; 7] = [
    Column { title: "step", width: 18, right: false },
    Column { title: "kernel", width: 26, right: false },
    Column { title: "count", width: 5, right: true },
    Column { title: "us each", width: 8, right: true },
    Column { title: "us", width: 9, right: true },
    Column { title: "GB/s", width: 7, right: true },
    Column { title: "share", width: 6, right: true },
];

/// Prints the report. In a table the full names of shader variants are listed below if `verbose`; CSV and JSON always
/// have them.
pub fn report(format: OutputFormat, profile: &Profile, verbose: bool) -> anyhow::Result<()> {
    match format {
        OutputFormat::Md => output::lines(table(profile, verbose)),
        OutputFormat::Csv => lines(profile),
        OutputFormat::Json => output::lines([serde_json::to_string_pretty(profile)?]),
        OutputFormat::Svg => output::lines([picture(profile)?]),
    }
}

pub fn table(profile: &Profile, verbose: bool) -> Vec<String> {
    let mut lines = Vec::from(head(&COLUMNS));
    lines.extend(profile.kinds.iter().map(|kind| row(&COLUMNS, &cells(kind))));
    let times = &profile.microseconds;
    let share = |part: f64| format!("{:.1}%", 100.0 * part / times.longer());
    let rest = |name: &str, time: f64| {
        let [name, time, share] = [name.to_owned(), format!("{time:.1}"), share(time)];
        row(&COLUMNS, &[name, String::new(), String::new(), String::new(), time, String::new(), share])
    };
    lines.push(rest("between steps", times.unaccounted));
    lines.push(rest("all in one pass", times.pass));
    lines.extend([String::new(), profile.setup.sentence()]);
    lines.extend(remarks(times, profile));
    if verbose {
        lines.push(String::new());
        lines.extend(profile.kinds.iter().map(|kind| format!("{:<18} {}", kind.step, kind.variant)));
    }
    lines
}

/// The kinds of steps, each with the time that moving its bytes would take.
fn picture(profile: &Profile) -> anyhow::Result<String> {
    let floor = |bytes: u64| profile.copy_bandwidth.map_or(0.0, |per_second| bytes as f64 / per_second * 1e6);
    let bar = |kind: &KindProfile| Bar {
        name: format!("{} x {}", kind.step, kind.count),
        value: kind.microseconds,
        part: floor(kind.bytes),
    };
    let between = Bar { name: "between steps".into(), value: profile.microseconds.unaccounted, part: 0.0 };
    let bars: Vec<Bar> = profile.kinds.iter().map(bar).chain([between]).collect();
    let [title, ..] = remarks(&profile.microseconds, profile);
    let about = format!("{}: {}", profile.setup.model_type, profile.setup.sentence());
    chart::bars([&title, &about], ["us", "the time to move its bytes at the bandwidth of a copy"], &bars)
}

fn cells(kind: &KindProfile) -> [String; 7] {
    [
        kind.step.clone(),
        kind.kernel.to_owned(),
        kind.count.to_string(),
        format!("{:.2}", kind.microseconds / kind.count.max(1) as f64),
        format!("{:.1}", kind.microseconds),
        format!("{:.0}", kind.gigabytes_per_second),
        format!("{:.1}%", 100.0 * kind.share),
    ]
}

fn remarks(times: &Times, profile: &Profile) -> [String; 3] {
    let Times { pass, steps, submit, whole, .. } = times;
    let (depth, repetitions) = (profile.n_depth, profile.repetitions);
    let what = match (profile.n_prompt, profile.n_drafts) {
        (0, 0) => "a token".to_owned(),
        (0, drafts) => format!("a step that verifies {} and predicts as many", output::count(drafts, "draft")),
        (tokens, _) => format!("{tokens} tokens"),
    };
    [
        format!("{what} at depth {depth}, medians of {repetitions}: {pass:.1} us in one pass on the GPU"),
        match steps > pass {
            true => {
                format!("the steps take longer, {steps:.1} us, each kind timed alone; shares are of this sum")
            }
            false => {
                format!("the steps take {steps:.1} us, each kind timed alone, without switches between kernels")
            }
        },
        match submit {
            Some(submit) => {
                format!("the host takes {submit:.1} us to submit it, and {whole:.1} us until it has the result")
            }
            None => format!("the host has a result every {whole:.1} us"),
        },
    ]
}

/// Prints CSV: a line for every kind of step, and a line without a kernel for every other time.
fn lines(profile: &Profile) -> anyhow::Result<()> {
    let mut about = record(&profile.setup)?;
    let Profile { n_prompt, n_drafts, n_depth, repetitions, .. } = *profile;
    let numbers = [("n_prompt", n_prompt), ("n_drafts", n_drafts), ("n_depth", n_depth), ("repetitions", repetitions)];
    about.extend(numbers.map(|(name, number)| (name.to_owned(), json!(number))));
    let mut rows = profile.kinds.iter().map(record).collect::<anyhow::Result<Vec<_>>>()?;
    let Some(empty) = rows.first().cloned() else { return Ok(()) };
    for (name, time) in record(&profile.microseconds)? {
        let mut row = empty.clone();
        row.values_mut().for_each(|value| *value = Value::Null);
        row.extend([("step".to_owned(), Value::String(name)), ("microseconds".into(), time)]);
        rows.push(row);
    }
    let whole = |row| about.clone().into_iter().chain(row).collect();
    csv(&rows.into_iter().map(whole).collect::<Vec<_>>(), true)
}
