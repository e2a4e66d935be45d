//! `/v1/completions`: text that follows text, without the chat template.

use super::completions_words::CompletionWords;
use crate::cli::serve::body::JsonBody;
use crate::cli::serve::constraints::{Format, FormatField};
use crate::cli::serve::failure::Failure;
use crate::cli::serve::fields::{Fields, StreamOptions, choices, max_tokens, or_default, read, top_logprobs};
use crate::cli::serve::job::{Job, Work};
use crate::cli::serve::router::json;
use crate::cli::serve::server::{Engine, Server};
use crate::cli::serve::{events, pieces};
use axum::body::Bytes;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;
use wglm::GenerateOptions;

/// The most tokens where a request names no limit, as in OpenAI's interface.
const MAX_TOKENS: usize = 16;

#[derive(Debug, Deserialize)]
struct CompletionBody {
    prompt: Option<Prompts>,
    #[serde(default, deserialize_with = "or_default")]
    stream: bool,
    stream_options: Option<StreamOptions>,
    max_tokens: Option<i64>,
    n_predict: Option<i64>,
    n: Option<u64>,
    best_of: Option<u64>,
    #[serde(default, deserialize_with = "or_default")]
    echo: bool,
    suffix: Option<String>,
    logprobs: Option<u64>,
    response_format: Option<FormatField>,
    json_schema: Option<Value>,
}

/// A prompt or several, as text or as tokens.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Prompts {
    Text(String),
    Tokens(Vec<u32>),
    Texts(Vec<String>),
    TokenLists(Vec<Vec<u32>>),
}

/// What a body asks for.
struct Asked {
    works: Vec<Work>,
    stream: bool,
    usage: bool,
    /// Replies to each prompt.
    choices: usize,
    logprobs: bool,
    /// The text before each reply, if it is to be repeated.
    echo: Vec<String>,
}

/// The tokens of each prompt.
fn prompts(prompts: Prompts, engine: &Engine) -> Result<Vec<Vec<u32>>, Failure> {
    let tokenizer = engine.model.tokenizer()?;
    let encode = |text: &String| tokenizer.encode(text, true).map_err(Failure::from);
    match prompts {
        Prompts::Text(text) => Ok(vec![encode(&text)?]),
        Prompts::Texts(texts) => texts.iter().map(encode).collect(),
        Prompts::Tokens(tokens) => Ok(vec![tokens]),
        Prompts::TokenLists(lists) => Ok(lists),
    }
}

fn asked(body: &Bytes, server: &Server, engine: &Engine) -> Result<Asked, Failure> {
    let fields: Fields = read(body)?;
    let body: CompletionBody = read(body)?;
    if body.suffix.is_some_and(|suffix| !suffix.is_empty()) {
        return Err(Failure::unsupported("suffix: this model does not fill gaps"));
    }
    // A client that had free text instead would take it for what it asked for.
    if body.response_format.unwrap_or_default().read()? != Format::Text {
        return Err(Failure::unsupported("response_format: not supported here; /v1/chat/completions takes it"));
    }
    if body.json_schema.is_some() {
        return Err(Failure::unsupported("json_schema: not supported here; /v1/chat/completions takes it"));
    }
    let each = choices(body.n, server)?;
    if body.best_of.is_some_and(|best| best != each as u64) {
        return Err(Failure::unsupported("best_of: not supported, but where it is n"));
    }
    let prompts = prompts(body.prompt.ok_or_else(|| Failure::invalid("there is no prompt"))?, engine)?;
    let (count, most) = (prompts.len() * each, server.limits.choices);
    if !(1..=most).contains(&count) {
        return Err(Failure::invalid(format!("{count} replies asked for, expected 1 to {most}")));
    }
    let mut options = fields.options(engine)?;
    let named = body.max_tokens.or(body.n_predict);
    let usual = named.is_none().then_some(MAX_TOKENS);
    options.max_tokens = max_tokens(named)?.or(options.max_tokens).or(usual);
    options.logprobs = body.logprobs.map(|top| top_logprobs(Some(top))).transpose()?;
    let echoes = |tokens: &Vec<u32>| engine.model.tokenizer()?.decode(tokens, true).map_err(Failure::from);
    let mut echo = Vec::new();
    if body.echo {
        if options.logprobs.is_some() {
            return Err(Failure::unsupported("echo: the prompt's log-probabilities are not told; leave out logprobs"));
        }
        for text in prompts.iter().map(echoes) {
            let text = text?;
            echo.extend(std::iter::repeat_n(text, each));
        }
    }
    let work = |tokens: Vec<u32>| (0..each).map(move |index| (tokens.clone(), index));
    let with_seed = |(tokens, index): (Vec<u32>, usize)| {
        let mut options: GenerateOptions = options.clone();
        options.sampling.seed = options.sampling.seed.map(|seed| seed.wrapping_add(index as u64));
        Work::Tokens(tokens, Box::new(options))
    };
    Ok(Asked {
        logprobs: options.logprobs.is_some(),
        works: prompts.into_iter().flat_map(work).map(with_seed).collect(),
        stream: body.stream,
        usage: body.stream_options.is_some_and(|options| options.include_usage),
        choices: each,
        echo,
    })
}

/// Answers a request.
pub async fn complete(State(server): State<Arc<Server>>, JsonBody(body): JsonBody) -> Result<Response, Failure> {
    let engine = server.engine()?;
    let (of, with, read) = (server.clone(), engine.clone(), body.clone());
    let Asked { works, stream, usage, choices, logprobs, echo } = server.work(move || asked(&read, &of, &with)).await?;
    let count = works.len();
    let job = Job::start(&server, engine.clone(), works, body).await?;
    let words = CompletionWords::new(&server.name, (logprobs, usage), echo, choices);
    if stream {
        return Ok(events::stream(job, engine, count, false, words));
    }
    let wholes = pieces::collect(job, &engine, count, false).await?;
    Ok(json(&words.whole(wholes)))
}
