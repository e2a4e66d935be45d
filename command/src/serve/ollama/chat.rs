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
use std::collections::HashSet;
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

/// Makes results of functions acceptable that belong to no call in the conversation. Ollama does not look for the
/// calls, and programs that send only the end of a conversation cut calls off. A result after a call with another id
/// counts as a result of that call; one before any call becomes a text of the user, so that the model still knows it.
fn adopt_results(messages: &mut [Message], to: &mut Warnings) {
    let mut known: HashSet<Option<String>> = HashSet::new();
    for message in messages {
        known.extend(message.tool_calls.iter().map(|call| call.id.clone()));
        let id = message.tool_call_id.as_ref().filter(|id| !id.is_empty());
        if message.role != "tool" || known.contains(&None) {
            continue;
        }
        if known.is_empty() {
            let of = message.name.as_ref().map_or_else(String::new, |name| format!(" {name}"));
            let text = format!("The result of the function{of}: {}", message.text());
            *message = Message::user(text);
            to.add("messages", "a result without an earlier call became a message of the user");
        } else if id.is_some_and(|id| !known.contains(&Some(id.clone()))) {
            message.tool_call_id = None;
            to.add("messages.tool_call_id", "not the id of an earlier call; ignored");
        }
    }
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
        let mut messages = messages::messages(given.into_iter().map(renamed).collect(), to)?;
        adopt_results(&mut messages, to);
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Message, Warnings, adopt_results};
    use serde_json::{Value, json};

    /// The roles, texts and ids of calls that remain of these messages, and the number of warnings.
    fn adopted(messages: Value) -> (Vec<(String, String, Option<String>)>, usize) {
        let mut messages: Vec<Message> = serde_json::from_value(messages).unwrap();
        let mut warnings = Warnings::default();
        adopt_results(&mut messages, &mut warnings);
        let parts = |message: &Message| {
            (
                message.role.clone(),
                message.text().into_owned(),
                message.tool_call_id.clone().filter(|id| !id.is_empty()),
            )
        };
        (messages.iter().map(parts).collect(), warnings.texts().len())
    }

    /// Home Assistant keeps only the last messages of a conversation.
    #[test]
    fn a_result_without_a_call_is_a_text() {
        let (messages, warnings) = adopted(json!([
            {"role": "system", "content": "Be brief."},
            {"role": "tool", "name": "lamp", "content": "on"},
            {"role": "tool", "tool_call_id": "c", "content": "off"},
            {"role": "assistant", "content": "It is on."},
        ]));
        let [named, unnamed] = ["The result of the function lamp: on", "The result of the function: off"];
        assert_eq!((messages[1].0.as_str(), messages[1].1.as_str()), ("user", named));
        assert_eq!((messages[2].0.as_str(), messages[2].1.as_str()), ("user", unnamed));
        assert_eq!((messages.len(), messages[3].0.as_str(), warnings), (4, "assistant", 1));
    }

    #[test]
    fn a_result_after_a_call_is_its_result() {
        let call = |id: Value| json!({"id": id, "function": {"name": "lamp", "arguments": {}}});
        for (of_call, of_result, kept, warned) in [
            (json!("c"), json!("c"), Some("c"), 0),
            (json!("c"), json!("d"), None, 1),
            (json!("c"), json!(null), None, 0),
            (json!(null), json!("d"), Some("d"), 0),
        ] {
            let (messages, warnings) = adopted(json!([
                {"role": "user", "content": "?"},
                {"role": "assistant", "content": "", "tool_calls": [call(of_call)]},
                {"role": "tool", "content": "on", "tool_call_id": of_result},
            ]));
            let result = ("tool".to_owned(), "on".to_owned(), kept.map(str::to_owned));
            assert_eq!((&messages[2], warnings), (&result, warned));
        }
    }
}
