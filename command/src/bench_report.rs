//! Prints the results of `bench` to stdout.

use super::args::MeasuredFormat;
use super::bench::{BenchConditions, BenchRow};
use super::bench_chart;
use super::output;
use super::table::{Column, Record, csv, head, record, row};

/// The columns of llama-bench that apply here.
const COLUMNS: [Column; 5] = [
    Column { title: "model", width: 30, right: false },
    Column { title: "size", width: 10, right: true },
    Column { title: "backend", width: 10, right: false },
    Column { title: "test", width: 15, right: true },
    Column { title: "t/s", width: 20, right: true },
];

/// Writes rows as they arrive, and JSON at the end.
pub struct BenchReport<'a> {
    format: MeasuredFormat,
    conditions: &'a BenchConditions,
    rows: Vec<BenchRow>,
}

impl<'a> BenchReport<'a> {
    pub fn new(format: MeasuredFormat, conditions: &'a BenchConditions) -> anyhow::Result<Self> {
        if format == MeasuredFormat::Md {
            output::lines(head(&COLUMNS))?;
        }
        Ok(Self { format, conditions, rows: Vec::new() })
    }

    pub fn row(&mut self, measured: BenchRow) -> anyhow::Result<()> {
        match self.format {
            MeasuredFormat::Md => output::lines([row(&COLUMNS, &self.cells(&measured))])?,
            MeasuredFormat::Csv => csv(&[self.record(&measured)?], self.rows.is_empty())?,
            MeasuredFormat::Json | MeasuredFormat::Svg => {}
        }
        self.rows.push(measured);
        Ok(())
    }

    pub fn end(&self) -> anyhow::Result<()> {
        match self.format {
            MeasuredFormat::Md => output::lines(self.remarks()),
            MeasuredFormat::Csv => Ok(()),
            MeasuredFormat::Json => {
                let rows = self.rows.iter().map(|row| self.record(row)).collect::<anyhow::Result<Vec<_>>>()?;
                output::lines([serde_json::to_string_pretty(&rows)?])
            }
            MeasuredFormat::Svg => {
                let about = self.conditions.setup.about();
                let measured = self.rows.iter().map(|row| row.measured(about.clone())).collect();
                output::lines([bench_chart::draw(&[(String::new(), measured)])?])
            }
        }
    }

    /// A row, preceded by the columns that are the same in all rows.
    fn record(&self, row: &BenchRow) -> anyhow::Result<Record> {
        let mut whole = record(self.conditions)?;
        whole.extend(record(row)?);
        Ok(whole)
    }

    fn cells(&self, measured: &BenchRow) -> [String; 5] {
        let setup = &self.conditions.setup;
        let figures = format!("{:.2} ± {:.2}", measured.avg_ts, measured.stddev_ts);
        let size = output::bytes(setup.model_size);
        [setup.model_type.clone(), size, setup.backends.into(), measured.test.clone(), figures]
    }

    /// The lines below the table.
    fn remarks(&self) -> Vec<String> {
        let s = self.conditions;
        let [session, first, next] = [s.session_seconds, s.first_token_seconds, s.next_token_seconds].map(|t| t * 1e3);
        let mut remarks = vec![String::new(), s.setup.sentence()];
        remarks.push(format!(
            "load: {:.2} s, after {:.2} s to open the GPU; session: {session:.1} ms; first token: {first:.1} ms; next: \
             {next:.1} ms",
            s.load_seconds, s.device_seconds
        ));
        remarks.extend(self.rows.last().map(memory));
        remarks.push(format!(
            "bandwidth: {:.1} GB/s, reads and writes of a kernel that copies {}",
            s.copy_bandwidth / 1e9,
            output::bytes(s.copy_bytes)
        ));
        let share = |row: &BenchRow| row.floor_share.map(|share| format!("{} {:.1}%", row.test, 100.0 * share));
        let shares: Vec<String> = self.rows.iter().filter_map(share).collect();
        if !shares.is_empty() {
            remarks.push(format!(
                "time to copy a token's weights and KV cache at that bandwidth, as a share of the token's time: {}",
                shares.join(", ")
            ));
        }
        remarks
    }
}

fn memory(last: &BenchRow) -> String {
    let reserved = last.gpu_memory_reserved.map(|r| format!(", {} reserved by wgpu", output::bytes(r)));
    format!(
        "GPU memory: {} in buffers at the peak{}",
        output::bytes(last.gpu_memory_peak),
        reserved.unwrap_or_default()
    )
}
