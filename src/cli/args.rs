//! What the command understands. Names are llama.cpp's where it has the thing.

mod measure;
mod sampling;

pub use measure::{BenchArgs, OutputFormat, ProfileArgs, SelftestArgs};
pub use sampling::SamplingArgs;

use super::hardware::names;
use super::perplexity::PerplexityArgs;
use clap::builder::{PossibleValuesParser, RangedU64ValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use wglm::kernels::CacheType;
use wglm::model::PromptOptions;
use wglm::plan::{Division, Fusions};
use wglm::quant::Arithmetic;
use wglm::{GpuOptions, LoadOptions};

/// GLM-4.7-Flash from a GGUF file on any GPU.
///
/// Without -m the built-in demonstration model answers. The environment's WGPU_BACKEND,
/// WGPU_ADAPTER_NAME, WGPU_POWER_PREF, RUST_LOG and NO_COLOR are heeded.
#[derive(Debug, Parser)]
#[command(name = "wglm", version, max_term_width = 100)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Answers one prompt: the answer goes to stdout, thinking and everything else to stderr.
    Run(RunArgs),
    /// Holds a conversation. Ctrl-C stops a reply, Ctrl-D ends.
    Chat(TalkArgs),
    /// Tells what a file holds and what it needs, without a GPU.
    Inspect(InspectArgs),
    /// Lists the GPU adapters.
    Devices(GpuArgs),
    /// Cuts text into tokens.
    Tokenize(TokenizeArgs),
    /// Renders messages with the file's chat template.
    Template(TemplateArgs),
    /// Writes the logits after given tokens: little-endian f32, a row a position.
    Logits(LogitsArgs),
    /// Prints the steps of one token, without a GPU, from the file's header alone.
    Plan(PlanArgs),
    /// Measures prompt and generation speed, in llama-bench's form.
    Bench(BenchArgs),
    /// Times every kind of step of a token on the GPU.
    Profile(ProfileArgs),
    /// Tests every kernel in every format on the GPU, against the CPU; fails if one does.
    Selftest(SelftestArgs),
    /// Tells how well the model foretells a text, as llama.cpp counts it.
    Perplexity(PerplexityArgs),
}

/// llama.cpp spells some long names with one dash.
pub fn with_long_names(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let long = |arg: OsString| match arg.to_str() {
        Some("-sys") => OsString::from("--system-prompt"),
        Some("-ctk") => OsString::from("--cache-type"),
        Some("-ub") => OsString::from("--ubatch-size"),
        _ => arg,
    };
    args.into_iter().map(long).collect()
}

#[derive(Debug, Args)]
pub struct GpuArgs {
    /// Use the adapter whose name contains this (also WGPU_ADAPTER_NAME)
    #[arg(long, value_name = "NAME", help_heading = "GPU")]
    pub gpu: Option<String>,
    /// Use these backends: metal, vulkan, dx12 (also WGPU_BACKEND)
    #[arg(long, value_name = "LIST", help_heading = "GPU")]
    pub backend: Option<String>,
    /// Do without subgroup operations
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

/// In what matrix-vector products multiply.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum ArithmeticChoice {
    /// What suits the GPU: int where it multiplies four bytes at a time, float elsewhere
    Auto,
    /// f32 activations
    Float,
    /// Activations rounded to bytes
    Int,
}

/// What the cache holds.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum CacheChoice {
    F16,
    F32,
}

