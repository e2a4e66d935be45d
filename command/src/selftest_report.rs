//! Prints the results of `selftest` to stdout.

use super::args::OutputFormat;
use super::output;
use super::selftest::{SelftestConditions, SelftestRow, TestStatus};
use super::table::{Column, Record, csv, head, record, row};
use serde_json::{Value, json};
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

/// The most remarks on a row that are printed below the table. CSV and JSON have all of them.
const MOST_REMARKS: usize = 3;

/// Writes rows as they arrive, and JSON at the end.
pub struct SelftestReport<'a> {
    format: OutputFormat,
    conditions: &'a SelftestConditions,
    rows: Vec<SelftestRow>,
}

impl<'a> SelftestReport<'a> {
    pub fn new(format: OutputFormat, conditions: &'a SelftestConditions) -> anyhow::Result<Self> {
        if format == OutputFormat::Md {
            output::lines(head(&COLUMNS))?;
        }
        Ok(Self { format, conditions, rows: Vec::new() })
    }

    pub fn row(&mut self, tested: SelftestRow) -> anyhow::Result<()> {
        match self.format {
            OutputFormat::Md => output::lines([row(&COLUMNS, &cells(&tested))])?,
            OutputFormat::Csv => csv(&[self.record(&tested)?], self.rows.is_empty())?,
            OutputFormat::Json => {}
        }
        self.rows.push(tested);
        Ok(())
    }

    /// Writes the rest of the report. The exit status is success unless a row failed.
    pub fn end(&self, took: Duration) -> anyhow::Result<ExitCode> {
        match self.format {
            OutputFormat::Md => output::lines(self.remarks(took))?,
            OutputFormat::Csv => {}
            OutputFormat::Json => {
                let rows = self.rows.iter().map(|row| self.record(row)).collect::<anyhow::Result<Vec<_>>>()?;
                output::lines([serde_json::to_string_pretty(&rows)?])?;
            }
        }
        Ok(if self.count(TestStatus::Fail) > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    fn count(&self, result: TestStatus) -> usize {
        self.rows.iter().filter(|row| row.result == result).count()
    }

    /// A row, preceded by the columns that are the same in all rows.
    fn record(&self, row: &SelftestRow) -> anyhow::Result<Record> {
        let mut whole = record(self.conditions)?;
        whole.extend(record(row)?);
        let share = row.error.zip(row.bound).map_or(Value::Null, |(error, bound)| json!(share(error, bound)));
        whole.insert("share".into(), share);
        Ok(whole)
    }

    /// The lines below the table: the failures, and a summary for a bug report.
    fn remarks(&self, took: Duration) -> Vec<String> {
        let mut remarks = vec![String::new()];
        remarks.extend(self.rows.iter().flat_map(remarks_on));
        let s = self.conditions;
        let subgroup = s.subgroup.map_or("no subgroups".into(), |lanes| format!("subgroups of {lanes}"));
        let checks = if s.checks { ", indices checked" } else { "" };
        let SelftestConditions { wglm, gpu_info, backends, driver, system, .. } = s;
        remarks.push(format!("wglm {wglm} on {gpu_info} ({backends}, {driver}), {system}: {subgroup}{checks}"));
        let [passed, failed, skipped] =
            [TestStatus::Pass, TestStatus::Fail, TestStatus::Skip].map(|result| self.count(result));
        let cases: usize = self.rows.iter().map(|row| row.cases).sum();
        let worst = self.worst().map_or_else(String::new, |worst| format!("; {worst}"));
        let seconds = took.as_secs_f64();
        remarks.push(format!(
            "{passed} passed, {failed} failed, {skipped} skipped ({cases} cases, {seconds:.1} s){worst}"
        ));
        remarks
    }

    /// A sentence about the error that comes closest to its bound.
    fn worst(&self) -> Option<String> {
        let shares = self.rows.iter().filter_map(|row| Some((row, share(row.error?, row.bound?))));
        let (row, share) = shares.max_by(|a, b| a.1.total_cmp(&b.1))?;
        Some(format!("worst error {share:.2} of its bound: {} {} {}", row.kernel, row.format, row.arithmetic))
    }
}

/// An error relative to its bound. If values have to be equal, any error gives a very large number.
pub fn share(error: f64, bound: f64) -> f64 {
    if error == 0.0 { 0.0 } else { error / bound.max(f64::MIN_POSITIVE) }
}

pub fn cells(row: &SelftestRow) -> [String; 7] {
    let number = |value: Option<f64>| match value {
        None => "-".to_owned(),
        Some(0.0) => "0".into(),
        Some(value) => format!("{value:.1e}"),
    };
    [
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
    let line = |remark: &String| format!("{} {} {}: {remark}", row.kernel, row.format, row.arithmetic);
    let mut lines: Vec<String> = row.remarks.iter().take(MOST_REMARKS).map(line).collect();
    if row.remarks.len() > MOST_REMARKS {
        lines.push(format!("... and {} more cases", row.remarks.len() - MOST_REMARKS));
    }
    if row.passes_at_four {
        lines.push(line(&"passes with four times its bound".to_owned()));
    }
    lines
}
