//! The blocks of a request as messages.

use crate::cli::serve::failure::Failure;
use crate::cli::serve::fields::few_parts;
use crate::cli::serve::openai::conversation::refused;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use wglm::text::{FunctionCall, Message, ToolCall};

/// How a line begins, the first of the system, that Claude Code changes with every request. It would end what the cache
/// can keep.
const BILLING: &str = "x-anthropic-billing-header:";

/// The system message: text, or blocks of it.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum System {
    Text(String),
    Blocks(Vec<TextBlock>),
}

#[derive(Debug, Deserialize)]
pub struct TextBlock {
    text: String,
}

/// A message as it was given.
#[derive(Debug, Deserialize)]
pub struct GivenMessage {
    role: String,
    content: Blocks,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Blocks {
    Text(String),
    Blocks(Vec<Block>),
}

/// A block of any type.
#[derive(Debug, Deserialize)]
struct Block {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    thinking: Option<String>,
    id: Option<String>,
    name: Option<String>,
    input: Option<Value>,
    tool_use_id: Option<String>,
    content: Option<Value>,
    #[serde(default)]
    is_error: Option<bool>,
}

/// The messages of a conversation.
pub fn conversation(system: Option<System>, given: Vec<GivenMessage>) -> Result<Vec<Message>, Failure> {
    let mut messages = Vec::new();
    let mut texts: Vec<String> = match system {
        None => Vec::new(),
        Some(System::Text(text)) => vec![text],
        Some(System::Blocks(blocks)) => blocks.into_iter().map(|block| block.text).collect(),
    };
    // The line is looked for where it is sent and nowhere else, so that a later text may quote it.
    if let Some(first) = texts.first_mut() {
        *first = lasting(std::mem::take(first));
    }
    texts.retain(|text| !text.is_empty());
    if !texts.is_empty() {
        messages.push(Message::system(texts.join("\n\n")));
    }
    for (index, GivenMessage { role, content }) in given.into_iter().enumerate() {
        let blocks = match content {
            Blocks::Text(text) => {
                messages.push(plain(index, &role, text)?);
                continue;
            }
            Blocks::Blocks(blocks) => blocks,
        };
        few_parts(index, "blocks", blocks.len())?;
        match role.as_str() {
            "assistant" => messages.push(said(index, blocks)?),
            "user" | "system" => heard(index, &role, blocks, &mut messages)?,
            _ => return Err(wrong_role(index, &role)),
        }
    }
    Ok(messages)
}

/// The first text of the system without the line that changes with every request. It is a block of its own, or stands
/// before the rest where somebody joined the blocks.
fn lasting(text: String) -> String {
    if !text.starts_with(BILLING) {
        return text;
    }
    text.split_once('\n').map(|(_, rest)| rest.trim_start_matches(['\r', '\n']).to_owned()).unwrap_or_default()
}

fn plain(index: usize, role: &str, text: String) -> Result<Message, Failure> {
    match role {
        "user" => Ok(Message::user(text)),
        "assistant" => Ok(Message::assistant(text)),
        "system" => Ok(Message::system(text)),
        _ => Err(wrong_role(index, role)),
    }
}

fn wrong_role(index: usize, role: &str) -> Failure {
    let role: String = role.chars().take(80).collect();
    Failure::invalid(format!("messages.{index}: role {role}: expected user or assistant"))
}

/// What the model said.
fn said(index: usize, blocks: Vec<Block>) -> Result<Message, Failure> {
    let (mut texts, mut thinking, mut calls) = (Vec::new(), Vec::new(), Vec::new());
    for block in blocks {
        match block.kind.as_str() {
            "text" => texts.extend(block.text),
            "thinking" => thinking.extend(block.thinking),
            "tool_use" => {
                let arguments = block.input.unwrap_or_else(|| Value::Object(Map::new()));
                let function = FunctionCall { name: block.name.unwrap_or_default(), arguments };
                calls.push(ToolCall { id: block.id, kind: "function".into(), function });
            }
            // What other models thought in secret, and what servers of others did.
            "redacted_thinking" | "server_tool_use" | "web_search_tool_result" => {}
            other => return Err(refused(index, &other.chars().take(80).collect::<String>())),
        }
    }
    let mut message = Message { role: "assistant".into(), tool_calls: calls, ..Message::default() };
    message.content = (!texts.is_empty()).then(|| texts.join("\n").into());
    message.reasoning_content = (!thinking.is_empty()).then(|| thinking.join("\n"));
    Ok(message)
}

/// What the model heard: results of functions first, as they answer its calls.
fn heard(index: usize, role: &str, blocks: Vec<Block>, messages: &mut Vec<Message>) -> Result<(), Failure> {
    let mut texts = Vec::new();
    for block in blocks {
        match block.kind.as_str() {
            "text" => texts.extend(block.text),
            "tool_result" => {
                let text = result(index, block.content.as_ref().unwrap_or(&Value::Null))?;
                let text = if block.is_error == Some(true) { format!("Error: {text}") } else { text };
                messages.push(Message::tool(block.tool_use_id.unwrap_or_default(), text));
            }
            other => return Err(refused(index, &other.chars().take(80).collect::<String>())),
        }
    }
    if !texts.is_empty() {
        messages.push(Message::new(role, texts.join("\n")));
    }
    Ok(())
}

/// The text of a function's result.
fn result(index: usize, content: &Value) -> Result<String, Failure> {
    match content {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text.clone()),
        Value::Array(blocks) => {
            few_parts(index, "blocks", blocks.len())?;
            let text = |block: &Value| match block.get("text").and_then(Value::as_str) {
                Some(text) => Ok(text.to_owned()),
                // Names of tools that a search found: the client describes them as functions beside.
                None if block.get("type").and_then(Value::as_str) == Some("tool_reference") => Ok(block.to_string()),
                None => Err(refused(index, block.get("type").and_then(Value::as_str).unwrap_or("other"))),
            };
            Ok(blocks.iter().map(text).collect::<Result<Vec<_>, _>>()?.join("\n"))
        }
        other => Ok(other.to_string()),
    }
}

