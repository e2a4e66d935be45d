//! Prints the results of `bench` to stdout.

use super::args::OutputFormat;
use super::bench::{BenchConditions, BenchRow};
use super::bench_chart::{self, Measured};
use super::output;
use super::table::{Column, RowReport};

/// The columns of llama-bench that apply here.
const COLUMNS: [Column; 5] = [
    Column { title: "model", width: 30, right: false },
    Column { title: "size", width: 10, right: true },
    Column { title: "backend", width: 10, right: false },
    Column { title: "test", width: 15, right: true },
    Column { title: "t/s", width: 20, right: true },
];

pub type BenchReport<'a> = RowReport<'a, BenchConditions, BenchRow>;

pub fn begin(format: OutputFormat, conditions: &BenchConditions) -> anyhow::Result<BenchReport<'_>> {
    RowReport::new(format, &COLUMNS, cells, conditions)
}

pub fn end(report: &BenchReport<'_>) -> anyhow::Result<()> {
    let BenchReport { format, conditions, rows, .. } = report;
    if *format == OutputFormat::Svg {
        let measured = rows.iter().map(|row| Ok(serde_json::from_value(report.record(row)?.into())?));
        let measured = measured.collect::<anyhow::Result<Vec<Measured>>>()?;
        return output::lines([bench_chart::draw(&[(String::new(), measured)])?]);
    }
    report.end(remarks(conditions, rows))
}

fn cells(conditions: &BenchConditions, measured: &BenchRow) -> Vec<String> {
    let setup = &conditions.setup;
    let figures = format!("{:.2} ± {:.2}", measured.avg_ts, measured.stddev_ts);
    let size = output::bytes(setup.model_size);
    vec![setup.model_type.clone(), size, setup.backends.into(), measured.test.clone(), figures]
}

/// The lines below the table.
fn remarks(s: &BenchConditions, rows: &[BenchRow]) -> Vec<String> {
    let [session, first, next] = [s.session_seconds, s.first_token_seconds, s.next_token_seconds].map(|t| t * 1e3);
    let mut remarks = vec![String::new(), s.setup.sentence()];
    remarks.push(format!(
        "load: {:.2} s, after {:.2} s to open the GPU; session: {session:.1} ms; first token: {first:.1} ms; next: \
         {next:.1} ms",
        s.load_seconds, s.device_seconds
    ));
    remarks.extend(rows.last().map(memory));
    remarks.push(format!(
        "bandwidth: {:.1} GB/s, reads and writes of a kernel that copies {}",
        s.copy_bandwidth / 1e9,
        output::bytes(s.copy_bytes)
    ));
    let share = |row: &BenchRow| row.floor_share.map(|share| format!("{} {:.1}%", row.test, 100.0 * share));
    let shares: Vec<String> = rows.iter().filter_map(share).collect();
    if !shares.is_empty() {
        remarks.push(format!(
            "time to copy a token's weights and KV cache at that bandwidth, as a share of the token's time: {}",
            shares.join(", ")
        ));
    }
    remarks
}

fn memory(last: &BenchRow) -> String {
    let reserved = last.gpu_memory_reserved.map(|r| format!(", {} reserved by wgpu", output::bytes(r)));
    format!(
        "GPU memory: {} in buffers at the peak{}",
        output::bytes(last.gpu_memory_peak),
        reserved.unwrap_or_default()
    )
}
