//! Arguments for the format of results.

use clap::{Args, ValueEnum};

/// The form in which measurements are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// A Markdown table
    Md,
    /// Comma-separated values
    Csv,
    /// JSON, with every field
    Json,
}

/// The form in which measurements are written or drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MeasuredFormat {
    /// A Markdown table
    Md,
    /// Comma-separated values
    Csv,
    /// JSON, with every field
    Json,
    /// A picture
    Svg,
}

#[derive(Debug, Args)]
pub struct OutputArgs {
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "md", overrides_with = "json")]
    output: OutputFormat,
    /// Print JSON: short for -o json
    #[arg(long, overrides_with = "output")]
    json: bool,
}

impl OutputArgs {
    /// The format that was requested last.
    pub fn format(&self) -> OutputFormat {
        if self.json { OutputFormat::Json } else { self.output }
    }
}

/// The same for results that can be drawn.
#[derive(Debug, Args)]
pub struct MeasuredOutputArgs {
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "md", overrides_with = "json")]
    output: MeasuredFormat,
    /// Print JSON: short for -o json
    #[arg(long, overrides_with = "output")]
    json: bool,
}

impl MeasuredOutputArgs {
    /// The format that was requested last.
    pub fn format(&self) -> MeasuredFormat {
        if self.json { MeasuredFormat::Json } else { self.output }
    }
}
