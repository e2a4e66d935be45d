//! `/v1/completions`: text that continues a text, without the chat template.

use super::frame::Frame;
use crate::serve::body::JsonBody;
use crate::serve::constraints::{Format, FormatField};
use crate::serve::failure::Failure;
use crate::serve::fields::{Fields, StreamOptions, choices, max_tokens, top_logprobs};
use crate::serve::figures::CompletionLogprobs;
use crate::serve::interface::{Interface, Prompt, Request};
use crate::serve::reply::{Delta, FinishReason, Progress, Reply};
use crate::serve::server::{LoadedModel, Server};
use crate::serve::stream::Events;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::iter::repeat_n;
use wglm_engine::Error;
use wglm_engine::text::Tokenizer;

/// The value of `object` in answers and chunks.
const OBJECT: &str = "text_completion";

/// How many copies there are of a prompt that an answer repeats.
const ECHO_COPIES: usize = 4;

/// The most tokens where a request has no limit, as in OpenAI's API.
const MAX_TOKENS: usize = 16;

#[derive(Debug, Deserialize)]
pub struct Body {
    prompt: Option<Prompts>,
    stream_options: Option<StreamOptions>,
    max_tokens: Option<i64>,
    n_predict: Option<i64>,
    n: Option<u64>,
    best_of: Option<u64>,
    echo: Option<bool>,
    suffix: Option<String>,
    logprobs: Option<u64>,
    response_format: Option<FormatField>,
    json_schema: Option<Value>,
    #[serde(flatten)]
    fields: Fields,
}

/// A prompt or several, as text or as tokens.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Prompts {
    Text(String),
    Tokens(Vec<u32>),
    Texts(Vec<String>),
    TokenLists(Vec<Vec<u32>>),
}

impl Prompts {
    fn count(&self) -> usize {
        match self {
            Self::Text(_) | Self::Tokens(_) => 1,
            Self::Texts(texts) => texts.len(),
            Self::TokenLists(lists) => lists.len(),
        }
    }

    /// The tokens of each prompt. More than the context holds are refused; a text that cannot have fewer is refused
    /// before it is encoded.
    pub fn tokens(self, loaded: &LoadedModel) -> Result<Vec<Vec<u32>>, Failure> {
        let (tokenizer, context) = (loaded.model.tokenizer()?, loaded.scheduler.context());
        let fits = |needed| match needed {
            needed if needed > context => Err(Failure::from(Error::ContextFull { needed, context })),
            _ => Ok(()),
        };
        let encode = |text: &String| {
            if text.len() > Tokenizer::SHORT {
                fits(text.len().div_ceil(tokenizer.longest_token()))?;
            }
            tokenizer.encode(text, true).map_err(Failure::from)
        };
        let prompts = match self {
            Self::Text(text) => vec![encode(&text)?],
            Self::Texts(texts) => texts.iter().map(encode).collect::<Result<_, _>>()?,
            Self::Tokens(tokens) => vec![tokens],
            Self::TokenLists(lists) => lists,
        };
        prompts.iter().try_for_each(|tokens| fits(tokens.len()))?;
        Ok(prompts)
    }
}

pub struct Completions {
    frame: Frame,
    /// The text before each reply, if it is repeated.
    echo: Vec<String>,
    /// How many characters each reply has so far.
    lengths: Vec<usize>,
}

/// A reply, or a piece of it.
#[derive(Serialize)]
struct Choice<'a> {
    index: usize,
    text: String,
    logprobs: Option<CompletionLogprobs<'a>>,
    finish_reason: Option<&'static str>,
}

fn finish_reason(reason: FinishReason) -> Option<&'static str> {
    Some(if reason == FinishReason::Length { "length" } else { "stop" })
}

/// Refuses what completions do not have. A client would take unconstrained text for what it requested.
fn check_supported(body: &mut Body, choices: usize) -> Result<(), Failure> {
    let format = body.response_format.take().unwrap_or_default().read(false)?;
    for (is_asked_for, message) in [
        (body.suffix.as_ref().is_some_and(|suffix| !suffix.is_empty()), "suffix: this model does not fill gaps"),
        (format != Format::Text, "response_format: not supported here; use /v1/chat/completions"),
        (body.json_schema.is_some(), "json_schema: not supported here; use /v1/chat/completions"),
        (body.best_of.is_some_and(|best| best != choices as u64), "best_of: only supported if it equals n"),
        (body.echo == Some(true) && body.logprobs.is_some(), "echo: not supported together with logprobs"),
    ] {
        if is_asked_for {
            return Err(Failure::unsupported(message));
        }
    }
    Ok(())
}

