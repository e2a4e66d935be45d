//! The arguments of the command. Options that llama.cpp also has have the same names here.

mod choice;
mod constraint;
mod llama;
mod measure;
mod model;
mod numbers;
mod output;
mod report;
mod sampling;
#[cfg(feature = "serve")]
mod serve;
mod suggest;
mod talk;

pub use constraint::ConstraintArgs;
pub use measure::{BenchArgs, PerplexityArgs, ProfileArgs, SelftestArgs, TuneArgs};
pub use model::{AdapterArgs, FileArgs, GpuArgs, ModelArgs, NeedsArgs, TuningArg};
pub use output::{OutputArgs, OutputFormat};
pub use report::{ReportArgs, StageName};
pub use sampling::SamplingArgs;
#[cfg(feature = "serve")]
pub use serve::ServeArgs;
pub use talk::{ChatArgs, RunArgs, ShowArgs, TalkArgs};

use super::hardware::names;
use super::output::usage;
use clap::builder::PossibleValuesParser;
use clap::error::ErrorKind;
use clap::{ArgAction, Args, CommandFactory, Parser, Subcommand, ValueEnum};
#[cfg(feature = "download")]
use numbers::connections;
use numbers::whole;
use std::path::{Path, PathBuf};
#[cfg(feature = "download")]
use wglm_engine::catalog::ModelName;

const EXAMPLES: &str = "\
Examples:
  wglm run \"Tell me a story about an owl.\"       with the built-in demonstration model
  wglm run -m GLM-4.7-Flash-Q4_0.gguf -f prompt.txt
  wglm chat -m GLM-4.7-Flash-Q4_0.gguf
  wglm serve -m GLM-4.7-Flash-Q4_0.gguf           a web page and APIs at http://127.0.0.1:8080
  wglm chat -m unsloth/GLM-4.7-Flash-GGUF         with a model that `wglm pull` has downloaded

Environment:
  WGPU_ADAPTER_NAME, WGPU_BACKEND   like --gpu and --backend
  WGPU_POWER_PREF                   low prefers an integrated GPU; high or none does not
  RUST_LOG                          log to stderr, e.g. info or wglm=debug; serve logs warnings without it
  NO_COLOR                          print no colors

Options of llama.cpp that have no effect here (-ngl, -fa, -t, -b, --mlock, --no-mmap, --jinja) are \
ignored with a note. If an option is given twice, the last one counts, except for those that can be repeated: -l and \
-r, and with serve also --api-key, --cors and --allow-host.";

/// Run GLM-4.7-Flash from a GGUF file on the GPU, through Metal, Vulkan or DirectX 12.
///
/// So far it has run on NVIDIA's H100 and H200 and on Mesa's software driver, through Vulkan, but not yet on a Mac or
/// on Windows.
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
    #[command(after_help = talk::RUN_STATUS)]
    Run(RunArgs),
    /// Chat in the terminal
    ///
    /// Ctrl-C stops a reply, Ctrl-D quits.
    #[command(after_help = talk::CHAT_STATUS)]
    Chat(ChatArgs),
    /// Serve the model over HTTP: OpenAI-, Anthropic-, Ollama- and llama.cpp-compatible APIs and a web page
    ///
    /// Listens on http://127.0.0.1:8080, for programs on this machine only, unless options say otherwise. Ctrl-C lets
    /// running replies finish, a second one cancels them.
    #[cfg(feature = "serve")]
    Serve(Box<ServeArgs>),
    /// Download a model from Hugging Face
    ///
    /// OWNER/REPO:QUANT names a model of a repository, OWNER/REPO the one that suits this machine. An interrupted
    /// download is resumed. Files are stored in the Hugging Face cache, and their path is printed. With --verify
    /// nothing is downloaded: the files on this machine are read, and the exit status is 1 if one is wrong or missing.
    /// Sizes are in MiB (2^20 bytes) and GiB (2^30 bytes), as in llama.cpp. A download must leave 64 MiB of the disk
    /// free.
    #[cfg(feature = "download")]
    #[command(after_help = PULL_ENVIRONMENT)]
    Pull(PullArgs),
    /// List the models on this machine, and which of them fit
    ///
    /// Lists the models in the Hugging Face cache, which `wglm pull` uses, and those of LM Studio, llama.cpp and
    /// Ollama. -m accepts their names. Sizes are in MiB (2^20 bytes) and GiB (2^30 bytes), as in llama.cpp.
    Models(ModelsArgs),
    /// Show a file's metadata, tensor types and memory needs
    ///
    /// The GPU memory is that of the model and one conversation on this machine's GPU, or on a typical one if there is
    /// none. Sizes are in MiB (2^20 bytes) and GiB (2^30 bytes), as in llama.cpp.
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
    /// Find the fastest settings for a model on this GPU, and save them
    ///
    /// Times whole tokens and prompts with the work divided in different ways, and saves the fastest choices in a file
    /// that all commands read. Ctrl-C stops and saves the results so far.
    Tune(TuneArgs),
    /// Test every GPU kernel against the CPU
    ///
    /// Each kernel runs in all of its weight formats. Exits with 1 if one fails.
    Selftest(SelftestArgs),
    /// Collect information about wglm on this GPU, for a bug report
    ///
    /// Tests and measures for some minutes, and writes a file to attach to an issue. Each stage runs in its own
    /// process, so a crash or a hang of the driver loses nothing. Ctrl-C ends the running stage and writes the summary.
    Report(ReportArgs),
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

