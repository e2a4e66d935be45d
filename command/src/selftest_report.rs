//! Prints the results of `selftest` to stdout.

use super::args::OutputFormat;
use super::selftest::{SelftestConditions, SelftestRow, TestStatus};
use super::table::{Column, RowReport};
use std::process::ExitCode;
use std::time::Duration;

pub const COLUMNS: [Column; 7] = [
    Column { title: "kernel", width: 20, right: false },
    Column { title: "format", width: 15, right: false },
    Column { title: "arithmetic", width: 10, right: false },
    Column { title: "cases", width: 5, right: true },
    Column { title: "error", width: 8, right: true },
    Column { title: "bound", width: 8, right: true },
    Column { title: "result", width: 6, right: false },
];

/// The maximum number of remarks on a row that are printed below the table. CSV and JSON have all of them.
const MAX_REMARKS: usize = 3;

pub type SelftestReport<'a> = RowReport<'a, SelftestConditions, SelftestRow>;

pub fn begin(format: OutputFormat, conditions: &SelftestConditions) -> anyhow::Result<SelftestReport<'_>> {
    RowReport::new(format, &COLUMNS, |_, row| cells(row), conditions)
}

/// Writes the rest of the report. The exit status is success unless a row failed.
pub fn end(report: &SelftestReport<'_>, took: Duration) -> anyhow::Result<ExitCode> {
    report.end(remarks(report.conditions, &report.rows, took))?;
    let failed = report.rows.iter().any(|row| row.result == TestStatus::Fail);
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The numbers of rows that passed, failed, and were skipped.
pub fn counts(rows: &[SelftestRow]) -> [usize; 3] {
    [TestStatus::Pass, TestStatus::Fail, TestStatus::Skip]
        .map(|result| rows.iter().filter(|row| row.result == result).count())
}

/// The lines below the table: the failures, and a summary for a bug report.
fn remarks(s: &SelftestConditions, rows: &[SelftestRow], took: Duration) -> Vec<String> {
    let mut remarks = vec![String::new()];
    remarks.extend(rows.iter().flat_map(remarks_on));
    let subgroup = s.subgroup.map_or("no subgroups".into(), |lanes| format!("subgroups of {lanes}"));
    let checks = if s.checks { ", indices checked" } else { "" };
    let SelftestConditions { wglm, gpu_info, backends, driver, system, .. } = s;
    remarks.push(format!("wglm {wglm} on {gpu_info} ({backends}, {driver}), {system}: {subgroup}{checks}"));
    let [passed, failed, skipped] = counts(rows);
    let cases: usize = rows.iter().map(|row| row.cases).sum();
    let (worst, seconds) = (worst(rows), took.as_secs_f64());
    remarks.push(format!("{passed} passed, {failed} failed, {skipped} skipped ({cases} cases, {seconds:.1} s){worst}"));
    remarks
}

/// A clause about the error that comes closest to its bound.
pub fn worst(rows: &[SelftestRow]) -> String {
    let shares = rows.iter().filter_map(|row| Some((row.share?, row)));
    let worst = shares.max_by(|a, b| a.0.total_cmp(&b.0));
    worst.map_or_else(String::new, |(share, row)| format!("; worst error {share:.2} of its bound: {}", name(row)))
}

/// What distinguishes a row.
pub fn name(row: &SelftestRow) -> String {
    format!("{} {} {}", row.kernel, row.format, row.arithmetic)
}

pub fn cells(row: &SelftestRow) -> Vec<String> {
    let number = |value: Option<f64>| match value {
        None => "-".to_owned(),
        Some(0.0) => "0".into(),
        Some(value) => format!("{value:.1e}"),
    };
    vec![
        row.kernel.into(),
        row.format.clone(),
        row.arithmetic.into(),
        row.cases.to_string(),
        number(row.error),
        number(row.bound),
        match row.result {
            TestStatus::Pass => "pass",
            TestStatus::Fail => "FAIL",
            TestStatus::Skip => "skip",
        }
        .into(),
    ]
}

/// The remarks on a row, shortened if there are many.
pub fn remarks_on(row: &SelftestRow) -> Vec<String> {
    let line = |remark: &String| format!("{}: {remark}", name(row));
    let mut lines: Vec<String> = row.remarks.iter().take(MAX_REMARKS).map(line).collect();
    if row.remarks.len() > MAX_REMARKS {
        lines.push(format!("... and {} more cases", row.remarks.len() - MAX_REMARKS));
    }
    if row.passes_at_four {
        lines.push(line(&"passes with four times its bound".to_owned()));
    }
    lines
}
