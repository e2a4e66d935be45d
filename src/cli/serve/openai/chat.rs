//! `/v1/chat/completions`: what it takes, and the request that it makes of it.

use super::chat_words::ChatWords;
use super::conversation::{functions, messages};
use crate::cli::serve::body::JsonBody;
use crate::cli::serve::compiling::Demand;
use crate::cli::serve::constraints::{Format, FormatField, choice};
use crate::cli::serve::failure::Failure;
use crate::cli::serve::fields::{
    Fields, StreamOptions, choices, few_enough, few_tools, few_variables, held, kept, max_tokens, or_default, read,
    thinking, top_logprobs,
};
use crate::cli::serve::job::{Job, Work};
use crate::cli::serve::router::counted_json;
use crate::cli::serve::server::{Engine, Server};
use crate::cli::serve::{events, pieces};
use axum::body::Bytes;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::sync::Arc;
use wglm::text::Message;
use wglm::{ChatState, SchemaOptions};

/// The fields of a body beside those that all interfaces share.
#[derive(Debug, Deserialize)]
struct ChatBody {
    messages: Vec<Message>,
    #[serde(default, deserialize_with = "or_default")]
    stream: bool,
    stream_options: Option<StreamOptions>,
    #[serde(default, deserialize_with = "or_default")]
    tools: Vec<Value>,
    tool_choice: Option<Value>,
    parallel_tool_calls: Option<bool>,
    response_format: Option<FormatField>,
    json_schema: Option<Value>,
    #[serde(default, deserialize_with = "or_default")]
    logprobs: bool,
    top_logprobs: Option<u64>,
    max_tokens: Option<i64>,
    max_completion_tokens: Option<i64>,
    n: Option<u64>,
    #[serde(default, deserialize_with = "or_default")]
    chat_template_kwargs: Map<String, Value>,
    reasoning_effort: Option<String>,
}

/// What a body asks for.
struct Asked {
    /// Bytes that its functions and its form take while the replies run.
    held: usize,
    stream: bool,
    usage: bool,
    choices: usize,
    one_call: bool,
    logprobs: bool,
}

/// Whether a word for how much to think says not to.
pub fn thinks(effort: &str) -> bool {
    !["none", "minimal"].contains(&effort)
}

/// Reads a body: the conversation, what its replies have to be, and the rest.
fn asked(body: &Bytes, server: &Server, engine: &Engine) -> Result<(ChatState, Demand, Asked), Failure> {
    let fields: Fields = read(body)?;
    let body: ChatBody = read(body)?;
    few_enough(body.messages.len(), server)?;
    few_tools(&body.tools)?;
    few_variables(&body.chat_template_kwargs)?;
    let (overflow, whitespace) = (fields.overflow(server.overflow), fields.json_whitespace());
    let mut options = fields.options(engine)?;
    let limit = max_tokens(body.max_completion_tokens.or(body.max_tokens))?;
    options.max_tokens = limit.or(options.max_tokens);
    options.logprobs = body.logprobs.then(|| top_logprobs(body.top_logprobs)).transpose()?;
    let mut template_kwargs = body.chat_template_kwargs;
    let thinking = thinking(&mut template_kwargs)?.or(body.reasoning_effort.as_deref().map(thinks));
    let mut chat = ChatState {
        messages: messages(body.messages)?,
        reasoning: Some(thinking.unwrap_or(server.reasoning)),
        tools: functions(body.tools),
        template_kwargs,
        options,
        overflow,
        ..ChatState::default()
    };
    let format = match body.json_schema {
        Some(schema) => Format::Schema(SchemaOptions::default().with_whitespace(whitespace).put_into(schema)),
        None => body.response_format.unwrap_or_default().read(whitespace)?,
    };
    let calls = choice(body.tool_choice.as_ref(), &mut chat.tools)?;
    let held = held(&chat.tools, &format);
    let demand = server.compiling.demand(&mut chat, format, calls)?;
    let choices = choices(body.n, server)?;
    let asked = Asked {
        held,
        stream: body.stream,
        usage: body.stream_options.is_some_and(|options| options.include_usage),
        choices,
        one_call: body.parallel_tool_calls == Some(false),
        logprobs: body.logprobs,
    };
    Ok((chat, demand, asked))
}

/// Answers a request.
pub async fn complete(State(server): State<Arc<Server>>, body: JsonBody) -> Result<Response, Failure> {
    let engine = server.engine()?;
    let (of, with, needed) = (server.clone(), engine.clone(), body.conversation());
    let read = move || asked(&body.bytes, &of, &with);
    let (chat, asked, memory) = server.conversation(&engine, needed, read).await?;
    let Asked { held, stream, usage, choices, one_call, logprobs } = asked;
    let memory = kept(&engine, &chat, choices, held).reserve(memory)?;
    let works = Work::chats(&chat, choices);
    drop(chat);
    let job = Job::start(&server, engine.clone(), works, memory.clone()).await?;
    let words = ChatWords::new(&server.name, logprobs, usage);
    if stream {
        return Ok(events::stream(job, engine, choices, one_call, words));
    }
    let wholes = pieces::collect(job, &engine, choices, one_call).await?;
    Ok(counted_json(words.whole(wholes), memory))
}
