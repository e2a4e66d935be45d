//! What is wrong with a conversation before a template sees it: a template would blame itself, or leave it out in silence.

use crate::error::{Error, Result};
use crate::text::{ChatTemplate, Content, Message};
use serde_json::Value;

/// Roles that templates are left to judge themselves.
const ROLES: [&str; 4] = ["system", "user", "assistant", "tool"];
/// Characters of JSON that an error shows.
const SHOWN: usize = 80;

/// Names the first message that no prompt can be made of.
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

fn odd_part(message: &Message) -> Option<&Value> {
    let Some(Content::Parts(parts)) = &message.content else { return None };
    parts.iter().find(|part| !part.is_string() && !part.is_object())
}

/// Names the first description of a function that is none.
pub fn tools(tools: &[Value]) -> Result<()> {
    let wrong = |(index, tool): (usize, &Value)| Error::Argument {
        argument: "tools",
        expected: r#"descriptions of functions as {"type": "function", "function": {"name": …, …}}"#.to_owned(),
        found: format!("{} at {index}", shown(tool)),
    };
    let odd = tools.iter().enumerate().find(|(_, tool)| !is_function(tool));
    odd.map_or(Ok(()), |odd| Err(wrong(odd)))
}

/// In OpenAI's form, or without what that wraps around it.
fn is_function(tool: &Value) -> bool {
    let function = tool.get("function").unwrap_or(tool);
    let named = function.get("name").and_then(Value::as_str).is_some_and(|name| !name.is_empty());
    named && function.get("parameters").is_none_or(|parameters| parameters.is_object() || parameters.is_null())
}

fn shown(value: &Value) -> String {
    let json = value.to_string();
    match json.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &json[..end]),
        None => json,
    }
}
