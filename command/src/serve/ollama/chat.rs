//! `/api/chat`.

use super::fields::Common;
use super::lines::{LinesBody, Part, nothing};
use crate::serve::conversation::{check_messages, check_tools};
use crate::serve::failure::Failure;
use crate::serve::interface::Prompt;
use crate::serve::openai::messages;
use crate::serve::server::{LoadedModel, Server};
use crate::serve::unmet::Warnings;
use serde::Deserialize;
use serde_json::{Value, json};
use wglm_engine::{Content, Message};

#[derive(Debug, Deserialize)]
pub struct Body {
    messages: Option<Vec<Message>>,
    tools: Option<Vec<Value>>,
    #[serde(flatten)]
    common: Common,
}

/// A message whose fields have the names of chat completions, and whose pictures are a part of its content.
fn renamed(mut message: Message) -> Message {
    if message.extra.get("images").and_then(Value::as_array).is_some_and(|images| !images.is_empty()) {
        message.extra.shift_remove("images");
        let mut parts = match message.content.take() {
            Some(Content::Parts(parts)) => parts,
            Some(Content::Text(text)) => vec![text.into()],
            None => Vec::new(),
        };
        parts.push(json!({"type": "image"}));
        message.content = Some(Content::Parts(parts));
    }
    if let (None, Some(Value::String(name))) = (&message.name, message.extra.get("tool_name")) {
        message.name = Some(name.clone());
        message.extra.shift_remove("tool_name");
    }
    message
}

impl LinesBody for Body {
    fn common(&mut self) -> &mut Common {
        &mut self.common
    }

    fn prompt(self, server: &Server, loaded: &LoadedModel, to: &mut Warnings) -> Result<(Prompt, usize), Failure> {
        let given = self.messages.unwrap_or_default();
        if given.is_empty() {
            return Ok(nothing());
        }
        check_messages("messages", given.len(), server)?;
        let tools = self.tools.unwrap_or_default();
        check_tools(&tools)?;
        to.tools("", &tools, messages::is_function);
        let messages = messages::messages(given.into_iter().map(renamed).collect(), to)?;
        let conversation = self.common.conversation(messages, messages::functions(tools)?, server)?;
        let (chat, demand, held) = conversation.chat(server, loaded)?;
        Ok((Prompt::Chat(Box::new(chat), demand), held))
    }

    fn write(part: Part<'_>, to: &mut Value) {
        let mut message = json!({"role": "assistant", "content": part.text});
        if !part.thinking.is_empty() {
            message["thinking"] = part.thinking.into();
        }
        if !part.calls.is_empty() {
            message["tool_calls"] = part.calls.into();
        }
        to["message"] = message;
    }
}
