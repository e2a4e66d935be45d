//! Arguments of the commands that measure and test.

use super::choice::choice;
use super::model::CACHE_TYPES;
use super::numbers::{OrNone, above_zero, from_zero, positive, probability, some, whole};
use super::output::drawable;
use super::sampling::KINDS;
use super::{GpuArgs, ModelArgs, OutputArgs, OutputFormat};
use clap::{ArgAction, Args};
use std::path::PathBuf;
use wglm_engine::{CacheType, DraftKind, Speculation};

#[derive(Debug, Args)]
#[command(mut_arg("context", |arg| arg.help("Context size in tokens [default: as many as each test needs]")), mut_arg("output", drawable))]
pub struct BenchArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// Prompt lengths to measure, in tokens; 0 for none
    #[arg(short = 'p', long, value_name = "LIST", value_delimiter = ',', allow_negative_numbers = true, value_parser = whole::<usize>, default_value = "512", action = ArgAction::Set)]
    pub n_prompt: Vec<usize>,
    /// Numbers of tokens to generate; 0 for none
    #[arg(short = 'n', long, value_name = "LIST", value_delimiter = ',', allow_negative_numbers = true, value_parser = whole::<usize>, default_value = "128", action = ArgAction::Set)]
    pub n_gen: Vec<usize>,
    /// Numbers of tokens already in the KV cache before a test
    #[arg(short = 'd', long, value_name = "LIST", value_delimiter = ',', allow_negative_numbers = true, value_parser = whole::<usize>, default_value = "0", action = ArgAction::Set)]
    pub n_depth: Vec<usize>,
    /// Numbers of conversations that generate tokens side by side, in the same steps
    #[arg(long, value_name = "LIST", value_delimiter = ',', allow_negative_numbers = true, value_parser = positive::<u32>, default_value = "1", action = ArgAction::Set)]
    pub sessions: Vec<u32>,
    /// Repetitions of each test
    #[arg(short, long, value_name = "N", default_value_t = 5, allow_negative_numbers = true, value_parser = positive::<u32>)]
    pub repetitions: u32,
    #[command(flatten)]
    pub output: OutputArgs,
    /// Draw results saved with -o json or -o csv, side by side, instead of measuring; with -o svg
    #[arg(long, value_name = "FILES", value_delimiter = ',', action = ArgAction::Set)]
    pub from: Vec<PathBuf>,
    /// Skip the warmup run before each test
    #[arg(long)]
    pub no_warmup: bool,
    /// Sample tokens at this temperature, with the seed 1, instead of taking the most likely ones
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = from_zero)]
    pub temp: Option<f32>,
    /// Speculative decoding while generating [default: off, or mtp with --assume-acceptance]
    #[arg(long, value_name = "KIND", value_parser = choice(KINDS))]
    pub speculate: Option<DraftKind>,
    /// Accept drafts at random, to measure the cost of steps on a model with random weights: the fractions of steps in
    /// which the first draft, the first two, … are right, such as 0.83,0.65,0.49. With --sessions, each step has that
    /// many drafts per conversation; conversations and drafts may total 32 rows. With --speculate lookup, the drafts
    /// stand in for text look-ups, so the model needs no multi-token-prediction block and none runs
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = probability, action = ArgAction::Set)]
    pub assume_acceptance: Vec<f32>,
}

