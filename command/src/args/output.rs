//! Arguments for the format of results.

use super::choice::{Choice, choice};
use clap::{Arg, Args};

/// The form in which measurements are written or drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputFormat {
    Md,
    Csv,
    Json,
    Svg,
}

static FORMATS: [Choice<OutputFormat>; 4] = [
    ("md", "A Markdown table", OutputFormat::Md),
    ("csv", "Comma-separated values", OutputFormat::Csv),
    ("json", "JSON, with every field", OutputFormat::Json),
    ("svg", "A chart", OutputFormat::Svg),
];

#[derive(Debug, Args)]
pub struct OutputArgs {
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "md", value_parser = choice(&FORMATS[..3]), overrides_with = "json")]
    output: OutputFormat,
    /// Print JSON: short for -o json
    #[arg(long, overrides_with = "output")]
    json: bool,
}

/// The argument `output` for results that can be drawn as well.
pub fn drawable(output: Arg) -> Arg {
    output.value_parser(choice(&FORMATS))
}

impl OutputArgs {
    /// The format that was requested last.
    pub fn format(&self) -> OutputFormat {
        if self.json { OutputFormat::Json } else { self.output }
    }
}
