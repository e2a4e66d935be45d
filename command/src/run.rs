//! The command `run`: replies to one prompt.

use super::args::{RunArgs, SamplingArgs, Switch, TalkArgs};
#[cfg(feature = "download")]
use super::hint;
use super::interrupts::{self, OnInterrupt};
use super::output;
use super::recovery::Reloader;
use super::reply::{CollectedReply, View};
use super::{input, model, tunings};
use std::path::Path;
use std::process::ExitCode;
use wglm_engine::instruments::recommended_sampling;
use wglm_engine::sample::Sampler;
use wglm_engine::text::ChatTemplate;
use wglm_engine::text::{Message, Vocab};
use wglm_engine::{Cancel, Chat, Config, GenerateOptions, Generation, Gguf, Model, Reply, Session};

pub fn run(args: RunArgs) -> anyhow::Result<ExitCode> {
    let cancel = interrupts::begin(OnInterrupt::ExitAfterGrace);
    let mut reply = CollectedReply::new(args.talk.constraint.form());
    if args.json {
        let reply = reply.clone();
        interrupts::set_exit_message(move || drop(tell(&reply, None)));
    }
    interrupts::listen(false)?;
    let answered = answer(&args, &cancel, &mut reply);
    if args.json {
        interrupts::instead_of_exit_message(|| tell(&reply, answered.as_ref().err()))?;
    }
    answered.map(|()| reply.code())
}

fn answer(args: &RunArgs, cancel: &Cancel, into: &mut CollectedReply) -> anyhow::Result<()> {
    let prompt = prompt(args)?;
    let view = if args.json { View::NOTHING } else { View::of(args.talk.show) };
    let (model, options, reloader) = load(&args.talk, !args.raw)?;
    into.constrain(options.constraint.as_ref());
    if args.raw {
        let tokens = model.tokenizer()?.encode(&prompt, true)?;
        let mut session = Session::new(&model)?;
        let reply = Generation::new(&mut session, tokens, None, options)?.with_cancel(cancel);
        into.show(reloader.keep_going(reply, model, Generation::move_to), view)?;
    } else {
        let mut chat = Chat::new(&model)?;
        prepare(&mut chat, &args.talk, options);
        let reply = chat.send(&prompt)?.with_cancel(cancel);
        into.show(reloader.keep_going(reply, model.clone(), Reply::move_to), view)?;
        #[cfg(feature = "download")]
        if view.figures && into.stop() != Some(wglm_engine::Stop::Cancelled) {
            hint::tell(hint::real_model(&model, &args.talk.model.file));
        }
    }
    // The user did not request that length, so it is reported even if only the answer is shown.
    let cut = into.stop() == Some(wglm_engine::Stop::Context) && into.without_answer().or(into.cut()).is_none();
    if cut && !view.figures {
        output::complain(format_args!("the answer is cut off: the context is full (-c)"));
    }
    Ok(())
}

/// Loads the model to talk with. Also returns the options of its replies, and the `Reloader` that loads it again.
pub fn load(talk: &TalkArgs, chat: bool) -> anyhow::Result<(Model, GenerateOptions, Reloader)> {
    let TalkArgs { model: args, sampling, constraint, .. } = talk;
    let constraint = constraint.read()?;
    let file = model::open(args.file.model.as_deref())?;
    let options = GenerateOptions { constraint, ..options(&file, sampling, chat)? };
    let model = model::load(&file, args, sampling.speculate)?;
    tunings::at_first_start(&model, args);
    Ok((model, options, Reloader { args: args.clone(), guesses: sampling.speculate }))
}

/// Prints the reply as one JSON object.
fn tell(reply: &CollectedReply, error: Option<&anyhow::Error>) -> anyhow::Result<()> {
    output::lines([reply.as_json(error)?])
}

/// The options of generation, with checks of the file and the arguments that are made before a large file is loaded:
/// that wglm can run the model, that the sampling parameters are valid, that the file has a tokenizer and, for `chat`,
/// a chat template.
pub fn options(file: &Gguf, args: &SamplingArgs, chat: bool) -> anyhow::Result<GenerateOptions> {
    Config::read(file)?;
    let sampling = args.over(recommended_sampling(file)?);
    Sampler::new(sampling.clone())?;
    let name = model::title(file);
    anyhow::ensure!(Vocab::read(file)?.is_some(), "{name} has no tokenizer (`tokenizer.ggml.model`); use another file");
    if chat {
        let template = file.opt_string("tokenizer.chat_template")?;
        match template.map(ChatTemplate::new) {
            Some(template) => drop(template?),
            None => anyhow::bail!("{name} has no chat template (`tokenizer.chat_template`); use run --raw"),
        }
    }
    let (max_tokens, stop, speculation) = (args.max_tokens(), args.stop.clone(), args.speculation());
    Ok(GenerateOptions {
        sampling,
        max_tokens,
        stop,
        speculation,
        stop_loops: args.stop_loops,
        ..GenerateOptions::default()
    })
}

/// Sets up a conversation with the options in `args`.
pub fn prepare(chat: &mut Chat, args: &TalkArgs, options: GenerateOptions) {
    chat.options = options;
    chat.reasoning = Some(args.reasoning == Switch::On);
    if let Some(system) = &args.system_prompt {
        chat.push(Message::system(system.as_str()));
    }
}

/// The prompt. A blank one is refused, since `chat` skips blank lines, unless plain text is continued.
fn prompt(args: &RunArgs) -> anyhow::Result<String> {
    let stdin = Path::new("-");
    let (prompt, name) = match (args.text.as_ref().or(args.prompt.as_ref()), &args.file) {
        (Some(text), _) if text != "-" => (text.clone(), "the command line".to_owned()),
        (None, Some(file)) => (input::text(file)?, input::name(file)),
        _ => (input::text(stdin)?, input::name(stdin)),
    };
    let blank = if args.raw { prompt.is_empty() } else { prompt.trim().is_empty() };
    anyhow::ensure!(!blank, "{name}: the prompt is empty");
    Ok(prompt)
}
