//! `/api/chat`.

use super::fields::Common;
use super::lines::{LinesBody, Part, nothing};
use crate::serve::conversation::{check_messages, check_tools, not_text};
use crate::serve::failure::Failure;
use crate::serve::interface::Prompt;
use crate::serve::openai::messages;
use crate::serve::server::{LoadedModel, Server};
use serde::Deserialize;
use serde_json::{Value, json};
use wglm_engine::Message;

#[derive(Debug, Deserialize)]
pub struct Body {
    messages: Option<Vec<Message>>,
    tools: Option<Vec<Value>>,
    #[serde(flatten)]
    common: Common,
}

/// A message whose fields have the names of chat completions. Pictures are refused.
fn renamed(index: usize, mut message: Message) -> Result<Message, Failure> {
    if message.extra.get("images").and_then(Value::as_array).is_some_and(|images| !images.is_empty()) {
        return Err(not_text(index, "image"));
    }
    if message.name.is_none() {
        message.name = message.extra.get("tool_name").and_then(Value::as_str).map(str::to_owned);
    }
    Ok(message)
}

impl LinesBody for Body {
    fn common(&self) -> &Common {
        &self.common
    }

    fn prompt(self, server: &Server, loaded: &LoadedModel) -> Result<(Prompt, usize), Failure> {
        let given = self.messages.unwrap_or_default();
        if given.is_empty() {
            return Ok(nothing());
        }
        check_messages(given.len(), server)?;
        let tools = self.tools.unwrap_or_default();
        check_tools(&tools)?;
        let given = given.into_iter().enumerate().map(|(index, message)| renamed(index, message));
        let messages = messages::messages(given.collect::<Result<_, _>>()?)?;
        let conversation = self.common.conversation(messages, messages::functions(tools), server)?;
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
