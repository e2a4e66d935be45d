//! `/v1/responses`, as Codex calls it. Nothing is kept between requests, so each has its whole conversation.

mod echo;
mod input;
mod items;

use super::chat::thinks;
use crate::serve::constraints::{FormatField, choice, function};
use crate::serve::conversation::{Conversation, check_messages, check_tools};
use crate::serve::failure::Failure;
use crate::serve::fields::Fields;
use crate::serve::interface::{Prompt, Request};
use crate::serve::server::{LoadedModel, Server};
use input::{Item, conversation};
use serde::Deserialize;
use serde_json::{Map, Value};
use wglm_engine::Overflow;
use wglm_engine::text::Message;

pub use items::Responses;

/// What a client puts into `include` to get the model's thinking in a form that it can send back.
const INCLUDE_THINKING: &str = "reasoning.encrypted_content";

#[derive(Debug, Deserialize)]
pub struct Body {
    input: Option<Input>,
    instructions: Option<String>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    parallel_tool_calls: Option<bool>,
    max_output_tokens: Option<i64>,
    reasoning: Option<Reasoning>,
    text: Option<Map<String, Value>>,
    truncation: Option<String>,
    include: Option<Vec<String>>,
    previous_response_id: Option<String>,
    conversation: Option<Value>,
    prompt: Option<Value>,
    background: Option<bool>,
    metadata: Option<Map<String, Value>>,
    #[serde(flatten)]
    fields: Fields,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Input {
    Text(String),
    Items(Vec<Item>),
}

#[derive(Debug, Default, Deserialize)]
struct Reasoning {
    effort: Option<String>,
    summary: Option<Value>,
}

/// The functions in the form of chat completions. In this interface their fields are next to `type`.
fn functions(tools: &[Value]) -> Vec<Value> {
    let own = |tool: &Value| {
        let named = tool.get("type").and_then(Value::as_str) == Some("function") && tool.get("name").is_some();
        named.then(|| function(tool, ["name", "description", "parameters"]))
    };
    tools.iter().filter_map(own).collect()
}

/// Refuses what would need something that is kept between requests.
fn check_complete(body: &Body) -> Result<(), Failure> {
    for (is_missing, message) in [
        (
            body.previous_response_id.as_ref().is_some_and(|id| !id.is_empty()),
            "previous_response_id: responses are not kept; send the whole conversation",
        ),
        (body.conversation.is_some(), "conversation: conversations are not kept; send the whole conversation as input"),
        (body.prompt.as_ref().is_some_and(Value::is_object), "prompt: prompts are not kept; send its text"),
        (body.background == Some(true), "background: responses are not kept; leave this field out"),
    ] {
        if is_missing {
            return Err(Failure::unsupported(message));
        }
    }
    Ok(())
}

/// The messages of the conversation, with the instructions as the first.
fn messages(body: &mut Body, server: &Server) -> Result<Vec<Message>, Failure> {
    let mut messages = match body.input.take() {
        None => return Err(Failure::invalid("there is no input")),
        Some(Input::Text(text)) => vec![Message::user(text)],
        Some(Input::Items(items)) => {
            check_messages(items.len(), server)?;
            conversation(items)?
        }
    };
    body.instructions.take_if(|text| text.is_empty());
    if let Some(instructions) = &body.instructions {
        messages.insert(0, Message::system(instructions.as_str()));
    }
    Ok(messages)
}

fn request(mut body: Body, server: &Server, loaded: &LoadedModel) -> Result<(Prompt, Request<Responses>), Failure> {
    check_complete(&body)?;
    body.metadata.as_ref().map_or(Ok(()), echo::check_metadata)?;
    check_tools(body.tools.as_deref().unwrap_or_default())?;
    let messages = messages(&mut body, server)?;
    let overflow = match body.truncation.as_deref() {
        None => server.overflow,
        Some("auto") => Overflow::DROP_OLDEST,
        Some("disabled") => Overflow::Refuse,
        Some(_) => return Err(Failure::invalid("truncation: expected auto or disabled")),
    };
    let given = body.text.as_ref().and_then(|text| text.get("format")).unwrap_or(&Value::Null);
    let format: Option<FormatField> = serde_json::from_value(given.clone())
        .map_err(|error| Failure::invalid(format!("cannot parse text.format: {error}")))?;
    let format = format.unwrap_or_default().read(body.fields.json_whitespace == Some(true))?;
    let mut tools = functions(body.tools.as_deref().unwrap_or_default());
    let calls = choice(body.tool_choice.as_ref(), &mut tools)?;
    let format_echo = echo::format(&format, given);
    let choice_echo = echo::choice(body.tool_choice.as_ref(), &calls, &tools);
    let fields = std::mem::take(&mut body.fields);
    let (stream, max_tokens) = (fields.stream(), body.max_output_tokens);
    let effort = body.reasoning.as_ref().and_then(|reasoning| reasoning.effort.as_deref());
    let thinking = effort.map_or(server.reasoning, thinks);
    let conversation = Conversation { messages, tools, calls, format, max_tokens, thinking, overflow, fields };
    let (chat, demand, held) = conversation.chat(server, loaded)?;
    let one_call = body.parallel_tool_calls == Some(false);
    let include_thinking = body.include.iter().flatten().any(|what| what == INCLUDE_THINKING);
    let echo = echo::fields(body, format_echo, choice_echo, &chat);
    let held = held + echo::bytes(&echo);
    let interface = Responses::new(&server.name, echo, include_thinking);
    let request = Request { choices: 1, stream, one_call, held, interface };
    Ok((Prompt::Chat(Box::new(chat), demand), request))
}
