//! The blocks of a request as messages.

use crate::serve::constraints::function;
use crate::serve::conversation::{Origin, Origins};
use crate::serve::failure::{Failure, shown};
use crate::serve::parts::{Parts, check_parts, not_text, warn_of_parts};
use crate::serve::unmet::Warnings;
use serde::Deserialize;
use serde_json::{Map, Value};
use wglm_engine::text::{FunctionCall, Message, ToolCall};

/// The beginning of a line that Claude Code puts before the system prompt and changes with every request. The cache
/// could not be used beyond it.
const BILLING: &str = "x-anthropic-billing-header:";

/// The system message: text, or blocks of it.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a string or a list of text blocks")]
pub enum System {
    Text(String),
    Blocks(Vec<TextBlock>),
}

#[derive(Debug, Deserialize)]
pub struct TextBlock {
    text: String,
    #[serde(flatten)]
    others: Map<String, Value>,
}

#[derive(Debug, Deserialize)]
pub struct GivenMessage {
    role: String,
    content: Blocks,
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// The fields of a reply that a client sends back with the reply's message.
const REPLY_FIELDS: &[&str] = &["container", "id", "stop_reason", "stop_sequence", "type", "usage"];

/// The fields of the user's blocks that are read, or that come with a picture.
const USER_BLOCK_FIELDS: &[&str] =
    &["content", "context", "is_error", "source", "text", "title", "tool_use_id", "type"];

/// The fields of the assistant's blocks, which a client sends back.
const ASSISTANT_BLOCK_FIELDS: &[&str] =
    &["caller", "citations", "content", "data", "id", "input", "name", "signature", "text", "thinking", "type"];

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a string or a list of blocks")]
enum Blocks {
    Text(String),
    Blocks(Vec<Value>),
}

impl GivenMessage {
    /// Whether the user says something, besides what functions have returned.
    fn is_of_user(&self) -> bool {
        let is_own = |block: &Value| kind(block) != "tool_result";
        let has_own = match &self.content {
            Blocks::Text(_) => true,
            Blocks::Blocks(blocks) => blocks.iter().any(is_own),
        };
        self.role == "user" && has_own
    }

    /// The number of messages that the template gets for it. Each result of a function is a message of its own.
    fn count(&self) -> usize {
        match &self.content {
            Blocks::Blocks(blocks) if self.role != "assistant" => {
                let results = blocks.iter().filter(|block| kind(block) == "tool_result").count();
                results + usize::from(results < blocks.len())
            }
            _ => 1,
        }
    }
}

/// The number of messages that [`conversation`] makes of these, without the system prompt.
pub fn message_count(given: &[GivenMessage]) -> usize {
    given.iter().map(GivenMessage::count).sum()
}

/// A text field of a block.
fn field<'a>(block: &'a Value, name: &str) -> Option<&'a str> {
    block.get(name)?.as_str()
}

fn kind(block: &Value) -> &str {
    field(block, "type").unwrap_or("unknown")
}

/// The system prompt and the messages as the model's template takes them. Adds warnings about fields that nothing
/// reads.
pub fn conversation(
    system: Option<System>,
    given: Vec<GivenMessage>,
    to: &mut Warnings,
) -> Result<(Vec<Message>, Origins), Failure> {
    let (mut messages, mut origins) = (Vec::new(), Origins::new("messages"));
    let mut texts: Vec<String> = match system {
        None => Vec::new(),
        Some(System::Text(text)) => vec![text],
        Some(System::Blocks(blocks)) => {
            let others = blocks.iter().flat_map(|block| &block.others);
            to.ignored_in("system", others.filter(|(name, _)| name.as_str() != "type"));
            blocks.into_iter().map(|block| block.text).collect()
        }
    };
    // The line is only looked for where it is sent, so a later text may quote it.
    if let Some(first) = texts.first_mut() {
        *first = without_billing(std::mem::take(first));
    }
    texts.retain(|text| !text.is_empty());
    if !texts.is_empty() {
        messages.push(Message::system(texts.join("\n\n")));
    }
    origins.add(messages.len(), Origin::Field("system"));
    let mut parts = Parts::new(given.iter().rposition(GivenMessage::is_of_user));
    for (index, message) in given.into_iter().enumerate() {
        one(index, message, &mut parts, (&mut messages, &mut origins), to)
            .map_err(|failure| failure.within(&format!("messages[{index}]")))?;
        origins.add(messages.len(), Origin::Item(index));
    }
    Ok((messages, origins))
}

