//! Anthropic's API, as Claude Code calls it.

mod blocks;
mod input;

use super::body::JsonBody;
use super::client::Client;
use super::constraints::{Format, FormatField};
use super::conversation::{Conversation, Origins, check_messages, check_tools};
use super::counting::count;
use super::failure::Failure;
use super::fields::{Fields, integer, max_tokens};
use super::interface::{Prompt, Request};
use super::memory::Share;
use super::router::json;
use super::server::{LoadedModel, Server};
use super::unmet::{OtherFields, Warnings};
use axum::extract::State;
use axum::response::Response;
use input::{GivenMessage, System, begins_reply, conversation, functions, is_function, message_count};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use wglm_engine::Calls;

pub use blocks::Messages;

/// The field that has the format of the answer.
const FORMAT: &str = "output_config.format";

#[derive(Debug, Deserialize)]
pub struct Body {
    messages: Vec<GivenMessage>,
    system: Option<System>,
    #[serde(default, deserialize_with = "integer")]
    max_tokens: Option<i64>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<ToolChoice>,
    output_config: Option<OutputConfig>,
    #[serde(flatten)]
    fields: Fields,
    #[serde(flatten)]
    others: OtherFields,
}

#[derive(Debug, Deserialize)]
struct ToolChoice {
    #[serde(rename = "type")]
    kind: String,
    name: Option<String>,
    disable_parallel_tool_use: Option<bool>,
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
            _ => Err(Failure::of_field("tool_choice", "expected auto, any, none, or tool with a name")),
        }
    }
}

impl Body {
    /// The conversation. Adds warnings about what nothing reads.
    fn conversation(self, server: &Server, to: &mut Warnings) -> Result<(Conversation, Origins), Failure> {
        check_messages("messages", message_count(&self.messages), server)?;
        let tools = self.tools.unwrap_or_default();
        check_tools(&tools)?;
        let format = self.output_config.and_then(|config| config.format);
        // Anthropic's API requires closed objects, and schemas may leave that out.
        let written = server.schema_options(self.fields.json_whitespace).with_closed(true);
        let (messages, origins) = conversation(self.system, self.messages, to)?;
        let conversation = Conversation {
            messages,
            tools: functions(&tools)?,
            calls: self.tool_choice.map_or(Ok(Calls::Auto), ToolChoice::read)?,
            format: format.map_or(Ok(Format::Text), |format| format.read(FORMAT, written))?,
            format_in: FORMAT,
            max_tokens: max_tokens([("max_tokens", self.max_tokens)])?,
            thinking: false,
            overflow: server.overflow,
            fields: self.fields,
            fields_in: "",
        };
        Ok((conversation, origins))
    }
}

fn request(mut body: Body, server: &Server, loaded: &LoadedModel) -> Result<(Prompt, Request<Messages>), Failure> {
    if max_tokens([("max_tokens", body.max_tokens)])?.is_none() {
        return Err(Failure::of_field("max_tokens", "field required"));
    }
    let mut warnings = std::mem::take(&mut body.others).read()?;
    warnings.tools("", body.tools.as_deref().unwrap_or_default(), is_function);
    let stream = body.fields.stream();
    let one_call = body.tool_choice.as_ref().is_some_and(|choice| choice.disable_parallel_tool_use == Some(true));
    let (mut conversation, origins) = body.conversation(server, &mut warnings)?;
    let continues = begins_reply(&mut conversation.messages)?;
    let (mut chat, demand, held) = conversation.chat(server, loaded)?;
    chat.continues = continues;
    let interface = Messages::new(&loaded.name, chat.options.stop.clone()).with_origins(origins);
    let request = Request { choices: 1, stream, one_call, held, warnings: warnings.texts(), interface };
    Ok((Prompt::Chat(Box::new(chat), demand), request))
}

/// `/v1/messages/count_tokens`.
pub async fn count_tokens(State(server): State<Arc<Server>>, body: JsonBody) -> Result<Response, Failure> {
    let conversation = |body: Body, server: &Server, _: Client, _: &Share| {
        let (mut conversation, _) = body.conversation(server, &mut Warnings::default())?;
        // The beginning of a reply is counted even if it ends with a space, which no reply could continue.
        let continues = begins_reply(&mut conversation.messages).unwrap_or(true);
        Ok((conversation, continues))
    };
    let tokens = count(server, body, conversation).await?;
    Ok(json(&json!({"input_tokens": tokens})))
}
