//! Writes measurements to stdout, as a Markdown table or as comma-separated values.

use super::args::OutputFormat;
use super::output;
use serde::Serialize;
use serde_json::{Map, Value};

/// A measurement: its fields by name, in order.
pub type Record = Map<String, Value>;

pub fn record(value: &impl Serialize) -> anyhow::Result<Record> {
    match serde_json::to_value(value)? {
        Value::Object(record) => Ok(record),
        other => anyhow::bail!("expected fields, found {other}"),
    }
}

/// Writes records as comma-separated values, after a line with the names of the fields if `names`.
pub fn csv(records: &[Record], names: bool) -> anyhow::Result<()> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for (index, record) in records.iter().enumerate() {
        if names && index == 0 {
            writer.write_record(record.keys())?;
        }
        writer.write_record(record.values().map(cell))?;
    }
    output::say(&String::from_utf8_lossy(&writer.into_inner()?))
}

/// The text of a value in a cell: nothing for null, and the elements of an array separated by semicolons.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(cell).collect::<Vec<_>>().join(";"),
        other => other.to_string(),
    }
}

/// Rows that are written as they are measured, or as JSON at the end.
pub struct RowReport<'a, C, R> {
    pub format: OutputFormat,
    columns: &'static [Column],
    cells: fn(&C, &R) -> Vec<String>,
    /// The fields that are the same in all rows.
    pub conditions: &'a C,
    pub rows: Vec<R>,
}

impl<'a, C: Serialize, R: Serialize> RowReport<'a, C, R> {
    pub fn new(
        format: OutputFormat,
        columns: &'static [Column],
        cells: fn(&C, &R) -> Vec<String>,
        conditions: &'a C,
    ) -> anyhow::Result<Self> {
        if format == OutputFormat::Md {
            output::lines(head(columns))?;
        }
        Ok(Self { format, columns, cells, conditions, rows: Vec::new() })
    }

    pub fn row(&mut self, measured: R) -> anyhow::Result<()> {
        match self.format {
            OutputFormat::Md => output::lines([row(self.columns, &(self.cells)(self.conditions, &measured))])?,
            OutputFormat::Csv => csv(&[self.record(&measured)?], self.rows.is_empty())?,
            OutputFormat::Json | OutputFormat::Svg => {}
        }
        self.rows.push(measured);
        Ok(())
    }

    /// Writes what follows the rows: remarks below a table, and all of JSON.
    pub fn end(&self, remarks: Vec<String>) -> anyhow::Result<()> {
        match self.format {
            OutputFormat::Md => output::lines(remarks),
            OutputFormat::Json => {
                let rows = self.rows.iter().map(|row| self.record(row)).collect::<anyhow::Result<Vec<_>>>()?;
                output::lines([serde_json::to_string_pretty(&rows)?])
            }
            OutputFormat::Csv | OutputFormat::Svg => Ok(()),
        }
    }

    /// A row, preceded by the fields that are the same in all rows.
    pub fn record(&self, row: &R) -> anyhow::Result<Record> {
        let mut whole = record(self.conditions)?;
        whole.extend(record(row)?);
        Ok(whole)
    }
}

/// A column of a Markdown table: its title, its width, and whether its cells are aligned to the right.
pub struct Column {
    pub title: &'static str,
    pub width: usize,
    pub right: bool,
}

/// The two lines above the rows of a table.
pub fn head(columns: &[Column]) -> [String; 2] {
    let titles: Vec<String> = columns.iter().map(|column| column.title.to_owned()).collect();
    let rules: Vec<String> = columns
        .iter()
        .map(|column| if column.right { "-".repeat(column.width - 1) + ":" } else { "-".repeat(column.width) })
        .collect();
    [row(columns, &titles), row(columns, &rules)]
}

pub fn row(columns: &[Column], cells: &[String]) -> String {
    let mut line = String::from("|");
    for (column, text) in columns.iter().zip(cells) {
        let text: String = text.chars().map(|c| if c == '|' || c.is_control() { ' ' } else { c }).collect();
        let width = column.width;
        line += &if column.right { format!(" {text:>width$} |") } else { format!(" {text:<width$} |") };
    }
    line
}
