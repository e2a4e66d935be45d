//! What the command understands. Names are llama.cpp's where it has the thing.

mod llama;
mod measure;
mod numbers;
mod output;
mod sampling;

pub use measure::{BenchArgs, PerplexityArgs, ProfileArgs, SelftestArgs};
pub use output::{OutputArgs, OutputFormat};
pub use sampling::SamplingArgs;

use super::hardware::names;
use clap::builder::{PossibleValuesParser, RangedU64ValueParser};
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;
use wglm::kernels::CacheType;
use wglm::model::PromptOptions;
use wglm::plan::{Division, Fusions};
use wglm::quant::Arithmetic;
use wglm::{GpuOptions, LoadOptions};

const EXAMPLES: &str = "\
Examples:
  wglm run \"Tell me a story about an owl.\"       with the built-in demonstration model
  wglm run -m GLM-4.7-Flash-Q4_0.gguf -f prompt.txt
  wglm chat -m GLM-4.7-Flash-Q4_0.gguf

Environment:
  WGPU_ADAPTER_NAME, WGPU_BACKEND   as --gpu and --backend
  WGPU_POWER_PREF                   low prefers an integrated GPU; high or none does not
  RUST_LOG                          log to stderr, e.g. info or wglm=debug
  NO_COLOR                          print no colors

Options of llama.cpp that have no effect here (-ngl, -fa, -t, -b, --mlock, --no-mmap, --jinja) are
ignored with a note. An option given twice counts once, as given last.";

/// Run GLM-4.7-Flash from a GGUF file on any GPU.
///
/// Without -m, commands use the built-in demonstration model.
#[derive(Debug, Parser)]
#[command(name = "wglm", version, max_term_width = 100, args_override_self = true, after_long_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Answer one prompt
    ///
    /// The answer goes to stdout, thinking and statistics go to stderr.
    Run(RunArgs),
    /// Chat in the terminal
    ///
    /// Ctrl-C stops a reply, Ctrl-D quits.
    Chat(TalkArgs),
    /// Show a file's metadata, tensor types and memory needs (no GPU needed)
    Inspect(InspectArgs),
    /// List GPUs and what they support
    Devices(DevicesArgs),
    /// Split text into tokens
    Tokenize(TokenizeArgs),
    /// Apply the chat template to messages
    Template(TemplateArgs),
    /// Write the raw logits for given tokens
    ///
    /// Rows of little-endian f32, one per position, for comparison with other programs.
    Logits(LogitsArgs),
    /// Print the GPU steps of one token (no GPU needed)
    Plan(PlanArgs),
    /// Measure prompt and generation speed, like llama-bench
    Bench(BenchArgs),
    /// Time each kind of GPU step
    Profile(ProfileArgs),
    /// Test every GPU kernel against the CPU
    ///
    /// Each kernel runs in every weight format it has. Exits with 1 if one fails.
    Selftest(SelftestArgs),
    /// Measure perplexity on a text, like llama-perplexity
    Perplexity(PerplexityArgs),
    /// Print a shell completion script
    ///
    /// For bash, for example: wglm completions bash > ~/.local/share/bash-completion/completions/wglm
    Completions(CompletionsArgs),
    /// Print a man page
    ///
    /// For example: wglm man | man -l -
    Man(ManArgs),
}

/// The arguments of the process, and notes about those that have no effect. Wrong usage ends it.
pub fn parse() -> (Arguments, Vec<String>) {
    let translated = llama::translated(std::env::args_os()).unwrap_or_else(|error| error.exit());
    (Arguments::parse_from(translated.args), translated.notes)
}

#[derive(Debug, Args)]
pub struct DevicesArgs {
    #[command(flatten)]
    pub gpu: GpuArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    pub shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub struct ManArgs {
    /// The command to describe [default: wglm itself]
    pub command: Option<String>,
}

#[derive(Debug, Args)]
pub struct GpuArgs {
    /// Use the first GPU whose name contains NAME [env: WGPU_ADAPTER_NAME]
    #[arg(long, value_name = "NAME", help_heading = "GPU")]
    pub gpu: Option<String>,
    /// Use only these backends: metal, vulkan, dx12 [env: WGPU_BACKEND]
    #[arg(long, value_name = "LIST", help_heading = "GPU")]
    pub backend: Option<String>,
    /// Do not use subgroup operations
    #[arg(long, help_heading = "GPU")]
    pub no_subgroups: bool,
}

impl GpuArgs {
    pub fn options(&self) -> GpuOptions {
        let from_environment = GpuOptions::default();
        GpuOptions {
            adapter: self.gpu.clone().or(from_environment.adapter),
            backends: self.backend.clone().or(from_environment.backends),
            subgroups: !self.no_subgroups,
            ..from_environment
        }
    }
}

/// Arithmetic for matrix-vector products.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum ArithmeticChoice {
    /// int on GPUs that multiply four bytes at a time, float on others
    Auto,
    /// f32 activations
    Float,
    /// Activations quantized to 8 bits
    Int,
}

