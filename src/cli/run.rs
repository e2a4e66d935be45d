//! `run`: one prompt, one reply.

use super::args::{ReplyArgs, RunArgs, SamplingArgs, Switch};
use super::model;
use super::output::{self, Aside};
use anyhow::Context;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use wglm::model::recommended_sampling;
use wglm::sample::Sampler;
use wglm::text::{Message, Vocab};
use wglm::{Cancel, Chat, Config, Event, GenerateOptions, Generation, Gguf, Session, Stats, Stop};

/// As a shell reports a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

pub fn run(args: RunArgs) -> anyhow::Result<ExitCode> {
    let prompt = prompt(&args)?;
    anyhow::ensure!(!prompt.is_empty(), "the prompt is empty; give one with -p");
    let file = model::open(args.talk.model.file.model.as_deref())?;
    let options = options(&file, &args.talk.sampling, !args.raw)?;
    let model = model::load(&file, &args.talk.model)?;
    let cancel = Interrupt::listen()?.next();
    let stop = if args.raw {
        let tokens = model.tokenizer()?.encode(&prompt, true)?;
        let mut session = Session::new(&model)?;
        show(Generation::new(&mut session, tokens, None, options)?.with_cancel(&cancel))?
    } else {
        let mut chat = Chat::new(&model)?;
        prepare(&mut chat, &args.talk.reply, options);
        show(chat.send(&prompt)?.with_cancel(&cancel))?
    };
    Ok(if stop == Stop::Cancelled { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS })
}

/// How to generate, checked before a large file is loaded: that it is a model for wglm, the sampling
/// parameters, and that the file can turn text to tokens and, if it is to `chat`, messages to text.
pub fn options(file: &Gguf, args: &SamplingArgs, chat: bool) -> anyhow::Result<GenerateOptions> {
    Config::read(file)?;
    let sampling = args.over(recommended_sampling(file)?);
    Sampler::new(sampling.clone())?;
    anyhow::ensure!(Vocab::read(file)?.is_some(), "this file has no tokenizer (`tokenizer.ggml.model`); use another");
    if chat {
        let template = file.opt_string("tokenizer.chat_template")?;
        anyhow::ensure!(
            template.is_some(),
            "this file has no chat template (`tokenizer.chat_template`); use run --raw"
        );
    }
    Ok(GenerateOptions { sampling, max_tokens: args.max_tokens(), stop: args.stop.clone(), logprobs: None })
}

/// Sets a conversation up as the arguments ask.
pub fn prepare(chat: &mut Chat, args: &ReplyArgs, options: GenerateOptions) {
    chat.options = options;
    chat.reasoning = Some(args.reasoning == Switch::On);
    if let Some(system) = &args.system_prompt {
        chat.push(Message::system(system.as_str()));
    }
}

fn prompt(args: &RunArgs) -> anyhow::Result<String> {
    match (args.text.as_ref().or(args.prompt.as_ref()), &args.file) {
        (Some(text), _) if text == "-" => read_text(Path::new("-")),
        (Some(text), _) => Ok(text.clone()),
        (None, Some(file)) => read_text(file),
        (None, None) => anyhow::bail!("no prompt; give one with -p, in a file with -f, or on stdin with -"),
    }
}

/// The text of a file, or of stdin for `-`, without its last line end.
pub fn read_text(path: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    if path == Path::new("-") {
        std::io::stdin().read_to_string(&mut text).context("cannot read stdin")?;
    } else {
        text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    }
    if text.ends_with('\n') {
        text.pop();
    }
    Ok(text)
}

/// What Ctrl-C stops: the reply that is on its way. A second Ctrl-C ends the program.
pub struct Interrupt {
    reply: Arc<Mutex<Cancel>>,
}

impl Interrupt {
    /// Listens for Ctrl-C.
    pub fn listen() -> anyhow::Result<Self> {
        let reply = Arc::<Mutex<Cancel>>::default();
        let current = reply.clone();
        ctrlc::set_handler(move || {
            let cancel = current.lock().unwrap_or_else(PoisonError::into_inner);
            if cancel.is_cancelled() {
                std::process::exit(INTERRUPTED.into());
            }
            cancel.cancel();
        })
        .context("cannot listen for Ctrl-C")?;
        Ok(Self { reply })
    }

    /// What Ctrl-C stops from here on.
    pub fn next(&self) -> Cancel {
        let cancel = Cancel::default();
        *self.reply.lock().unwrap_or_else(PoisonError::into_inner) = cancel.clone();
        cancel
    }
}

/// Shows a reply as it comes: the answer on stdout, thinking and figures on stderr.
pub fn show(events: impl Iterator<Item = wglm::Result<Event>>) -> anyhow::Result<Stop> {
    let aside = Aside::new();
    let (mut reading, mut thinking, mut end) = (false, false, None);
    for event in events {
        let event = event?;
        if reading && !matches!(event, Event::Prompt { .. }) {
            aside.passing(format_args!(""));
            reading = false;
        }
        match event {
            Event::Prompt { done, total } => {
                reading = true;
                aside.passing(format_args!("reading {done}/{total}"));
            }
            Event::Thinking(text) => {
                thinking = true;
                aside.write(&text);
            }
            Event::Text(text) => {
                if std::mem::take(&mut thinking) {
                    aside.write("\n\n");
                }
                output::say(&text)?;
            }
            Event::Done(stats) => end = Some(stats),
            _ => {}
        }
    }
    if thinking {
        aside.write("\n");
    }
    output::say("\n")?;
    let Some(stats) = end else { return Ok(Stop::End) };
    figures(&aside, &stats, thinking);
    Ok(stats.stop)
}

fn figures(aside: &Aside, stats: &Stats, thinking: bool) {
    let ended = match stats.stop {
        Stop::Cancelled if stats.generated == 0 => ", stopped before a reply",
        Stop::Cancelled => ", stopped",
        Stop::Context => ", the context is full (-c)",
        Stop::Length if thinking => ", -n reached while thinking",
        Stop::Length => ", -n reached",
        Stop::StopString => ", a stop string reached",
        _ => "",
    };
    let seed = stats.seed.map_or(String::new(), |seed| format!("; seed {seed}"));
    aside.line(format_args!(
        "[prompt: {} cached, {} new, {:.1} tok/s; reply: {} tokens, {:.1} tok/s{ended}{seed}]",
        stats.prompt.cached,
        stats.prompt.new,
        stats.prompt_speed(),
        stats.generated,
        stats.speed()
    ));
}
