//! Anthropic's API, as Claude Code calls it.

mod blocks;
mod input;

use super::body::JsonBody;
use super::constraints::{Format, FormatField};
use super::conversation::{Conversation, check_messages, check_tools, template_input};
use super::failure::Failure;
use super::fields::{Fields, max_tokens, read};
use super::interface::{Prompt, Request};
use super::memory::Share;
use super::router::json;
use super::server::{LoadedModel, Server};
use axum::extract::State;
use axum::response::Response;
use input::{GivenMessage, System, begins_reply, conversation, functions};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use wglm_engine::Calls;

pub use blocks::Messages;

#[derive(Debug, Deserialize)]
pub struct Body {
    messages: Vec<GivenMessage>,
    system: Option<System>,
    max_tokens: Option<i64>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<ToolChoice>,
    thinking: Option<Thinking>,
    output_config: Option<OutputConfig>,
    #[serde(flatten)]
    fields: Fields,
}

#[derive(Debug, Deserialize)]
struct ToolChoice {
    #[serde(rename = "type")]
    kind: String,
    name: Option<String>,
    disable_parallel_tool_use: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct Thinking {
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Debug, Deserialize)]
struct OutputConfig {
    format: Option<FormatField>,
}

impl ToolChoice {
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

impl Body {
    fn conversation(self, server: &Server) -> Result<Conversation, Failure> {
        check_messages(self.messages.len(), server)?;
        let tools = self.tools.unwrap_or_default();
        check_tools(&tools)?;
        let format = self.output_config.and_then(|config| config.format);
        Ok(Conversation {
            messages: conversation(self.system, self.messages)?,
            tools: functions(&tools),
            calls: self.tool_choice.map_or(Ok(Calls::Auto), ToolChoice::read)?,
            format: format.map_or(Ok(Format::Text), |format| format.read(self.fields.json_whitespace == Some(true)))?,
            max_tokens: self.max_tokens,
            thinking: self.thinking.is_some_and(|thinking| thinking.kind != "disabled"),
            overflow: server.overflow,
            fields: self.fields,
        })
    }
}

fn request(body: Body, server: &Server, loaded: &LoadedModel) -> Result<(Prompt, Request<Messages>), Failure> {
    if max_tokens(body.max_tokens)?.is_none() {
        return Err(Failure::invalid("max_tokens: field required"));
    }
    let stream = body.fields.stream();
    let one_call = body.tool_choice.as_ref().is_some_and(|choice| choice.disable_parallel_tool_use == Some(true));
    let mut conversation = body.conversation(server)?;
    let continues = begins_reply(&mut conversation.messages)?;
    let (mut chat, demand, held) = conversation.chat(server, loaded)?;
    chat.continues = continues;
    let interface = Messages::new(&server.name, chat.options.stop.clone());
    let request = Request { choices: 1, stream, one_call, held, interface };
    Ok((Prompt::Chat(Box::new(chat), demand), request))
}

/// `/v1/messages/count_tokens`.
pub async fn count_tokens(State(server): State<Arc<Server>>, body: JsonBody) -> Result<Response, Failure> {
    body.check_text()?;
    let loaded = server.loaded()?;
    let (of, needed) = (server.clone(), body.conversation());
    let count = move |_: &Share| {
        let chat = read::<Body>(&body.bytes)?.conversation(&of)?.state(&loaded)?;
        let prompt = loaded.model.template()?.prompt(&template_input(&chat), loaded.model.tokenizer()?)?;
        Ok(json!({"input_tokens": prompt.tokens.len()}))
    };
    let (counted, _memory) = server.work(&server.pools.tools, needed, count).await?;
    Ok(json(&counted))
}