/// The functions among the tools, in OpenAI's form. Tools of other types are what Anthropic's servers do.
pub fn functions(tools: Vec<Value>) -> Vec<Value> {
    let function = |tool: Value| {
        let custom = tool.get("type").is_none_or(|kind| kind.is_null() || kind.as_str() == Some("custom"));
        let name = tool.get("name").and_then(Value::as_str).filter(|_| custom)?;
        let mut function = json!({"name": name});
        for (field, called) in [("description", "description"), ("input_schema", "parameters")] {
            if let Some(value) = tool.get(field).filter(|value| !value.is_null()) {
                function[called] = value.clone();
            }
        }
        Some(json!({"type": "function", "function": function}))
    };
    tools.into_iter().filter_map(function).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{GivenMessage, System, conversation, functions};
    use serde_json::{Value, json};

    fn read(system: Value, messages: Value) -> Vec<wglm::Message> {
        let system: Option<System> = serde_json::from_value(system).unwrap();
        let messages: Vec<GivenMessage> = serde_json::from_value(messages).unwrap();
        conversation(system, messages).unwrap()
    }

    #[test]
    fn what_changes_with_each_request_is_dropped() {
        let system = |billed: &str| {
            json!([{"type": "text", "text": format!("x-anthropic-billing-header: cch={billed};")},
                   {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}])
        };
        let messages = || json!([{"role": "user", "content": "Hi."}]);
        assert_eq!(read(system("1"), messages()), read(system("2"), messages()));
        assert_eq!(read(system("1"), messages())[0].text(), "Be brief.");
        let joined = json!("x-anthropic-billing-header: cch=1;\n\nBe brief.\nBe kind.");
        assert_eq!(read(joined, messages())[0].text(), "Be brief.\nBe kind.");
        let quoted = "x-anthropic-billing-header: is a line that is dropped.";
        let later = json!([{"type": "text", "text": "Be brief."}, {"type": "text", "text": quoted}]);
        assert_eq!(read(later, messages())[0].text(), format!("Be brief.\n\n{quoted}"));
    }

    #[test]
    fn results_of_functions_come_before_what_else_was_said() {
        let messages = read(
            Value::Null,
            json!([
                {"role": "user", "content": [{"type": "text", "text": "Look."}]},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "s"},
                    {"type": "text", "text": "Let me."},
                    {"type": "tool_use", "id": "t1", "name": "ls", "input": {"path": "."}}]},
                {"role": "user", "content": [
                    {"type": "text", "text": "And now?"},
                    {"type": "tool_result", "tool_use_id": "t1", "is_error": true,
                     "content": [{"type": "text", "text": "gone"}]}]},
            ]),
        );
        let roles: Vec<&str> = messages.iter().map(|message| message.role.as_str()).collect();
        assert_eq!(roles, ["user", "assistant", "tool", "user"]);
        assert_eq!(messages[1].reasoning_content.as_deref(), Some("hm"));
        assert_eq!(messages[1].tool_calls[0].function.arguments, json!({"path": "."}));
        assert_eq!((messages[2].text().as_ref(), messages[2].tool_call_id.as_deref()), ("Error: gone", Some("t1")));
    }

    #[test]
    fn tools_of_anthropics_servers_are_left_out() {
        let tools = vec![
            json!({"type": "web_search_20250305", "name": "web_search"}),
            json!({"name": "ls", "description": "Lists", "input_schema": {"type": "object"}}),
        ];
        let wanted = json!({"name": "ls", "description": "Lists", "parameters": {"type": "object"}});
        assert_eq!(functions(tools), [json!({"type": "function", "function": wanted})]);
    }
}