/// Adds the messages for one of the request.
fn one(
    index: usize,
    GivenMessage { role, content, others }: GivenMessage,
    parts: &mut Parts,
    (messages, origins): (&mut Vec<Message>, &mut Origins),
    to: &mut Warnings,
) -> Result<(), Failure> {
    to.ignored_in("messages", others.iter().filter(|(name, _)| !REPLY_FIELDS.contains(&name.as_str())));
    let blocks = match content {
        Blocks::Text(text) => {
            messages.push(plain(&role, text)?);
            return Ok(());
        }
        Blocks::Blocks(blocks) => blocks,
    };
    check_parts("content", "blocks", blocks.len())?;
    let known = if role == "assistant" { ASSISTANT_BLOCK_FIELDS } else { USER_BLOCK_FIELDS };
    warn_of_parts("messages.content", &blocks, known, to);
    for results in blocks.iter().filter(|block| kind(block) == "tool_result") {
        let parts = results.get("content").and_then(Value::as_array);
        warn_of_parts("messages.content.content", parts.map_or(&[], Vec::as_slice), USER_BLOCK_FIELDS, to);
    }
    match role.as_str() {
        "assistant" => messages.push(assistant(blocks, to)?),
        "user" | "system" => user(index, &role, &blocks, parts, (messages, origins))?,
        _ => return Err(wrong_role(&role)),
    }
    Ok(())
}

/// The first text of the system prompt without the line that changes with every request. The line is a block of its
/// own, or precedes the rest where a client joined the blocks.
fn without_billing(text: String) -> String {
    if !text.starts_with(BILLING) {
        return text;
    }
    text.split_once('\n').map(|(_, rest)| rest.trim_start_matches(['\r', '\n']).to_owned()).unwrap_or_default()
}

fn plain(role: &str, text: String) -> Result<Message, Failure> {
    match role {
        "user" => Ok(Message::user(text)),
        "assistant" => Ok(Message::assistant(text)),
        "system" => Ok(Message::system(text)),
        _ => Err(wrong_role(role)),
    }
}

fn wrong_role(role: &str) -> Failure {
    Failure::of_field("role", format_args!("{}: expected user or assistant", shown(role)))
}

fn assistant(blocks: Vec<Value>, to: &mut Warnings) -> Result<Message, Failure> {
    let (mut texts, mut thinking, mut calls) = (Vec::new(), Vec::new(), Vec::new());
    for (at, mut block) in blocks.into_iter().enumerate() {
        let text = |name| field(&block, name).map(str::to_owned);
        match kind(&block) {
            "text" => texts.extend(text("text")),
            "thinking" => thinking.extend(text("thinking")),
            "tool_use" => {
                let (id, name) = (text("id"), text("name").unwrap_or_default());
                let input = block.get_mut("input").map(Value::take).filter(|input| !input.is_null());
                let arguments = input.unwrap_or_else(|| Value::Object(Map::new()));
                calls.push(ToolCall { id, kind: "function".into(), function: FunctionCall { name, arguments } });
            }
            "redacted_thinking" => {} // encrypted, by the servers of another model
            kind @ ("server_tool_use" | "web_search_tool_result") => {
                to.ignored(&format!("messages.content: a block of type {kind}"));
            }
            other => return Err(not_text(other).within(&format!("content[{at}]"))),
        }
    }
    let mut message = Message { role: "assistant".into(), tool_calls: calls, ..Message::default() };
    message.content = (!texts.is_empty()).then(|| texts.join("\n").into());
    message.reasoning_content = (!thinking.is_empty()).then(|| thinking.join("\n"));
    Ok(message)
}

