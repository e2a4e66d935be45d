//! `/v1/completions`: text that continues a text, without the chat template.

use super::frame::Frame;
use crate::serve::body::JsonBody;
use crate::serve::constraints::{Format, FormatField};
use crate::serve::failure::Failure;
use crate::serve::fields::{Fields, StreamOptions, choices, integer, max_tokens, top_logprobs};
use crate::serve::figures::CompletionLogprobs;
use crate::serve::infill::Gap;
use crate::serve::interface::{Interface, Prompt, Request};
use crate::serve::prompts::Prompts;
use crate::serve::reply::{Delta, FinishReason, Progress, Reply, TokenProbability};
use crate::serve::server::{LoadedModel, Server};
use crate::serve::stream::Events;
use crate::serve::unmet::OtherFields;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::iter::repeat_n;
use wglm_engine::{PromptLogprobs, SchemaOptions, Tokenizer};

/// The value of `object` in answers and chunks.
const OBJECT: &str = "text_completion";

/// The number of copies of a prompt that an answer repeats.
const ECHO_COPIES: usize = 4;

/// The maximum number of prompts in a request for their log-probabilities, if at most one token follows each: programs
/// that evaluate models send several together.
const SCORED_PROMPTS: usize = 64;

/// The maximum number of tokens if a request sets no limit, as in OpenAI's API.
const MAX_TOKENS: usize = 16;

/// The remedy for a request with a format.
const CHAT: &str = "not supported here; use /v1/chat/completions";

#[derive(Debug, Deserialize)]
pub struct Body {
    prompt: Option<Prompts>,
    stream_options: Option<StreamOptions>,
    #[serde(default, deserialize_with = "integer")]
    max_tokens: Option<i64>,
    #[serde(default, deserialize_with = "integer")]
    n_predict: Option<i64>,
    #[serde(default, deserialize_with = "integer")]
    n: Option<u64>,
    #[serde(default, deserialize_with = "integer")]
    best_of: Option<u64>,
    echo: Option<bool>,
    suffix: Option<String>,
    #[serde(default, deserialize_with = "integer")]
    logprobs: Option<u64>,
    response_format: Option<FormatField>,
    json_schema: Option<Value>,
    #[serde(flatten)]
    fields: Fields,
    #[serde(flatten)]
    others: OtherFields,
}

pub struct Completions {
    frame: Frame,
    /// The prompt before each reply, if it is repeated and has not been written yet.
    echo: Vec<Option<Echo>>,
    /// How many characters each reply has so far.
    lengths: Vec<usize>,
}

/// A prompt that is repeated before its reply.
#[derive(Clone)]
struct Echo {
    text: String,
    /// Its first token, whose probability is not known.
    first: Vec<u8>,
    /// The others, if log-probabilities are reported.
    tokens: Vec<TokenProbability>,
}

impl Echo {
    fn of(prompt: &[u32], tokenizer: &Tokenizer) -> Result<Self, Failure> {
        let first = prompt.first().map(|first| tokenizer.token_bytes(*first)).transpose()?;
        let first = first.unwrap_or_default().to_owned();
        Ok(Self { text: tokenizer.decode(prompt, true)?, first, tokens: Vec::new() })
    }
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

/// Refuses what completions do not support. A client would mistake unconstrained text for what it requested.
fn check_supported(body: &mut Body, choices: usize) -> Result<(), Failure> {
    let format = body.response_format.take().unwrap_or_default().read("response_format", SchemaOptions::default())?;
    for (is_asked_for, field, wrong) in [
        (format != Format::Text, "response_format", CHAT),
        (body.json_schema.is_some(), "json_schema", CHAT),
        (body.best_of.is_some_and(|best| best != choices as u64), "best_of", "only supported if it equals n"),
    ] {
        if is_asked_for {
            return Err(Failure::of_field(field, wrong).with_code("unsupported"));
        }
    }
    Ok(())
}

/// Refuses too many replies. More are allowed if they are little more than the log-probabilities of prompts.
fn check_count(count: usize, only_scored: bool, server: &Server) -> Result<(), Failure> {
    let most = if only_scored {
        server.limits.choices.max(SCORED_PROMPTS.min(server.limits.replies))
    } else {
        server.limits.choices
    };
    if (1..=most).contains(&count) {
        return Ok(());
    }
    Err(Failure::invalid(format!("the request asks for {count} replies; expected 1 to {most}")))
}

impl Interface for Completions {
    type Body = Body;

    fn memory(body: &JsonBody) -> usize {
        body.completion()
    }