/// The type of the KV cache.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum CacheChoice {
    F16,
    F32,
}

/// Where options stand in the help that few people need.
const TUNING: &str = "Performance and debugging";

#[derive(Debug, Args)]
pub struct FileArgs {
    /// Model file (GGUF) [default: the demonstration model]
    #[arg(short, long, value_name = "FILE", help_heading = "Model")]
    pub model: Option<PathBuf>,
    /// Context size in tokens; 0 for the model's maximum [default: the model's maximum, at most 8192]
    #[arg(short, long = "ctx-size", value_name = "N", allow_negative_numbers = true, value_parser = numbers::whole, help_heading = "Model")]
    pub context: Option<usize>,
    /// KV cache type (also -ctk) [default: f32 if that takes at most 64 MiB, otherwise f16]
    #[arg(long, alias = "cache-type-k", value_name = "TYPE", help_heading = "Model")]
    pub cache_type: Option<CacheChoice>,
    /// Prompt batch size in tokens, up to 4096; 1 computes them one by one (also -ub)
    #[arg(long, value_name = "N", default_value_t = PromptOptions::default().chunk, value_parser = together(), help_heading = TUNING)]
    pub ubatch_size: usize,
    /// Target GPU time per submission of a prompt, in ms
    #[arg(long, value_name = "N", default_value_t = PromptOptions::default().limit.as_millis() as u64, value_parser = clap::value_parser!(u64).range(1..), help_heading = TUNING)]
    pub submission_ms: u64,
    /// Arithmetic for matrix-vector products
    #[arg(long, value_name = "KIND", default_value = "auto", help_heading = TUNING)]
    pub arithmetic: ArithmeticChoice,
    /// Use f32, f16 and bf16 weights in place, from the mapped file (Metal only; not yet tested on a Mac)
    #[arg(long, help_heading = TUNING)]
    pub zero_copy: bool,
    /// Override kernel tiling (benchmarking): a list of STEP=LANESxROWSxWORKGROUP[xCOLUMNS], e.g. moe.down=32x1x512
    #[arg(long, env = "WGLM_TILING", hide_env_values = true, value_name = "LIST", value_parser = divisions, help_heading = TUNING)]
    pub tiling: Option<Divisions>,
    /// Disable these fusions (debugging): all, or a list of norm, latent, cache, absorb, merge, round, experts
    #[arg(long, env = "WGLM_UNFUSE", hide_env_values = true, value_name = "LIST", value_parser = fusions, help_heading = TUNING)]
    pub unfuse: Option<Fusions>,
}

/// What `--tiling` asks for.
#[derive(Debug, Clone, Default)]
pub struct Divisions(Vec<Division>);

/// An empty list is none, as an empty variable is.
fn divisions(list: &str) -> Result<Divisions, String> {
    let items = list.split(',').map(str::trim).filter(|item| !item.is_empty());
    items.map(|item| item.parse().map_err(accepted)).collect::<Result<_, _>>().map(Divisions)
}

fn fusions(list: &str) -> Result<Fusions, String> {
    Fusions::without(list).map_err(accepted)
}

/// What an argument may be; clap says which one it is, and what was found.
fn accepted(error: wglm::Error) -> String {
    match error {
        wglm::Error::Argument { expected, .. } => format!("expected {expected}"),
        other => other.to_string(),
    }
}

/// As many as there are plans for.
fn together() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=PromptOptions::MOST as u64)
}

impl FileArgs {
    pub fn options(&self) -> LoadOptions {
        let cache = self.cache_type.map(|choice| match choice {
            CacheChoice::F16 => CacheType::F16,
            CacheChoice::F32 => CacheType::F32,
        });
        let arithmetic = match self.arithmetic {
            ArithmeticChoice::Auto => None,
            ArithmeticChoice::Float => Some(Arithmetic::Float),
            ArithmeticChoice::Int => Some(Arithmetic::Int),
        };
        // Of the one model that a command loads.
        let divisions = Vec::leak(self.tiling.clone().unwrap_or_default().0);
        let (fusions, zero_copy) = (self.unfuse.unwrap_or_default(), self.zero_copy);
        let prompt = PromptOptions { chunk: self.ubatch_size, limit: Duration::from_millis(self.submission_ms) };
        let context = self.context;
        LoadOptions { context, cache, arithmetic, fusions, divisions, zero_copy, prompt, ..LoadOptions::default() }
    }
}