#[derive(Debug, Args)]
pub struct FileArgs {
    /// The model: a GGUF file [default: the demonstration model]
    #[arg(short, long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Tokens of context; 0 for what the model was made for [default: that, at most 8192]
    #[arg(short, long = "ctx-size", value_name = "N", allow_negative_numbers = true)]
    pub context: Option<usize>,
    /// What the cache holds [default: f32 while it is small, f16 beyond]
    #[arg(long, value_name = "TYPE")]
    pub cache_type: Option<CacheChoice>,
    /// In what matrix-vector products multiply
    #[arg(long, value_name = "KIND", default_value = "auto")]
    pub arithmetic: ArithmeticChoice,
    /// Compute these apart, to find an error by halving: all, or a list of norm, latent, cache, absorb, merge,
    /// round, experts
    #[arg(long, env = "WGLM_UNFUSE", value_name = "LIST", value_parser = Fusions::without)]
    pub unfuse: Option<Fusions>,
    /// Divide these products otherwise, to measure: a list of STEP=LANESxROWSxWORKGROUP[xCOLUMNS], as
    /// moe.down=32x1x512
    #[arg(long, env = "WGLM_TILING", value_name = "LIST", value_delimiter = ',')]
    pub tiling: Vec<Division>,
    /// Use weights in f32, f16 and bf16 where they lie in the file: on Metal, and not run on a Mac yet
    #[arg(long)]
    pub zero_copy: bool,
    /// Tokens of a prompt to compute together; 1 for token by token (also -ub)
    #[arg(long, value_name = "N", default_value_t = PromptOptions::default().chunk, value_parser = together())]
    pub ubatch_size: usize,
    /// Milliseconds that a part of a prompt keeps the GPU, about
    #[arg(long, value_name = "N", default_value_t = PromptOptions::default().limit.as_millis() as u64)]
    pub submission_ms: u64,
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
        let divisions = Vec::leak(self.tiling.clone()); // of the one model that a command loads
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
    /// Check on the CPU what the GPU computes, and do without what it gets wrong
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub check: CheckChoice,
}

/// When kernels are checked as a model is loaded.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum CheckChoice {
    /// The first time that the model runs on the GPU, with its driver and this version
    Auto,
    Always,
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
    /// The system's message (also -sys)
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
    /// The prompt; - reads it from stdin
    #[arg(value_name = "PROMPT", conflicts_with_all = ["prompt", "file"])]
    pub text: Option<String>,
    /// The prompt; - reads it from stdin
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    pub prompt: Option<String>,
    /// A file with the prompt
    #[arg(short, long, value_name = "FILE", conflicts_with = "prompt")]
    pub file: Option<PathBuf>,
    /// Continue the prompt as it is, without the chat template
    #[arg(long, conflicts_with_all = ["reasoning", "system_prompt"])]
    pub raw: bool,
    #[command(flatten)]
    pub talk: TalkArgs,
}

#[derive(Debug, Args)]
pub struct InspectArgs {
    /// The file [default: the demonstration model]
    pub file: Option<PathBuf>,
    /// The file, as other commands take it
    #[arg(short, long, value_name = "FILE", conflicts_with = "file")]
    pub model: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct TokenizeArgs {
    /// The text; - reads it from stdin
    #[arg(value_name = "TEXT", allow_hyphen_values = true)]
    pub text: String,
    /// The model: a GGUF file [default: the demonstration model]
    #[arg(short, long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Print only the ids, as a JSON array
    #[arg(long)]
    pub ids: bool,
    /// Take the names of special tokens for plain text
    #[arg(long)]
    pub no_parse_special: bool,
}

#[derive(Debug, Args)]
pub struct TemplateArgs {
    /// The model: a GGUF file [default: the demonstration model]
    #[arg(short, long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// A JSON array of messages with role and content; - reads it from stdin
    #[arg(long, value_name = "FILE")]
    pub messages: PathBuf,
    /// A JSON array of tools
    #[arg(long, value_name = "FILE")]
    pub tools: Option<PathBuf>,
    /// Whether the prompt lets the model think [default: as the template has it]
    #[arg(long, value_name = "ON|OFF")]
    pub reasoning: Option<Switch>,
    /// Leave out the opening of the assistant's turn
    #[arg(long)]
    pub no_generation_prompt: bool,
}

#[derive(Debug, Args)]
pub struct LogitsArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// Token ids: little-endian i32
    #[arg(long, value_name = "FILE")]
    pub tokens: PathBuf,
    /// Where the logits go: little-endian f32
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// The positions wanted, from 0 [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub positions: Option<Vec<usize>>,
}

#[derive(Debug, Args)]
pub struct PlanArgs {
    #[command(flatten)]
    pub file: FileArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Count the cache's bytes for a token at this depth
    #[arg(short, long, value_name = "N", default_value_t = 0)]
    pub depth: u64,
    /// Plan for an adapter without subgroup operations
    #[arg(long)]
    pub no_subgroups: bool,
    /// Predict the tokens a second on a GPU that need not be there; all for every one known
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(names()), hide_possible_values = true)]
    pub device: Option<String>,
}