/// Parses the arguments of the process, and returns them with notes about those that have no effect. Wrong usage ends
/// the process.
pub fn parse() -> (Arguments, Vec<String>) {
    let translated = llama::translated(std::env::args_os()).unwrap_or_else(|error| usage(&error));
    let parsed = Arguments::try_parse_from(translated.args).map_err(suggest::with_tip);
    let arguments = parsed.unwrap_or_else(|error| usage(&error));
    if let Err((name, wrong)) = arguments.command.check() {
        let mut root = Arguments::command();
        root.build();
        let command = root.find_subcommand(name).unwrap_or(&root).clone();
        usage(&command.clone().error(ErrorKind::ArgumentConflict, wrong));
    }
    (arguments, translated.notes)
}

impl Command {
    /// Checks combinations of options.
    ///
    /// # Errors
    /// The name of the command, and the error.
    fn check(&self) -> Result<(), (&'static str, String)> {
        let is_stdin = |path: &PathBuf| path == Path::new("-");
        match self {
            Self::Bench(args) => args.check().map_err(|wrong| ("bench", wrong)),
            Self::Template(TemplateArgs { messages, tools: Some(tools), .. })
                if is_stdin(messages) && is_stdin(tools) =>
            {
                Err(("template", "--messages and --tools cannot both read stdin".into()))
            }
            Self::Run(args) => args.check().map_err(|wrong| ("run", wrong)),
            _ => Ok(()),
        }
    }
}

