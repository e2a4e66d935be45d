//! Arguments of `report`.

use super::GpuArgs;
use super::numbers::from_zero;
use clap::{ArgAction, Args, ValueEnum};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct ReportArgs {
    /// A model to measure as well: a GGUF file, or a name that `wglm models` lists
    #[arg(short, long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// The file to write [default: wglm-report.txt, with a number if that exists]
    #[arg(short, long = "output", value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Run only these stages, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', action = ArgAction::Set)]
    pub only: Vec<StageName>,
    /// Write every compiled shader, in Metal's shading language, to a folder
    #[arg(long, value_name = "DIR")]
    pub shaders: Option<PathBuf>,
    /// Time limit per stage in seconds; a stage skips what it has no time for [default: 30 to 200, and 600 with -m]
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, value_parser = from_zero)]
    pub seconds: Option<f32>,
    #[command(flatten)]
    pub gpu: GpuArgs,
    /// Maximum seconds without output from a stage, for tests
    #[arg(long, hide = true)]
    pub silence: Option<f32>,
    /// The stage that runs in this process, and its first item
    #[arg(long, hide = true)]
    pub stage: Option<StageName>,
    #[arg(long, hide = true, default_value_t = 0)]
    pub from: usize,
}

/// A stage of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StageName {
    System,
    Bandwidth,
    Dispatches,
    Answer,
    Pipelines,
    Selftest,
    Verdict,
    Profile,
    Pairs,
    Bench,
    /// For tests of crashes
    #[value(hide = true)]
    Crash,
    /// For tests of hangs
    #[value(hide = true)]
    Hang,
}