impl Interface for Completions {
    type Body = Body;

    fn memory(body: &JsonBody) -> usize {
        body.completion()
    }

    fn request(mut body: Body, server: &Server, loaded: &LoadedModel) -> Result<(Prompt, Request<Self>), Failure> {
        let choices = choices(body.n, server)?;
        check_supported(&mut body, choices)?;
        let given = body.prompt.ok_or_else(|| Failure::invalid("there is no prompt"))?;
        let (count, most) = (given.count().saturating_mul(choices), server.limits.choices);
        if !(1..=most).contains(&count) {
            return Err(Failure::invalid(format!("the request asks for {count} replies; expected 1 to {most}")));
        }
        let (stream, prompts, mut options) =
            (body.fields.stream(), given.tokens(loaded)?, body.fields.options(loaded)?);
        let limit = body.max_tokens.or(body.n_predict);
        let usual = limit.is_none().then_some(MAX_TOKENS);
        options.max_tokens = max_tokens(limit)?.or(options.max_tokens).or(usual);
        options.logprobs = body.logprobs.map(top_logprobs).transpose()?;
        let mut echo = Vec::new();
        for tokens in prompts.iter().filter(|_| body.echo == Some(true)) {
            echo.extend(repeat_n(loaded.model.tokenizer()?.decode(tokens, true)?, choices));
        }
        let held = ECHO_COPIES * echo.iter().map(String::len).sum::<usize>();
        echo.resize(count, String::new());
        let (logprobs, usage) = (body.logprobs.is_some(), StreamOptions::usage(body.stream_options));
        let frame = Frame::new("cmpl-", &server.name, logprobs, usage, choices);
        let interface = Self { frame, echo, lengths: vec![0; count] };
        let request = Request { choices, stream, one_call: false, held, interface };
        Ok((Prompt::Tokens(prompts, Box::new(options)), request))
    }

    fn begin(&mut self, _: usize, to: &mut Events) {
        for (index, text) in self.echo.iter().cloned().enumerate().filter(|(_, text)| !text.is_empty()) {
            self.frame.chunk(OBJECT, Choice { index, text, logprobs: None, finish_reason: None }, None, to);
        }
    }

    fn delta(&mut self, index: usize, delta: Delta, to: &mut Events) {
        match delta {
            Delta::Text { text, tokens } => {
                let offset = self.lengths[index];
                self.lengths[index] += text.chars().count();
                let logprobs = self.frame.logprobs.then_some(CompletionLogprobs { tokens: &tokens, offset });
                self.frame.chunk(OBJECT, Choice { index, text, logprobs, finish_reason: None }, None, to);
            }
            Delta::End(finish) => {
                let finish_reason = finish_reason(finish.reason);
                let choice = Choice { index, text: String::new(), logprobs: None, finish_reason };
                self.frame.end_reply(OBJECT, index, choice, &finish, to);
            }
            // Without a template there is neither thinking nor a function to call.
            Delta::Prompt(_) | Delta::Thinking(_) => {}
            Delta::Call { .. } | Delta::Arguments(_) | Delta::CallEnd { .. } => {}
        }
    }

    fn alive(&mut self, index: usize, progress: Option<Progress>, to: &mut Events) {
        if progress.is_none() {
            return to.comment("waiting");
        }
        let choice = Choice { index, text: String::new(), logprobs: None, finish_reason: None };
        self.frame.chunk(OBJECT, choice, progress, to);
    }

    fn end(&mut self, to: &mut Events) {
        self.frame.end(OBJECT, to);
    }

    fn failed(&mut self, failure: &Failure, to: &mut Events) {
        Frame::failed(failure, to);
    }

    fn whole(self, replies: Vec<Reply>) -> String {
        let choice = |(index, (reply, echo)): (usize, (_, String))| {
            let reply: &Reply = reply;
            let logprobs = self.frame.logprobs.then_some(CompletionLogprobs { tokens: &reply.tokens, offset: 0 });
            Choice { index, text: echo + &reply.text, logprobs, finish_reason: finish_reason(reply.finish.reason) }
        };
        let choices: Vec<_> = replies.iter().zip(self.echo).enumerate().map(choice).collect();
        self.frame.whole(OBJECT, &choices, &replies)
    }
}
