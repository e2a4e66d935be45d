//! `/v1/completions`: text that follows text, without the chat template.

use super::completions_words::CompletionWords;
use crate::cli::serve::body::JsonBody;
use crate::cli::serve::constraints::{Format, FormatField};
use crate::cli::serve::failure::Failure;
use crate::cli::serve::fields::{
    Fields, StreamOptions, choices, kept_of_tokens, max_tokens, or_default, read, top_logprobs,
};
use crate::cli::serve::job::{Job, Work};
use crate::cli::serve::memory::Kept;
use crate::cli::serve::router::counted_json;
use crate::cli::serve::server::{Engine, Server};
use crate::cli::serve::{events, pieces};
use axum::body::Bytes;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;
use wglm::text::Tokenizer;
use wglm::{Error, GenerateOptions};

/// How many copies there are of a prompt that an answer repeats.
const ECHO_COPIES: usize = 4;

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

impl Prompts {
    fn count(&self) -> usize {
        match self {
            Self::Text(_) | Self::Tokens(_) => 1,
            Self::Texts(texts) => texts.len(),
            Self::TokenLists(lists) => lists.len(),
        }
    }
}

/// What a body asks for.
struct Asked {
    works: Vec<Work>,
    /// What the replies keep until they end.
    kept: Kept,
    stream: bool,
    usage: bool,
    /// Replies to each prompt.
    choices: usize,
    logprobs: bool,
    /// The text before each reply, if it is to be repeated.
    echo: Vec<String>,
}

/// The tokens of each prompt. More than the context holds are refused, and texts before they are encoded if they cannot
/// have fewer.
fn prompts(prompts: Prompts, engine: &Engine) -> Result<Vec<Vec<u32>>, Failure> {
    let (tokenizer, context) = (engine.model.tokenizer()?, engine.scheduler.context());
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
    let prompts = match prompts {
        Prompts::Text(text) => vec![encode(&text)?],
        Prompts::Texts(texts) => texts.iter().map(encode).collect::<Result<_, _>>()?,
        Prompts::Tokens(tokens) => vec![tokens],
        Prompts::TokenLists(lists) => lists,
    };
    prompts.iter().try_for_each(|tokens| fits(tokens.len()))?;
    Ok(prompts)
}

fn asked(body: &Bytes, server: &Server, engine: &Engine) -> Result<Asked, Failure> {
    let fields: Fields = read(body)?;
    let body: CompletionBody = read(body)?;
    if body.suffix.is_some_and(|suffix| !suffix.is_empty()) {
        return Err(Failure::unsupported("suffix: this model does not fill gaps"));
    }
    // A client that had free text instead would take it for what it asked for.
    if body.response_format.unwrap_or_default().read(false)? != Format::Text {
        return Err(Failure::unsupported("response_format: not supported here; /v1/chat/completions takes it"));
    }
    if body.json_schema.is_some() {
        return Err(Failure::unsupported("json_schema: not supported here; /v1/chat/completions takes it"));
    }
    let each = choices(body.n, server)?;
    if body.best_of.is_some_and(|best| best != each as u64) {
        return Err(Failure::unsupported("best_of: not supported, but where it is n"));
    }
    let given = body.prompt.ok_or_else(|| Failure::invalid("there is no prompt"))?;
    let (count, most) = (given.count().saturating_mul(each), server.limits.choices);
    if !(1..=most).contains(&count) {
        return Err(Failure::invalid(format!("{count} replies asked for, expected 1 to {most}")));
    }
    let prompts = prompts(given, engine)?;
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
    let longest = prompts.iter().map(Vec::len).max().unwrap_or_default();
    let mut kept = kept_of_tokens(engine, longest, &options, count);
    kept.other += ECHO_COPIES * echo.iter().map(String::len).sum::<usize>();
    let work = |tokens: Vec<u32>| (0..each).map(move |index| (tokens.clone(), index));
    let with_seed = |(tokens, index): (Vec<u32>, usize)| {
        let mut options: GenerateOptions = options.clone();
        options.sampling.seed = options.sampling.seed.map(|seed| seed.wrapping_add(index as u64));
        Work::Tokens(tokens, Box::new(options))
    };
    Ok(Asked {
        kept,
        logprobs: options.logprobs.is_some(),
        works: prompts.into_iter().flat_map(work).map(with_seed).collect(),
        stream: body.stream,
        usage: body.stream_options.is_some_and(|options| options.include_usage),
        choices: each,
        echo,
    })
}

/// Answers a request.
pub async fn complete(State(server): State<Arc<Server>>, body: JsonBody) -> Result<Response, Failure> {
    let engine = server.engine()?;
    let (of, with, needed) = (server.clone(), engine.clone(), body.completion());
    let (asked, memory) = server.prompts(needed, move || asked(&body.bytes, &of, &with)).await?;
    let Asked { works, kept, stream, usage, choices, logprobs, echo } = asked;
    let (count, memory) = (works.len(), kept.reserve(memory)?);
    let job = Job::start(&server, engine.clone(), works, memory.clone()).await?;
    let words = CompletionWords::new(&server.name, (logprobs, usage), echo, choices);
    if stream {
        return Ok(events::stream(job, engine, count, false, words));
    }
    let wholes = pieces::collect(job, &engine, count, false).await?;
    Ok(counted_json(words.whole(wholes), memory))
}