/// Adds the messages for one message of the user: results of functions first, since they answer the model's calls.
fn user(
    index: usize,
    role: &str,
    blocks: &[Value],
    parts: &mut Parts,
    (messages, origins): (&mut Vec<Message>, &mut Origins),
) -> Result<(), Failure> {
    let mut texts = Vec::new();
    for (at, block) in blocks.iter().enumerate() {
        let within = |failure: Failure| failure.within(&format!("content[{at}]"));
        if kind(block) != "tool_result" {
            texts.push(parts.part(index, block).map_err(within)?);
            continue;
        }
        let text = parts.result("content", block.get("content")).map_err(within)?;
        let has_failed = block.get("is_error").and_then(Value::as_bool) == Some(true);
        let text = if has_failed { format!("Error: {text}") } else { text };
        messages.push(Message::tool(field(block, "tool_use_id").unwrap_or_default(), text));
        origins.add(messages.len(), Origin::Block(index, at));
    }
    if !texts.is_empty() {
        messages.push(Message::new(role, texts.join("\n")));
    }
    Ok(())
}

/// Whether the last message is the beginning of the reply, which it is if it is the assistant's. An empty one is
/// removed.
pub fn begins_reply(messages: &mut Vec<Message>) -> Result<bool, Failure> {
    let by_assistant = |message: &Message| message.role == "assistant";
    messages.pop_if(|last| {
        by_assistant(last) && last.text().is_empty() && last.reasoning_content.is_none() && last.tool_calls.is_empty()
    });
    let Some(last) = messages.last().filter(|last| by_assistant(last)) else { return Ok(false) };
    if last.text().ends_with(char::is_whitespace) {
        return Err(Failure::invalid("messages: final assistant content cannot end with trailing whitespace"));
    }
    Ok(true)
}

/// Whether a tool is a function. Anthropic's servers run tools of other types.
pub fn is_function(tool: &Value) -> bool {
    let kind = field(tool, "type");
    let is_own = tool.get("name").is_some_and(Value::is_string) && kind.is_none_or(|kind| kind == "custom");
    is_own || kind == Some("function")
}