    fn request(mut body: Body, server: &Server, loaded: &LoadedModel) -> Result<(Prompt, Request<Self>), Failure> {
        let mut warnings = std::mem::take(&mut body.others).read()?;
        let choices = choices(body.n, server)?;
        check_supported(&mut body, choices)?;
        let given = body.prompt.ok_or_else(|| Failure::invalid("there is no prompt").with_param("prompt"))?;
        let limit = max_tokens([("max_tokens", body.max_tokens), ("n_predict", body.n_predict)])?;
        let is_given = body.max_tokens.or(body.n_predict).is_some();
        let logprobs = body.logprobs.map(|top| top_logprobs("logprobs", top)).transpose()?;
        let echoes = body.echo == Some(true);
        let scored = logprobs.filter(|_| echoes);
        let count = given.count().saturating_mul(choices);
        check_count(count, scored.is_some() && limit.is_some_and(|limit| limit <= 1), server)?;
        body.fields.of_conversations().for_each(|field| warnings.ignored(field));
        let (stream, mut options) = (body.fields.stream(), body.fields.options(loaded)?);
        options.max_tokens = limit.or(options.max_tokens).or((!is_given).then_some(MAX_TOKENS));
        let prompts = match body.suffix.filter(|suffix| !suffix.is_empty()) {
            None => given.tokens(loaded)?,
            Some(_) if echoes => {
                let wrong = "not supported together with a suffix; leave one of them out";
                return Err(Failure::of_field("echo", wrong).with_code("unsupported"));
            }
            Some(after) => {
                let gap = |before| Gap { before, after: after.clone(), extra: Vec::new() };
                let tokens = |before| gap(before).tokens("suffix", options.max_tokens, loaded);
                given.texts()?.into_iter().map(tokens).collect::<Result<_, _>>()?
            }
        };
        options.logprobs = logprobs;
        options.prompt_logprobs = scored.map(|top| PromptLogprobs { from: 0, top });
        let mut echo = Vec::new();
        for tokens in prompts.iter().filter(|_| echoes) {
            echo.extend(repeat_n(Some(Echo::of(tokens, loaded.model.tokenizer()?)?), choices));
        }
        let held = ECHO_COPIES * echo.iter().flatten().map(|echo| echo.text.len()).sum::<usize>();
        echo.resize(count, None);
        let usage = StreamOptions::usage(body.stream_options);
        let frame = Frame::new("cmpl-", &loaded.name, logprobs.is_some(), usage, choices);
        let interface = Self { frame, echo, lengths: vec![0; count] };
        let request = Request { choices, stream, one_call: false, held, warnings: warnings.texts(), interface };
        Ok((Prompt::Tokens(prompts, Box::new(options)), request))
    }

    fn begin(&mut self, _: usize, to: &mut Events) {
        if !self.frame.logprobs {
            (0..self.echo.len()).for_each(|index| self.write_echo(index, to));
        } // otherwise the prompt is written once its log-probabilities are known
    }

    fn delta(&mut self, index: usize, delta: Delta, to: &mut Events) {
        match delta {
            Delta::PromptToken(token) => self.echo[index].iter_mut().for_each(|echo| echo.tokens.push(token.clone())),
            Delta::Text { text, tokens } => {
                self.write_echo(index, to);
                let offset = self.lengths[index];
                self.lengths[index] += text.chars().count();
                let logprobs = self.logprobs(None, &[&tokens], offset);
                self.frame.chunk(OBJECT, Choice { index, text, logprobs, finish_reason: None }, None, to);
            }
            Delta::End(finish) => {
                self.write_echo(index, to);
                let logprobs = self.logprobs(None, &[&finish.rest], self.lengths[index]);
                let logprobs = logprobs.filter(|_| !finish.rest.is_empty());
                let finish_reason = finish_reason(finish.reason);
                let choice = Choice { index, text: String::new(), logprobs, finish_reason };
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
        let choice = |(index, (reply, echo))| self.choice(index, reply, echo);
        let choices: Vec<_> = replies.iter().zip(&self.echo).enumerate().map(choice).collect();
        self.frame.whole(OBJECT, &choices, &replies)
    }
}

impl Completions {
    /// A whole reply, after its prompt if that is repeated.
    fn choice<'a>(&self, index: usize, reply: &'a Reply, echo: &'a Option<Echo>) -> Choice<'a> {
        let (first, before) = echo.as_ref().map(|echo| (echo.first.as_slice(), echo.text.as_str())).unzip();
        let logprobs = self.logprobs(first, &[&reply.prompt, &reply.tokens, &reply.finish.rest], 0);
        let text = before.unwrap_or_default().to_owned() + &reply.text;
        Choice { index, text, logprobs, finish_reason: finish_reason(reply.finish.reason) }
    }

    /// The log-probabilities of tokens, if they are reported.
    fn logprobs<'a>(
        &self,
        first: Option<&'a [u8]>,
        tokens: &[&'a Vec<TokenProbability>],
        offset: usize,
    ) -> Option<CompletionLogprobs<'a>> {
        let all = || CompletionLogprobs { first, tokens: tokens.iter().copied().flatten().collect(), offset };
        self.frame.logprobs.then(all)
    }

    /// Writes the prompt of a reply, if it is repeated and has not been written yet.
    fn write_echo(&mut self, index: usize, to: &mut Events) {
        let Some(Echo { text, first, tokens }) = self.echo[index].take() else { return };
        self.lengths[index] += text.chars().count();
        let logprobs = self.logprobs(Some(&first), &[&tokens], 0);
        self.frame.chunk(OBJECT, Choice { index, text, logprobs, finish_reason: None }, None, to);
    }
}