impl BenchArgs {
    /// Checks combinations of options.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self) -> Result<(), String> {
        let lengths = self.n_prompt.iter().chain(&self.n_gen);
        if self.from.is_empty() && lengths.copied().all(|length| length == 0) {
            return Err("-p 0 -n 0 leaves nothing to measure; give one of them a length".into());
        }
        if !self.from.is_empty() && self.output.format() != OutputFormat::Svg {
            return Err("--from: requires -o svg".into());
        }
        if !self.assume_acceptance.is_sorted_by(|before, after| before >= after) {
            return Err("--assume-acceptance: expected fractions in descending order, because the \
                        first two drafts cannot be right more often than the first one"
                .into());
        }
        Ok(())
    }

    /// How tokens are guessed.
    pub fn speculation(&self) -> Speculation {
        let usual = if self.assume_acceptance.is_empty() { DraftKind::Off } else { DraftKind::Mtp };
        Speculation { kind: self.speculate.unwrap_or(usual), most: None }
    }

    /// The part of a generating test's name that says how it generates.
    pub fn generation_name(&self) -> String {
        let drawn = self.temp.map_or(String::new(), |temperature| format!(" at temperature {temperature}"));
        let name = match self.speculation().kind {
            DraftKind::Off => return drawn,
            DraftKind::Lookup => drawn + " lookup",
            DraftKind::Mtp => drawn + " mtp",
            _ => drawn + " auto",
        };
        match self.assume_acceptance.as_slice() {
            [] => name,
            parts => {
                let parts: Vec<String> = parts.iter().map(f32::to_string).collect();
                format!("{name}, assuming {}", parts.join("/"))
            }
        }
    }
}

#[derive(Debug, Args)]
#[command(mut_arg("context", |arg| arg.help("Context size in tokens [default: as many as needed]")), mut_arg("output", drawable))]
pub struct ProfileArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// Profile a prompt batch of N tokens; 0 profiles one generated token
    #[arg(short = 'p', long, value_name = "N", default_value_t = 0, allow_negative_numbers = true, value_parser = whole::<usize>)]
    pub n_prompt: usize,
    /// Profile a step that verifies N drafts of the multi-token-prediction block, and predicts N more
    #[arg(long, value_name = "N", conflicts_with = "n_prompt", allow_negative_numbers = true, value_parser = positive::<u32>)]
    pub drafts: Option<u32>,
    /// Tokens already in the KV cache
    #[arg(short = 'd', long, value_name = "N", default_value_t = 0, allow_negative_numbers = true, value_parser = whole::<usize>)]
    pub depth: usize,
    /// Repetitions; the medians are shown
    #[arg(short, long, value_name = "N", default_value_t = 11, allow_negative_numbers = true, value_parser = positive::<u32>)]
    pub repetitions: u32,
    #[command(flatten)]
    pub output: OutputArgs,
    /// Show the full name of each kernel's shader variant
    #[arg(short, long)]
    pub verbose: bool,
}

#[derive(Debug, Args)]
#[command(mut_arg("tuning", |arg| arg.help("Write the result to FILE; off to write nothing [default: the file that all commands read]")))]
pub struct TuneArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// Time limit in seconds [default: 60 on a fast GPU, up to 300 on a slow one]
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, value_parser = above_zero)]
    pub budget: Option<f32>,
    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Debug, Args)]
pub struct SelftestArgs {
    #[command(flatten)]
    pub gpu: GpuArgs,
    /// Test only kernels whose name contains NAME
    #[arg(short, long, value_name = "NAME")]
    pub kernel: Option<String>,
    #[command(flatten)]
    pub output: OutputArgs,
    /// Multiply the error bounds by this factor; with 0 every rounding is an error, which shows that errors are
    /// detected
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, hide = true)]
    pub bounds: f64,
}

#[derive(Debug, Args)]
#[command(mut_arg("context", |arg| arg.value_parser(window).help("Tokens per window; 0 for the model's maximum context [default: 512]")))]
pub struct PerplexityArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// Text file; - reads stdin
    #[arg(short, long, value_name = "FILE")]
    pub file: PathBuf,
    /// Maximum number of windows; -1 for all
    #[arg(long, value_name = "N", default_value = "-1", allow_negative_numbers = true, value_parser = some)]
    pub chunks: OrNone<usize>,
    /// Start a window every N tokens and score its last N; 0 for adjacent windows whose second half is scored
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true, value_parser = whole::<usize>)]
    pub ppl_stride: usize,
    /// Also compute with a KV cache of this type, and report the KL divergence from its predictions
    #[arg(long, value_name = "TYPE", value_parser = choice(CACHE_TYPES))]
    pub kl_divergence: Option<CacheType>,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Parses the length of a window, which must leave at least one token to be scored.
fn window(text: &str) -> Result<usize, String> {
    match whole(text)? {
        1 | 2 => Err("expected 0 or at least 3 tokens".into()),
        tokens => Ok(tokens),
    }
}
