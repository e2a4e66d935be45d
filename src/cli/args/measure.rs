//! Arguments of the commands that measure and test.

use super::{GpuArgs, ModelArgs};
use clap::{Args, ValueEnum};

/// How measurements are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// A table for people
    Md,
    /// A line a row, for spreadsheets
    Csv,
    /// Everything, for programs
    Json,
}

#[derive(Debug, Args)]
pub struct BenchArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// Prompt lengths to measure; 0 for none
    #[arg(short = 'p', long, value_name = "LIST", value_delimiter = ',', default_value = "512")]
    pub n_prompt: Vec<usize>,
    /// Numbers of tokens to generate; 0 for none
    #[arg(short = 'n', long, value_name = "LIST", value_delimiter = ',', default_value = "128")]
    pub n_gen: Vec<usize>,
    /// Tokens already in the cache
    #[arg(short = 'd', long, value_name = "LIST", value_delimiter = ',', default_value = "0")]
    pub n_depth: Vec<usize>,
    /// Repetitions
    #[arg(short, long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub repetitions: u32,
    /// How the results are written
    #[arg(short, long, value_name = "FORMAT", default_value = "md")]
    pub output: OutputFormat,
    /// Measure from the first run of every test on
    #[arg(long)]
    pub no_warmup: bool,
}

#[derive(Debug, Args)]
pub struct ProfileArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// Tokens of a prompt to time together; 0 for a token of a reply
    #[arg(short = 'p', long, value_name = "N", default_value_t = 0)]
    pub n_prompt: usize,
    /// Tokens already in the cache
    #[arg(short = 'd', long, value_name = "N", default_value_t = 0)]
    pub depth: usize,
    /// Times to do so; the medians are shown
    #[arg(short, long, value_name = "N", default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..))]
    pub repetitions: u32,
    /// How the results are written
    #[arg(short, long, value_name = "FORMAT", default_value = "md")]
    pub output: OutputFormat,
}

#[derive(Debug, Args)]
pub struct SelftestArgs {
    #[command(flatten)]
    pub gpu: GpuArgs,
    /// Test only the kernels whose name contains this
    #[arg(short, long, value_name = "NAME")]
    pub kernel: Option<String>,
    /// How the results are written
    #[arg(short, long, value_name = "FORMAT", default_value = "md")]
    pub output: OutputFormat,
    /// What the bounds are multiplied by: with 0 every rounding is an error, which shows that errors are seen
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, hide = true)]
    pub bounds: f64,
}
