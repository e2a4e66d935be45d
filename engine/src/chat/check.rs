//! Checks a conversation before the template renders it. Without these checks a template would report an error about
//! itself, or silently leave out a part of the conversation.

use crate::error::{Error, Result};
use crate::text::{ChatTemplate, Content, Message};
use serde_json::Value;
use std::collections::HashSet;

/// Roles that are accepted without a check: a template that does not support one of them refuses it.
const ROLES: [&str; 4] = ["system", "user", "assistant", "tool"];
/// The maximum number of characters of JSON that an error message shows.
const SHOWN: usize = 80;
/// The maximum number of ids that an error message lists.
const IDS: usize = 3;

/// Returns an error for the first message that cannot become part of a prompt.
pub fn messages(messages: &[Message], template: &ChatTemplate) -> Result<()> {
    messages.iter().enumerate().try_for_each(|(index, message)| {
        let wrong = |what, expected: &str, found| Error::Message { index, what, expected: expected.to_owned(), found };
        let role = message.role.as_str();
        if role.is_empty() || !ROLES.contains(&role) && !template.names_role(role) {
            let expected = format!("{}, or another that the model's chat template names", ROLES.join(", "));
            return Err(wrong("role", &expected, format!("{role:?}")));
        }
        if let Some(part) = odd_part(message) {
            return Err(wrong("content", "text, or parts that are strings or objects", shown(part)));
        }
        for call in &message.tool_calls {
            if call.function.name.is_empty() {
                return Err(wrong("tool call", "the name of a function", "an empty one".to_owned()));
            }
            if !call.function.arguments.is_object() {
                let found = format!("{} for {}", shown(&call.function.arguments), call.function.name);
                return Err(wrong("arguments of a tool call", "an object", found));
            }
        }
        Ok(())
    })
}

/// Returns an error for the first result of a function that belongs to no earlier call. Templates would render it, and
/// the model would react to a call that it never made. A history may begin with a call and its result, before any user
/// message, as OpenAI's API accepts it.
pub fn results(messages: &[Message]) -> Result<()> {
    let (mut called, mut known) = (Vec::new(), HashSet::new());
    for (index, message) in messages.iter().enumerate() {
        let of_message = message.tool_calls.iter().map(|call| call.id.as_deref());
        known.extend(of_message.clone());
        called.extend(of_message);
        if message.role != "tool" {
            continue;
        }
        let id = message.tool_call_id.as_deref().filter(|id| !id.is_empty());
        // A result without a known id may belong to a call without an id.
        let is_known = known.contains(&None) || id.map_or(!known.is_empty(), |id| known.contains(&Some(id)));
        if !is_known {
            let found = id.map_or("a result".to_owned(), |id| format!("{id:?}"));
            return Err(Error::Message { index, what: "tool_call_id", expected: ids(&called), found });
        }
    }
    Ok(())
}

/// The ids that a result may have, for an error message: the newest few.
fn ids(called: &[Option<&str>]) -> String {
    let newest: Vec<String> = called.iter().flatten().rev().take(IDS).map(|id| format!("{id:?}")).collect();
    match newest.as_slice() {
        [] => "a tool call before its result".to_owned(),
        newest => format!("the id of an earlier call, such as {}", newest.join(", ")),
    }
}

/// The first part of a message's content that is neither a string nor an object.
fn odd_part(message: &Message) -> Option<&Value> {
    let Some(Content::Parts(parts)) = &message.content else { return None };
    parts.iter().find(|part| !part.is_string() && !part.is_object())
}

/// The error for messages that do not end with the beginning of a reply.
pub fn not_begun(messages: &[Message]) -> Error {
    let found = messages.last().map_or("no message".to_owned(), |last| format!("one by the {}", last.role));
    Error::argument("messages", "a last message by the assistant, which the reply continues", found)
}

/// Returns an error for the first entry of `tools` that does not describe a function.
pub fn tools(tools: &[Value]) -> Result<()> {
    let wrong = |(index, tool): (usize, &Value)| {
        Error::argument(
            "tools",
            r#"function descriptions such as {"type": "function", "function": {"name": …, …}}"#,
            format!("{} at {index}", shown(tool)),
        )
    };
    let odd = tools.iter().enumerate().find(|(_, tool)| !is_function(tool));
    odd.map_or(Ok(()), |odd| Err(wrong(odd)))
}

/// Whether a value describes a function, either in OpenAI's form or as only the inner object of that form.
fn is_function(tool: &Value) -> bool {
    let function = tool.get("function").unwrap_or(tool);
    let named = function.get("name").and_then(Value::as_str).is_some_and(|name| !name.is_empty());
    named && function.get("parameters").is_none_or(|parameters| parameters.is_object() || parameters.is_null())
}

/// A value as JSON, cut to a length that suits an error message.
fn shown(value: &Value) -> String {
    let json = value.to_string();
    match json.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &json[..end]),
        None => json,
    }
}

#[cfg(test)]
mod tests {
    use super::results;
    use crate::text::{Message, ToolCall};

    #[test]
    fn results_may_come_in_any_order() {
        let call = |id: usize| ToolCall { id: Some(format!("call {id}")), ..ToolCall::new("owls", Default::default()) };
        let calls = Message::assistant("").with_tool_calls((0..5).map(call).collect());
        let result = |id: usize| Message::tool(format!("call {id}"), "7");
        let mut messages: Vec<Message> = [calls].into_iter().chain((0..5).rev().map(result)).collect();
        assert!(results(&messages).is_ok());
        messages.push(result(5));
        let error = results(&messages).map_err(|error| error.to_string());
        assert!(error.is_err_and(|error| error.contains("\"call 4\"")));
    }
}