#[derive(Debug, Args)]
pub struct DevicesArgs {
    #[command(flatten)]
    pub adapter: AdapterArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[cfg(feature = "download")]
#[derive(Debug, Args)]
pub struct PullArgs {
    /// The repository, or one of its models: OWNER/REPO or OWNER/REPO:QUANT
    pub name: ModelName,
    /// Only list the models of the repository, and which of them fit
    #[arg(short, long)]
    pub list: bool,
    /// Compare the files on this machine with the hashes that the hub lists, and download nothing
    #[arg(long, conflicts_with = "list")]
    pub verify: bool,
    /// Branch, tag or commit
    #[arg(long, value_name = "NAME", default_value = "main")]
    pub revision: String,
    /// Connections for a large file, at most 16 [default: 4]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = connections)]
    pub connections: Option<u32>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub needs: NeedsArgs,
}

/// The text after the help of `pull`.
#[cfg(feature = "download")]
const PULL_ENVIRONMENT: &str = "\
Environment:
  HF_TOKEN                              for private and gated repositories
  HF_HUB_OFFLINE=1                      contact no server, and use models on this machine
  HF_ENDPOINT                           a server other than https://huggingface.co
  HF_HUB_CACHE, HF_HOME                 where files are stored
  HTTPS_PROXY, ALL_PROXY, NO_PROXY      proxies";

#[derive(Debug, Args)]
#[command(subcommand_precedence_over_arg = true)]
pub struct ModelsArgs {
    #[cfg(feature = "download")]
    #[command(subcommand)]
    pub command: Option<ModelsCommand>,
    /// Compare the files with the hashes in their names, without the hub
    ///
    /// Hugging Face's cache and Ollama name files by their hashes. Exits with 1 if a file is wrong or missing.
    #[cfg(feature = "download")]
    #[arg(long)]
    pub verify: bool,
    /// With --verify: the model to compare, or all of a repository [default: all models]
    #[cfg(feature = "download")]
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Show architecture and format too, and names in full
    #[arg(short, long)]
    pub verbose: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub needs: NeedsArgs,
}

impl ModelsArgs {
    /// Whether the result is JSON on stdout.
    pub fn is_json(&self) -> bool {
        #[cfg(feature = "download")]
        if let Some(ModelsCommand::Rm(args)) = &self.command {
            return self.json || args.json;
        }
        self.json
    }
}

#[cfg(feature = "download")]
#[derive(Debug, Subcommand)]
pub enum ModelsCommand {
    /// Delete a model, or the unfinished downloads from a repository
    ///
    /// Only deletes from the Hugging Face cache. The model's files are removed from every commit; blobs that other
    /// files use stay. The name of a repository, as `wglm models` lists it, means all unfinished downloads from it. For
    /// models of LM Studio, Ollama and llama.cpp an error says how to delete them there.
    Rm(RemoveArgs),
}

#[cfg(feature = "download")]
#[derive(Debug, Args)]
pub struct RemoveArgs {
    /// The model, by its name in `wglm models`
    pub name: String,
    /// Delete without asking
    #[arg(short, long)]
    pub yes: bool,
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
    /// The command to describe, such as `run` or `models rm` [default: wglm itself]
    pub command: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    On,
    Off,
}

#[derive(Debug, Args)]
pub struct InspectArgs {
    /// GGUF file, or a name that `wglm models` lists [default: the demonstration model]
    pub file: Option<PathBuf>,
    /// Same as FILE, for consistency with the other commands
    #[arg(short, long, value_name = "FILE", conflicts_with = "file")]
    pub model: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub needs: NeedsArgs,
}

#[derive(Debug, Args)]
pub struct TokenizeArgs {
    /// Text; - reads stdin unchanged, including the final newline
    #[arg(value_name = "TEXT", allow_hyphen_values = true)]
    pub text: String,
    /// Model file (GGUF), or a name that `wglm models` lists [default: the demonstration model]
    #[arg(short, long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Print the token ids as a JSON array
    #[arg(long, visible_alias = "ids")]
    pub json: bool,
    /// Treat the names of special tokens as plain text
    #[arg(long)]
    pub no_parse_special: bool,
    /// Do not add a beginning-of-text token, even if the model file asks for one
    #[arg(long)]
    pub no_bos: bool,
}

#[derive(Debug, Args)]
pub struct TemplateArgs {
    /// Model file (GGUF), or a name that `wglm models` lists [default: the demonstration model]
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
#[command(mut_arg("context", |arg| arg.help("Context size in tokens; 0 for the model's maximum [default: enough for all tokens]")))]
pub struct LogitsArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// Token ids, little-endian i32; - reads stdin
    #[arg(long, value_name = "FILE")]
    pub tokens: PathBuf,
    /// Output file, little-endian f32; - writes to stdout
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Positions to write, counted from 0 and separated by commas [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', allow_negative_numbers = true, value_parser = whole::<usize>, action = ArgAction::Set)]
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
    #[arg(short, long, value_name = "N", default_value_t = 0, allow_negative_numbers = true, value_parser = whole::<u64>)]
    pub depth: u64,
    #[command(flatten)]
    pub gpu: GpuArgs,
    /// Predict the speed on a GPU, present or not: all, m3-pro, h100, ... (an unknown name lists them)
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(names()), hide_possible_values = true)]
    pub device: Option<String>,
    /// Show the full name of each kernel's shader variant
    #[arg(short, long)]
    pub verbose: bool,
}