#[derive(Debug, Args)]
pub struct ModelArgs {
    #[command(flatten)]
    pub file: FileArgs,
    #[command(flatten)]
    pub gpu: GpuArgs,
    /// Check GPU results against the CPU at load, and avoid kernels that are wrong
    #[arg(long, value_name = "WHEN", default_value = "auto", help_heading = TUNING)]
    pub check: CheckChoice,
}

/// When kernels are checked as a model is loaded.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum CheckChoice {
    /// On the first load with this model, GPU, driver and version
    Auto,
    /// On every load
    Always,
    /// Not at all
    Never,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    On,
    Off,
}

#[derive(Debug, Args)]
pub struct ReplyArgs {
    /// Let the model think before it answers
    #[arg(long, value_name = "ON|OFF", default_value = "on")]
    pub reasoning: Switch,
    /// System prompt (also -sys)
    #[arg(long, value_name = "TEXT")]
    pub system_prompt: Option<String>,
}

/// What it takes to talk with a model.
#[derive(Debug, Args)]
pub struct TalkArgs {
    #[command(flatten)]
    pub reply: ReplyArgs,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub sampling: SamplingArgs,
}

#[derive(Debug, Args)]
pub struct RunArgs {
    /// Prompt; - reads stdin
    #[arg(value_name = "PROMPT", conflicts_with_all = ["prompt", "file"])]
    pub text: Option<String>,
    /// Prompt; - reads stdin
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    pub prompt: Option<String>,
    /// Read the prompt from a file
    #[arg(short, long, value_name = "FILE", conflicts_with = "prompt")]
    pub file: Option<PathBuf>,
    /// Continue the prompt as plain text, without the chat template
    #[arg(long, conflicts_with_all = ["reasoning", "system_prompt"])]
    pub raw: bool,
    #[command(flatten)]
    pub talk: TalkArgs,
}

#[derive(Debug, Args)]
pub struct InspectArgs {
    /// GGUF file [default: the demonstration model]
    pub file: Option<PathBuf>,
    /// The same, as for other commands
    #[arg(short, long, value_name = "FILE", conflicts_with = "file")]
    pub model: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct TokenizeArgs {
    /// Text; - reads stdin
    #[arg(value_name = "TEXT", allow_hyphen_values = true)]
    pub text: String,
    /// Model file (GGUF) [default: the demonstration model]
    #[arg(short, long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Print the token ids as a JSON array
    #[arg(long, visible_alias = "ids")]
    pub json: bool,
    /// Treat the names of special tokens as plain text
    #[arg(long)]
    pub no_parse_special: bool,
}

#[derive(Debug, Args)]
pub struct TemplateArgs {
    /// Model file (GGUF) [default: the demonstration model]
    #[arg(short, long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// JSON array of messages with role and content; - reads stdin
    #[arg(long, value_name = "FILE")]
    pub messages: PathBuf,
    /// JSON array of tools; - reads stdin
    #[arg(long, value_name = "FILE")]
    pub tools: Option<PathBuf>,
    /// Let the model think [default: up to the template]
    #[arg(long, value_name = "ON|OFF")]
    pub reasoning: Option<Switch>,
    /// Omit the start of the assistant's reply
    #[arg(long)]
    pub no_generation_prompt: bool,
}

#[derive(Debug, Args)]
#[command(mut_arg("context", |arg| arg.help("Context size in tokens; 0 for the model's maximum [default: room for all tokens]")))]
pub struct LogitsArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// Token ids, little-endian i32; - reads stdin
    #[arg(long, value_name = "FILE")]
    pub tokens: PathBuf,
    /// Output file, little-endian f32; - writes to stdout
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Positions to write, counted from 0 [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', action = ArgAction::Set)]
    pub positions: Option<Vec<usize>>,
}

#[derive(Debug, Args)]
pub struct PlanArgs {
    #[command(flatten)]
    pub file: FileArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Count KV cache traffic with N tokens in the cache
    #[arg(short, long, value_name = "N", default_value_t = 0)]
    pub depth: u64,
    /// Plan for a GPU without subgroup operations
    #[arg(long)]
    pub no_subgroups: bool,
    /// Predict the speed on a GPU, present or not: all, m3-pro, h100, ... (a wrong name lists them)
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(names()), hide_possible_values = true)]
    pub device: Option<String>,
    /// Show the full name of each kernel's shader variant
    #[arg(short, long)]
    pub verbose: bool,
}
