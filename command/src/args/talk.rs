//! Arguments of `run` and `chat`.

use super::{Command, ConstraintArgs, ModelArgs, OutputFormat, SamplingArgs, Switch};
use clap::builder::{FalseyValueParser, NonEmptyStringValueParser};
use clap::{ArgGroup, Args};
use std::path::{Path, PathBuf};

/// The arguments for talking with a model.
#[derive(Debug, Args)]
pub struct TalkArgs {
    /// Let the model think before it answers
    #[arg(long, value_name = "ON|OFF", default_value = "on")]
    pub reasoning: Switch,
    /// System prompt (also -sys)
    #[arg(long, value_name = "TEXT")]
    pub system_prompt: Option<String>,
    #[command(flatten)]
    pub show: ShowArgs,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub sampling: SamplingArgs,
    #[command(flatten)]
    pub constraint: ConstraintArgs,
}

#[derive(Debug, Args)]
pub struct ChatArgs {
    /// Do not read or write the history of typed messages
    #[arg(long, env = "WGLM_NO_HISTORY", value_parser = FalseyValueParser::new())]
    pub no_history: bool,
    #[command(flatten)]
    pub talk: TalkArgs,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("from").args(["text", "prompt", "file"]).required(true))]
pub struct RunArgs {
    /// Prompt; - reads stdin, without the end of its last line
    #[arg(value_name = "PROMPT", value_parser = NonEmptyStringValueParser::new())]
    pub text: Option<String>,
    /// Prompt; - reads stdin
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true, value_parser = NonEmptyStringValueParser::new())]
    pub prompt: Option<String>,
    /// Read the prompt from a file
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Continue the prompt as plain text, without the chat template
    #[arg(long, conflicts_with_all = ["reasoning", "system_prompt"])]
    pub raw: bool,
    /// Print one JSON object: text, thinking, tool calls, statistics and the error; absent values are null
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub talk: TalkArgs,
}

#[derive(Debug, Clone, Copy, Args)]
pub struct ShowArgs {
    /// Hide the model's thinking
    #[arg(long)]
    pub hide_thinking: bool,
    /// Print only the answer, and errors
    #[arg(short, long)]
    pub quiet: bool,
}

impl RunArgs {
    /// Checks combinations of options.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self) -> Result<(), String> {
        let ConstraintArgs { json_schema, json_schema_file, grammar, grammar_file, .. } = &self.talk.constraint;
        let is_dash = |text: &Option<String>| text.as_deref() == Some("-");
        let is_stdin = |path: &Option<PathBuf>| path.as_deref() == Some(Path::new("-"));
        let prompt = is_dash(&self.text) || is_dash(&self.prompt) || is_stdin(&self.file);
        let constraint =
            is_dash(json_schema) || is_dash(grammar) || is_stdin(json_schema_file) || is_stdin(grammar_file);
        if prompt && constraint {
            return Err("the prompt and the schema or grammar cannot both be read from stdin".into());
        }
        Ok(())
    }
}

impl Command {
    /// Whether results are JSON on stdout.
    pub fn is_json(&self) -> bool {
        match self {
            Self::Run(args) => args.json,
            #[cfg(feature = "download")]
            Self::Pull(args) => args.json,
            Self::Models(args) => args.is_json(),
            Self::Inspect(args) => args.json,
            Self::Devices(args) => args.json,
            Self::Tokenize(args) => args.json,
            Self::Plan(args) => args.json,
            Self::Bench(args) => args.output.format() == OutputFormat::Json,
            Self::Profile(args) => args.output.format() == OutputFormat::Json,
            Self::Tune(args) => args.output.format() == OutputFormat::Json,
            Self::Selftest(args) => args.output.format() == OutputFormat::Json,
            Self::Perplexity(args) => args.output.format() == OutputFormat::Json,
            _ => false,
        }
    }

    /// Whether only results and errors are printed.
    pub fn is_quiet(&self) -> bool {
        match self {
            Self::Run(args) => args.json || args.talk.show.quiet,
            Self::Chat(args) => args.talk.show.quiet,
            #[cfg(feature = "download")]
            Self::Pull(args) => args.json,
            _ => false,
        }
    }

    /// The log filter if `RUST_LOG` is not set. A server logs warnings about work in the background, because nothing
    /// else tells its operator about it.
    pub fn default_log(&self) -> Option<String> {
        match self {
            #[cfg(feature = "serve")]
            Self::Serve(_) => {
                Some(format!("{},wglm_command::serve=warn", wglm_engine::instruments::BACKGROUND_WARNINGS))
            }
            _ => None,
        }
    }
}

/// The text after the help of `run`.
pub const RUN_STATUS: &str = "\
Exit status: 0 with an answer, 1 after an error, 2 for wrong usage, 3 if the reply ended without an answer (-n or the \
context ran out while the model was thinking, or the reply began with a stop string) or was cut off inside an answer \
that --json-schema or --grammar constrains, 130 after Ctrl-C. An answer without a constraint counts at any length, and \
so does one that already matches the grammar, even if it could continue.

With --json, exactly one JSON object is printed to stdout once the options have been parsed, even after an error or \
Ctrl-C. Its fields are always: text, thinking, tool_calls, prompt, generated, seed, stop, prompt_seconds, \
generate_seconds, drafts, error, hint. Values that the reply did not reach are null; text, thinking and tool_calls \
are then empty. After Ctrl-C stop is \"cancelled\".";

/// The text after the help of `chat`.
pub const CHAT_STATUS: &str = "\
Messages are read from the terminal, or from a file or pipe, one per line. A line that begins with / is a command: \
/help lists them. A line that ends in \\ continues on the next one; \"\"\" begins and ends a message of several lines, \
and Ctrl-D sends an unfinished one.

Exit status: 0; with messages from a file or pipe, 1 if a message or a command failed, 3 if a reply ended without an \
answer, or inside an answer that --json-schema or --grammar constrains; 130 after Ctrl-C (pressed twice at the prompt; \
once if TERM=dumb), 143 after SIGTERM, 129 after SIGHUP.";
