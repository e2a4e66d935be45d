//! `/v1/responses`, as Codex calls it. Nothing is kept between requests, so each has its whole conversation.

mod echo;
mod input;
mod items;
mod namespaces;

use crate::serve::body::JsonBody;
use crate::serve::constraints::{FormatField, choice};
use crate::serve::conversation::{Conversation, check_messages, check_tools};
use crate::serve::counting::count;
use crate::serve::failure::Failure;
use crate::serve::fields::{Fields, max_tokens};
use crate::serve::interface::{Prompt, Request};
use crate::serve::router::json;
use crate::serve::server::{LoadedModel, Server};
use crate::serve::unmet::{OtherFields, Warnings};
use axum::extract::State;
use axum::response::Response;
use input::{Item, conversation};
use namespaces::Namespaces;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;
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
    #[serde(flatten)]
    others: OtherFields,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Input {
    Text(String),
    Items(Vec<Item>),
}

/// Refuses what would need something that is kept between requests.
fn check_complete(body: &Body) -> Result<(), Failure> {
    let whole = "send the whole conversation as input";
    for (field, is_missing, kept, remedy) in [
        (
            "previous_response_id",
            body.previous_response_id.as_ref().is_some_and(|id| !id.is_empty()),
            "responses",
            whole,
        ),
        ("conversation", body.conversation.is_some(), "conversations", whole),
        ("prompt", body.prompt.as_ref().is_some_and(Value::is_object), "prompts", "send its text"),
        ("background", body.background == Some(true), "responses", "leave this field out"),
    ] {
        if is_missing {
            let wrong = format!("{kept} are not kept; {remedy}");
            return Err(Failure::of_field(field, wrong).with_code("unsupported"));
        }
    }
    Ok(())
}

/// The messages of the conversation, with the instructions as the first.
fn messages(body: &mut Body, namespaces: &Namespaces, server: &Server) -> Result<Vec<Message>, Failure> {
    let mut messages = match body.input.take() {
        None => return Err(Failure::invalid("there is no input").with_param("input")),
        Some(Input::Text(text)) => vec![Message::user(text)],
        Some(Input::Items(items)) => {
            check_messages("input", items.len(), server)?;
            conversation(items, namespaces)?
        }
    };
    body.instructions.take_if(|text| text.is_empty());
    if let Some(instructions) = &body.instructions {
        messages.insert(0, Message::system(instructions.as_str()));
    }
    Ok(messages)
}

impl Body {
    /// The format of the answer, as it was given.
    fn format(&self) -> &Value {
        self.text.as_ref().and_then(|text| text.get("format")).unwrap_or(&Value::Null)
    }

    /// The conversation, and the namespaces of its functions. What a response repeats stays in the body.
    fn conversation(&mut self, server: &Server, to: &mut Warnings) -> Result<(Conversation, Namespaces), Failure> {
        check_complete(self)?;
        let given = self.tools.as_deref().unwrap_or_default();
        check_tools(given)?;
        let (mut tools, namespaces) = Namespaces::read(given, to)?;
        check_tools(&tools)?;
        let messages = messages(self, &namespaces, server)?;
        let overflow = match self.truncation.as_deref() {
            None => server.overflow,
            Some("auto") => Overflow::DROP_OLDEST,
            Some("disabled") => Overflow::Refuse,
            Some(_) => return Err(Failure::of_field("truncation", "expected auto or disabled")),
        };
        let format: Option<FormatField> = serde_json::from_value(self.format().clone())
            .map_err(|error| Failure::of_field("text.format", format_args!("cannot parse it: {error}")))?;
        let written = server.schema_options(self.fields.json_whitespace);
        let format = format.unwrap_or_default().read("text.format", written)?;
        self.tool_choice.as_mut().map_or(Ok(()), |choice| namespaces.resolve(choice))?;
        let calls = choice(self.tool_choice.as_ref(), &mut tools)?;
        let thinking = server.reasoning;
        let max_tokens = max_tokens([("max_output_tokens", self.max_output_tokens)])?;
        let fields = std::mem::take(&mut self.fields);
        let conversation = Conversation { messages, tools, calls, format, max_tokens, thinking, overflow, fields };
        Ok((conversation, namespaces))
    }
}

fn request(mut body: Body, server: &Server, loaded: &LoadedModel) -> Result<(Prompt, Request<Responses>), Failure> {
    let mut warnings = std::mem::take(&mut body.others).read()?;
    body.metadata.as_ref().map_or(Ok(()), echo::check_metadata)?;
    let (stream, reasoning) = (body.fields.stream(), body.fields.reasoning.clone().unwrap_or_default());
    let (conversation, namespaces) = body.conversation(server, &mut warnings)?;
    let constraints = echo::Constraints::of(&body, &conversation, &namespaces);
    let (chat, demand, held) = conversation.chat(server, loaded)?;
    let one_call = body.parallel_tool_calls == Some(false);
    let include_thinking = body.include.iter().flatten().any(|what| what == INCLUDE_THINKING);
    let echo = echo::fields(body, &reasoning, constraints, &chat);
    let held = held + echo::bytes(&echo) + namespaces.bytes();
    let interface = Responses::new(&server.name, echo, include_thinking, namespaces);
    let request = Request { choices: 1, stream, one_call, held, warnings: warnings.texts(), interface };
    Ok((Prompt::Chat(Box::new(chat), demand), request))
}

/// `/v1/responses/input_tokens`.
pub async fn input_tokens(State(server): State<Arc<Server>>, body: JsonBody) -> Result<Response, Failure> {
    let conversation = |mut body: Body, server: &Server| Ok(body.conversation(server, &mut Warnings::default())?.0);
    let tokens = count(server, body, conversation).await?;
    Ok(json(&json!({"object": "response.input_tokens", "input_tokens": tokens})))
}
