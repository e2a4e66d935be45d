//! Anthropic's interface, as Claude Code calls it.

mod input;
mod words;

use super::body::JsonBody;
use super::compiling::Demand;
use super::constraints::Format;
use super::failure::Failure;
use super::fields::{Fields, few_enough, few_tools, few_variables, held, kept, max_tokens, or_default, read, thinking};
use super::job::{Job, Work};
use super::router::{counted_json, json};
use super::server::{Engine, Server};
use super::{events, pieces};
use axum::body::Bytes;
use axum::extract::State;
use axum::response::Response;
use input::{GivenMessage, System, conversation, functions};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use wglm::text::ChatInput;
use wglm::{Calls, ChatState};
use words::MessageWords;

#[derive(Debug, Deserialize)]
struct MessageBody {
    messages: Vec<GivenMessage>,
    system: Option<System>,
    max_tokens: Option<i64>,
    #[serde(default, deserialize_with = "or_default")]
    stream: bool,
    #[serde(default, deserialize_with = "or_default")]
    tools: Vec<Value>,
    tool_choice: Option<Choice>,
    thinking: Option<Thinking>,
    output_config: Option<OutputConfig>,
    #[serde(default, deserialize_with = "or_default")]
    chat_template_kwargs: Map<String, Value>,
}

#[derive(Debug, Deserialize)]
struct Choice {
    #[serde(rename = "type")]
    kind: String,
    name: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    disable_parallel_tool_use: bool,
}

#[derive(Debug, Deserialize)]
struct Thinking {
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Debug, Deserialize)]
struct OutputConfig {
    format: Option<super::constraints::FormatField>,
}

/// What a body asks for.
struct Asked {
    chat: ChatState,
    demand: Demand,
    /// Bytes that its functions and its form take while the reply runs.
    held: usize,
    stream: bool,
    one_call: bool,
}

impl Choice {
    fn read(self) -> Result<Calls, Failure> {
        match (self.kind.as_str(), self.name) {
            ("auto", _) => Ok(Calls::Auto),
            ("none", _) => Ok(Calls::None),
            ("any", _) => Ok(Calls::Required),
            ("tool", Some(name)) => Ok(Calls::Function(name)),
            _ => Err(Failure::invalid("tool_choice: expected auto, any, none, or tool with a name")),
        }
    }
}

fn asked(body: &Bytes, server: &Server, engine: &Engine, replies: bool) -> Result<Asked, Failure> {
    let fields: Fields = read(body)?;
    let body: MessageBody = read(body)?;
    few_enough(body.messages.len(), server)?;
    few_tools(&body.tools)?;
    few_variables(&body.chat_template_kwargs)?;
    let (overflow, whitespace) = (fields.overflow(server.overflow), fields.json_whitespace());
    let mut options = fields.options(engine)?;
    options.max_tokens = max_tokens(body.max_tokens)?;
    if replies && options.max_tokens.is_none() {
        return Err(Failure::invalid("max_tokens: field required"));
    }
    let one_call = body.tool_choice.as_ref().is_some_and(|choice| choice.disable_parallel_tool_use);
    let mut template_kwargs = body.chat_template_kwargs;
    let asks = body.thinking.is_some_and(|thinking| thinking.kind != "disabled");
    let thinks = thinking(&mut template_kwargs)?.unwrap_or(asks);
    let mut chat = ChatState {
        messages: conversation(body.system, body.messages)?,
        reasoning: Some(thinks),
        tools: functions(body.tools),
        template_kwargs,
        options,
        overflow,
        ..ChatState::default()
    };
    let format = body.output_config.and_then(|config| config.format);
    let format = format.map_or(Ok(Format::Text), |format| format.read(whitespace))?;
    let choice = body.tool_choice.map_or(Ok(Calls::Auto), Choice::read)?;
    let held = held(&chat.tools, &format);
    // What only counts tokens compiles nothing.
    let demand = if replies { server.compiling.demand(&mut chat, format, choice)? } else { Demand::Met };
    Ok(Asked { chat, demand, held, stream: body.stream, one_call })
}

/// `/v1/messages`.
pub async fn message(State(server): State<Arc<Server>>, body: JsonBody) -> Result<Response, Failure> {
    let engine = server.engine()?;
    let (of, with, needed) = (server.clone(), engine.clone(), body.conversation());
    let read = move || {
        let Asked { chat, demand, held, stream, one_call } = asked(&body.bytes, &of, &with, true)?;
        Ok((chat, demand, (held, stream, one_call)))
    };
    let (chat, (held, stream, one_call), memory) = server.conversation(&engine, needed, read).await?;
    let memory = kept(&engine, &chat, 1, held).reserve(memory)?;
    let (works, stops) = (Work::chats(&chat, 1), chat.options().stop.clone());
    drop(chat);
    let job = Job::start(&server, engine.clone(), works, memory.clone()).await?;
    let mut words = MessageWords::new(&server.name, stops);
    if stream {
        return Ok(events::stream(job, engine, 1, one_call, words));
    }
    let mut whole = pieces::collect(job, &engine, 1, one_call).await?;
    Ok(counted_json(words.whole(whole.pop().unwrap_or_default()).to_string(), memory))
}

/// `/v1/messages/count_tokens`.
pub async fn count_tokens(State(server): State<Arc<Server>>, body: JsonBody) -> Result<Response, Failure> {
    body.check_text()?;
    let engine = server.engine()?;
    let (of, needed) = (server.clone(), body.conversation());
    let count = move || {
        let Asked { chat, .. } = asked(&body.bytes, &of, &engine, false)?;
        let mut input = ChatInput::new(&chat.messages);
        input.tools = Some(chat.tools.as_slice()).filter(|tools| !tools.is_empty());
        input.enable_thinking = chat.reasoning;
        input.extra = chat.template_kwargs;
        let prompt = engine.model.template()?.prompt(&input, engine.model.tokenizer()?)?;
        Ok(json!({"input_tokens": prompt.tokens.len()}))
    };
    let (counted, _memory) = server.work(&server.pools.tools, needed, count).await?;
    Ok(json(&counted))
}
