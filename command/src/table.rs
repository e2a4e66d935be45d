//! Writes measurements to stdout, as a Markdown table or as comma-separated values.

use super::output;
use serde::Serialize;
use serde_json::{Map, Value};

/// A measurement: its fields by name, in order.
pub type Record = Map<String, Value>;

/// Converts a struct to a record.
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

/// A row of a table.
pub fn row(columns: &[Column], cells: &[String]) -> String {
    let mut line = String::from("|");
    for (column, text) in columns.iter().zip(cells) {
        let text: String = text.chars().map(|c| if c == '|' || c.is_control() { ' ' } else { c }).collect();
        let width = column.width;
        line += &if column.right { format!(" {text:>width$} |") } else { format!(" {text:<width$} |") };
    }
    line
}
