//! The commands `tokenize` and `template`: show the model's input, without a GPU.

use super::args::{Switch, TemplateArgs, TokenizeArgs};
use super::{input, model, output};
use anyhow::Context;
use std::path::Path;
use wglm_engine::text::{ChatInput, ChatTemplate, Message, Tokenizer, Vocab};

pub fn tokenize(args: TokenizeArgs) -> anyhow::Result<()> {
    let file = model::open(args.model.as_deref())?;
    let vocab = Vocab::read(&file)?.with_context(|| {
        format!("{} has no tokenizer (`tokenizer.ggml.model`); use another file", model::title(&file))
    })?;
    let tokenizer = Tokenizer::new(vocab)?;
    let text = if args.text == "-" { input::exact(Path::new("-"))? } else { args.text };
    let mut tokens = tokenizer.encode(&text, !args.no_parse_special)?;
    if args.no_bos {
        // An empty text encodes to the beginning-of-text token, if there is one.
        let beginning = tokenizer.encode("", false)?.len();
        tokens.drain(..beginning);
    }
    if args.json {
        return output::lines([serde_json::to_string(&tokens)?]);
    }
    let line = |&token: &u32| -> anyhow::Result<String> {
        Ok(format!("{token:>7} {:?}", String::from_utf8_lossy(tokenizer.token_bytes(token)?)))
    };
    output::lines(tokens.iter().map(line).collect::<anyhow::Result<Vec<_>>>()?)
}

pub fn template(args: TemplateArgs) -> anyhow::Result<()> {
    let file = model::open(args.model.as_deref())?;
    let source = file
        .opt_string("tokenizer.chat_template")?
        .with_context(|| format!("{} has no chat template (`tokenizer.chat_template`)", model::title(&file)))?;
    let template = ChatTemplate::new(source)?;
    // A template needs no vocabulary, except for the names of tokens.
    let template = match Vocab::read(&file).ok().flatten() {
        Some(vocab) => template.with_vocab(&vocab),
        None => template,
    };
    let messages: Vec<Message> = json(&args.messages, "a JSON array of messages with `role` and `content`")?;
    let tools: Option<Vec<serde_json::Value>> =
        args.tools.as_deref().map(|path| json(path, "a JSON array of tools")).transpose()?;
    let mut input = ChatInput::new(&messages);
    input.tools = tools.as_deref();
    input.add_generation_prompt = !args.no_generation_prompt;
    input.enable_thinking = args.reasoning.map(|switch| switch == Switch::On);
    output::say(&template.render(&input)?)
}

fn json<T: serde::de::DeserializeOwned>(path: &Path, expected: &str) -> anyhow::Result<T> {
    let text = input::text(path)?;
    serde_json::from_str(&text).with_context(|| format!("{}: expected {expected}", input::name(path)))
}
