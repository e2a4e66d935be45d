//! `run`: one prompt, one reply.

use super::args::{ReplyArgs, RunArgs, SamplingArgs, Switch, TalkArgs};
use super::interrupts::{self, Ends};
use super::output;
use super::reply::{Reply, View};
use super::{failure, input, model};
use serde_json::json;
use std::path::Path;
use std::process::ExitCode;
use wglm::model::recommended_sampling;
use wglm::sample::Sampler;
use wglm::text::{Message, Vocab};
use wglm::{Cancel, Chat, Config, Error, GenerateOptions, Generation, Gguf, Session};

pub fn run(args: RunArgs) -> anyhow::Result<ExitCode> {
    let cancel = interrupts::begin(Ends::Program);
    interrupts::listen(false)?;
    let reply = reply(&args, &cancel);
    if args.json {
        tell(&reply)?;
    }
    reply.map(|reply| reply.code())
}

fn reply(args: &RunArgs, cancel: &Cancel) -> anyhow::Result<Reply> {
    let prompt = prompt(args)?;
    anyhow::ensure!(!prompt.is_empty(), "the prompt is empty; give one with -p");
    let view = if args.json { View::NOTHING } else { View::of(args.talk.show) };
    let TalkArgs { model: model_args, sampling, reply, .. } = &args.talk;
    let file = model::open(model_args.file.model.as_deref())?;
    let options = options(&file, sampling, !args.raw)?;
    let model = model::load(&file, model_args)?;
    if args.raw {
        let tokens = model.tokenizer()?.encode(&prompt, true)?;
        let mut session = Session::new(&model)?;
        Reply::show(Generation::new(&mut session, tokens, None, options)?.with_cancel(cancel), view)
    } else {
        let mut chat = Chat::new(&model)?;
        prepare(&mut chat, reply, options);
        Reply::show(chat.send(&prompt)?.with_cancel(cancel), view)
    }
}

/// Writes the reply, or what went wrong, as one object of JSON.
fn tell(reply: &anyhow::Result<Reply>) -> anyhow::Result<()> {
    let object = match reply {
        Ok(reply) => serde_json::to_value(reply)?,
        Err(error) if matches!(error.downcast_ref(), Some(Error::Cancelled)) => return Ok(()),
        Err(error) => json!({ "error": format!("{error:#}"), "hint": failure::hint(error) }),
    };
    output::lines([object])
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
        (Some(text), _) if text == "-" => input::text(Path::new("-")),
        (Some(text), _) => Ok(text.clone()),
        (None, Some(file)) => input::text(file),
        (None, None) => anyhow::bail!("no prompt; give one with -p, in a file with -f, or on stdin with -"),
    }
}