/// The functions among the tools, in OpenAI's form, which clients may send as well.
pub fn functions(tools: &[Value]) -> Result<Vec<Value>, Failure> {
    let own = |(index, tool): (usize, &Value)| {
        let place = format!("tools[{index}]");
        match tool.get("function") {
            Some(inner) if field(tool, "type") == Some("function") => {
                function(&format!("{place}.function"), inner, ["name", "description", "parameters"])
            }
            None if tool.get("parameters").is_some() => function(&place, tool, ["name", "description", "parameters"]),
            _ => function(&place, tool, ["name", "description", "input_schema"]),
        }
    };
    tools.iter().enumerate().filter(|(_, tool)| is_function(tool)).map(own).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{GivenMessage, System, Warnings, conversation, functions, message_count};
    use serde_json::{Value, json};

    fn read(system: Value, messages: Value) -> Vec<wglm_engine::Message> {
        read_with(system, messages, &mut Warnings::default())
    }

    fn read_with(system: Value, messages: Value, to: &mut Warnings) -> Vec<wglm_engine::Message> {
        let system: Option<System> = serde_json::from_value(system).unwrap();
        let messages: Vec<GivenMessage> = serde_json::from_value(messages).unwrap();
        conversation(system, messages, to).unwrap().0
    }

    #[test]
    fn fields_that_nothing_reads_are_named() {
        let (mut warnings, ephemeral) = (Warnings::default(), json!({"type": "ephemeral"}));
        let system = json!([{"type": "text", "text": "Be brief.", "cache_control": ephemeral, "weight": 2}]);
        let reply = json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "tool_use",
            "stop_sequence": null, "usage": {"output_tokens": 3}, "mood": "glad",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "text", "text": "Let me.", "citations": [{"type": "char_location"}]},
                {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}},
                {"type": "tool_use", "id": "t1", "name": "ls", "input": {}, "caller": {"type": "direct"}}]
        });
        let results = json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t1", "is_error": true, "cache_control": ephemeral,
             "content": [{"type": "text", "text": "a", "weight": 2}]},
            {"type": "document", "title": "t", "context": "c", "citations": {"enabled": true},
             "source": {"type": "text", "media_type": "text/plain", "data": "x"}}]});
        assert_eq!(read_with(system, json!([reply, results]), &mut warnings).len(), 4);
        let names = [
            "system.weight",
            "messages.mood",
            "messages.content: a block of type server_tool_use",
            "messages.content.citations",
            "messages.content.content.weight",
        ];
        assert_eq!(warnings.texts(), names.map(|name| format!("{name}: not supported; ignored")));
    }

    #[test]
    fn errors_name_the_messages_of_the_request() {
        let system: Option<System> = serde_json::from_value(json!("Be brief.")).unwrap();
        let given = json!([
            {"role": "user", "content": "Look."},
            {"role": "user", "content": [
                {"type": "text", "text": "?"}, {"type": "tool_result", "tool_use_id": "t1", "content": "a"}]},
            {"role": "assistant", "content": "!"}]);
        let given: Vec<GivenMessage> = serde_json::from_value(given).unwrap();
        let (messages, origins) = conversation(system, given, &mut Warnings::default()).unwrap();
        let places: Vec<String> = (0..messages.len()).map(|index| origins.place(index)).collect();
        assert_eq!(places, ["system", "messages[0]", "messages[1].content[1]", "messages[1]", "messages[2]"]);
        let result = json!([{"type": "text", "text": "a"}, {"type": "audio"}]);
        for (content, place) in [
            (json!([{"type": "text", "text": "?"}, {"type": "audio"}]), "messages[0].content[1]: a part of type audio"),
            (json!([{"type": "tool_result", "content": result}]), "messages[0].content[0].content[1]: a part of type"),
        ] {
            let given = serde_json::from_value(json!([{"role": "user", "content": content}])).unwrap();
            let failure = conversation(None, given, &mut Warnings::default()).unwrap_err();
            assert!(failure.message.starts_with(place), "{failure:?}");
        }
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
    fn results_of_functions_come_before_text() {
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
    fn each_result_counts_as_a_message() {
        let result = |id: &str| json!({"type": "tool_result", "tool_use_id": id, "content": "a"});
        let text = json!({"type": "text", "text": "?"});
        let messages = json!([
            {"role": "user", "content": "Look."},
            {"role": "assistant", "content": [text, {"type": "text", "text": "Let me."}]},
            {"role": "user", "content": [result("t1"), result("t2"), text, result("t3"), text]},
            {"role": "user", "content": [result("t4"), result("t5")]},
            {"role": "user", "content": []}]);
        let given: Vec<GivenMessage> = serde_json::from_value(messages.clone()).unwrap();
        assert_eq!(message_count(&given), 8);
        assert_eq!(read(Value::Null, messages).len(), 8);
    }

    #[test]
    fn functions_may_have_openais_form() {
        let parameters = json!({"type": "object"});
        let inner = json!({"name": "ls", "parameters": parameters});
        let flat = json!({"type": "function", "name": "ls", "parameters": parameters});
        let tools = [json!({"name": "ls", "input_schema": parameters}), json!({"type": "function", "function": inner})];
        for tool in tools.into_iter().chain([flat]) {
            assert_eq!(functions(&[tool]).unwrap(), [json!({"type": "function", "function": inner})]);
        }
        for (tool, field) in [
            (json!({"type": "function", "function": {}}), "tools[0].function.name"),
            (json!({"type": "function", "function": 3}), "tools[0].function.name"),
            (json!({"type": "function"}), "tools[0].name"),
        ] {
            assert_eq!(functions(&[tool]).unwrap_err().param.as_deref(), Some(field));
        }
    }

    #[test]
    fn tools_of_anthropics_servers_are_left_out() {
        let tools = vec![
            json!({"type": "web_search_20250305", "name": "web_search"}),
            json!({"name": "ls", "description": "Lists", "input_schema": {"type": "object"}}),
        ];
        let wanted = json!({"name": "ls", "description": "Lists", "parameters": {"type": "object"}});
        assert_eq!(functions(&tools).unwrap(), [json!({"type": "function", "function": wanted})]);
        let wrong = [tools[0].clone(), json!({"name": "f", "input_schema": "x"})];
        let failure = functions(&wrong).unwrap_err();
        assert_eq!(failure.message, "tools[1].input_schema: expected an object, found \"x\"");
    }
}
