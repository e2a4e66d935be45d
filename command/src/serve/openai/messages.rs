//! Messages and functions of chat completions, checked and in the form of the library.

use crate::serve::constraints::check_function;
use crate::serve::failure::{Failure, shown};
use crate::serve::parse::read_field;
use crate::serve::parts::{Parts, check_parts, warn_of_parts};
use crate::serve::unmet::Warnings;
use serde_json::Value;
use wglm_engine::text::{Content, FunctionCall, Message, ToolCall};

/// The fields of parts of any type that are read, or that come with a picture.
const PART_FIELDS: &[&str] = &[
    "content",
    "context",
    "file",
    "file_data",
    "filename",
    "image",
    "image_url",
    "refusal",
    "source",
    "text",
    "title",
    "type",
];

/// The messages as the model's template takes them. Adds warnings about fields that nothing reads.
pub fn messages(messages: Vec<Message>, to: &mut Warnings) -> Result<Vec<Message>, Failure> {
    let mut parts = Parts::new(messages.iter().rposition(|message| message.role == "user"));
    let mut read = |(index, message)| {
        one(index, message, &mut parts, to).map_err(|failure| failure.within(&format!("messages[{index}]")))
    };
    messages.into_iter().enumerate().map(&mut read).collect()
}

fn one(index: usize, mut message: Message, parts: &mut Parts, to: &mut Warnings) -> Result<Message, Failure> {
    if message.role == "developer" {
        message.role = "system".into();
    }
    if message.role == "function" {
        message.role = "tool".into();
    }
    if message.tool_calls.is_empty() {
        let call = older_call(&mut message)?;
        message.tool_calls.extend(call);
    }
    check_parts("tool_calls", "calls", message.tool_calls.len())?;
    take_thinking(&mut message);
    if let Some(Content::Parts(given)) = &message.content {
        check_parts("content", "parts", given.len())?;
        let text = |(at, part)| parts.part(index, part).map_err(|failure| failure.within(&format!("content[{at}]")));
        let texts = given.iter().enumerate().map(text).collect::<Result<Vec<_>, _>>()?;
        warn_of_parts("messages.content", given, PART_FIELDS, to);
        message.content = Some(Content::Text(texts.join("\n")));
    }
    // The names that other servers have for thinking, the second of them Ollama.
    for name in ["reasoning", "thinking"] {
        let Some(other) = message.extra.get(name).and_then(Value::as_str) else { continue };
        if message.reasoning_content.get_or_insert_with(|| other.to_owned()).as_str() == other {
            message.extra.shift_remove(name);
        }
    }
    to.ignored_in("messages", &message.extra);
    message.extra.clear();
    Ok(message)
}

/// Moves the thinking of an assistant's message out of its parts, where some clients send it back: as text, or as parts
/// with text.
fn take_thinking(message: &mut Message) {
    let Some(Content::Parts(parts)) = &mut message.content else { return };
    if message.role != "assistant" {
        return;
    }
    let taken: Vec<String> =
        parts.extract_if(.., |part| part["type"] == "thinking").map(|part| thinking(&part)).collect();
    let taken = taken.join("\n");
    if !taken.is_empty() && message.reasoning_content.as_ref().is_none_or(String::is_empty) {
        message.reasoning_content = Some(taken);
    }
}

fn thinking(part: &Value) -> String {
    match &part["thinking"] {
        Value::Array(texts) => texts.iter().filter_map(|text| text["text"].as_str()).collect(),
        text => text.as_str().or_else(|| part["text"].as_str()).unwrap_or_default().to_owned(),
    }
}

/// Whether the last message says that the reply continues it, as in DeepSeek's API. Mistral's API has the same field,
/// but its answer begins with the text of that message; here it is only what follows. The field is taken out of all
/// messages, and may be true only in a last message by the assistant.
pub fn take_prefix(messages: &mut [Message]) -> Result<bool, Failure> {
    let (mut continues, last) = (false, messages.len().saturating_sub(1));
    for (index, message) in messages.iter_mut().enumerate() {
        let refused = |wrong: &str| Err(Failure::of_field(&format!("messages[{index}].prefix"), wrong));
        match message.extra.shift_remove("prefix") {
            None | Some(Value::Null | Value::Bool(false)) => {}
            Some(Value::Bool(true)) if index < last => {
                let expected = "true is allowed only in the last message, which the reply continues";
                return refused(&format!("{expected}; the last one is messages[{last}]"));
            }
            Some(Value::Bool(true)) if message.role != "assistant" => {
                let expected = "true is allowed only in a message by the assistant, which the reply continues";
                return refused(&format!("{expected}; found role {}", shown(&message.role)));
            }
            Some(Value::Bool(true)) => continues = true,
            Some(other) => return refused(&format!("{}: expected true or false", shown(&other.to_string()))),
        }
    }
    Ok(continues)
}

/// The call of a message in the form that had no `tool_calls`.
fn older_call(message: &mut Message) -> Result<Option<ToolCall>, Failure> {
    let Some(call) = message.extra.remove("function_call").filter(|call| !call.is_null()) else { return Ok(None) };
    let function: FunctionCall = read_field("function_call", call)?;
    Ok(Some(ToolCall { id: None, kind: "function".into(), function }))
}

/// Whether a tool is a function. Tools of other types are done by a provider's servers; this server does not have them,
/// so the model does not get them.
pub fn is_function(tool: &Value) -> bool {
    let kind = tool.get("type").and_then(Value::as_str);
    kind.is_none_or(|kind| kind == "function")
}

/// The functions among the tools, which may also have the form of responses.
pub fn functions(tools: Vec<Value>) -> Result<Vec<Value>, Failure> {
    for (index, tool) in tools.iter().enumerate().filter(|(_, tool)| is_function(tool)) {
        let (place, function) = match tool.get("function") {
            None if tool.get("name").is_some() => (format!("tools[{index}]"), tool),
            inner => (format!("tools[{index}].function"), inner.unwrap_or(&Value::Null)),
        };
        check_function(&place, function, ["name", "parameters"])?;
    }
    Ok(tools.into_iter().filter(is_function).collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Failure, Message, Warnings, functions};
    use serde_json::{Value, json};

    fn messages(given: Value) -> Result<Vec<Message>, Failure> {
        super::messages(serde_json::from_value(given).unwrap(), &mut Warnings::default())
    }

    #[test]
    fn text_in_parts_is_text() {
        let given = json!([
            {"role": "developer", "content": [{"type": "text", "text": "Be"}, {"type": "text", "text": "brief."}]},
            {"role": "assistant", "content": null, "reasoning": "hm", "refusal": null, "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}]},
        ]);
        let read = messages(given).unwrap();
        assert_eq!((read[0].role.as_str(), read[0].text().as_ref()), ("system", "Be\nbrief."));
        assert_eq!(read[1].reasoning_content.as_deref(), Some("hm"));
        assert_eq!((read[1].extra.len(), &read[1].tool_calls[0].function.arguments), (0, &json!({"x": 1})));
    }

    #[test]
    fn calls_may_have_their_older_form() {
        let given = json!([
            {"role": "assistant", "content": null, "function_call": {"name": "f", "arguments": "{\"x\": 1}"}},
            {"role": "function", "name": "f", "content": "2"},
            {"role": "assistant", "content": "2", "function_call": null},
        ]);
        let read = messages(given).unwrap();
        let call = &read[0].tool_calls[0].function;
        assert_eq!((call.name.as_str(), &call.arguments, read[1].role.as_str()), ("f", &json!({"x": 1}), "tool"));
        assert!(read[2].tool_calls.is_empty());
        let wrong = json!([{"role": "assistant", "function_call": "f"}]);
        assert_eq!(messages(wrong).unwrap_err().status, 400);
        let unnamed = messages(json!([{"role": "assistant", "function_call": {"arguments": "{}"}}])).unwrap_err();
        assert_eq!(unnamed.message, "messages[0].function_call.name: this field is missing");
        assert_eq!(unnamed.param.as_deref(), Some("messages[0].function_call.name"));
    }

    #[test]
    fn pictures_are_refused() {
        let given = json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]);
        let failure = messages(given).unwrap_err();
        assert!(failure.status == 400 && failure.message.contains("text only"), "{failure:?}");
    }

    #[test]
    fn a_prefix_is_the_last_message_and_the_assistants() {
        let read = |given: Value| {
            let mut messages: Vec<Message> = serde_json::from_value(given).unwrap();
            let continues = super::take_prefix(&mut messages);
            continues.map(|continues| (continues, messages.iter().all(|message| message.extra.is_empty())))
        };
        let said = |role: &str, prefix: Value| json!({"role": role, "content": "x", "prefix": prefix});
        let (on, off) = (json!(true), json!(false));
        assert_eq!(read(json!([said("user", off.clone()), said("assistant", on.clone())])).unwrap(), (true, true));
        assert_eq!(read(json!([said("user", json!(null)), said("assistant", off.clone())])).unwrap(), (false, true));
        assert_eq!(read(json!([])).unwrap(), (false, true));
        for (messages, wrong) in [
            (
                json!([said("assistant", on.clone()), said("user", off)]),
                "messages[0].prefix: true is allowed only in the last",
            ),
            (json!([said("user", on)]), "messages[0].prefix: true is allowed only in a message by the assistant"),
            (json!([said("assistant", json!("on"))]), "messages[0].prefix: \"on\": expected true or false"),
        ] {
            let failure = read(messages).unwrap_err();
            assert!(failure.message.starts_with(wrong), "{failure:?}");
            assert_eq!((failure.status.as_u16(), failure.param.as_deref()), (400, Some("messages[0].prefix")));
        }
    }

    #[test]
    fn fields_that_nothing_reads_are_named() {
        let warned = |given: Value| {
            let mut warnings = Warnings::default();
            super::messages(serde_json::from_value(given).unwrap(), &mut warnings).unwrap();
            warnings.texts()
        };
        let read = json!([
            {"role": "user", "name": "Ann", "content": [
                {"type": "text", "text": "?", "cache_control": {"type": "ephemeral"}},
                {"type": "tool_reference", "tool_name": "f"}]},
            {"role": "assistant", "content": "!", "reasoning": "hm", "reasoning_content": "hm", "thinking": "hm",
             "refusal": null, "annotations": [], "audio": null, "function_call": null, "tool_calls": null},
            {"role": "assistant", "content": null, "function_call": {"name": "f", "arguments": "{}"}},
            {"role": "function", "name": "f", "content": "2"},
        ]);
        assert!(warned(read.clone()).is_empty(), "{:?}", warned(read));
        let unread = json!([
            {"role": "user", "mood": "glad", "content": [{"type": "text", "text": "?", "weight": 2}]},
            {"role": "assistant", "content": "!", "reasoning_content": "hm", "reasoning": "so", "mood": "sad"},
            {"role": "assistant", "content": "!", "thinking": {"type": "enabled"}, "audio": {"id": "a"}},
        ]);
        let names = ["content.weight", "mood", "reasoning", "thinking", "audio"];
        assert_eq!(warned(unread), names.map(|name| format!("messages.{name}: not supported; ignored")));
    }

    #[test]
    fn thinking_may_be_a_part() {
        let with = |parts: Value| messages(json!([{"role": "assistant", "content": parts}])).unwrap().remove(0);
        for thinking in [
            json!({"type": "thinking", "thinking": "hm"}),
            json!({"type": "thinking", "thinking": [{"type": "text", "text": "h"}, {"type": "text", "text": "m"}]}),
            json!({"type": "thinking", "text": "hm", "signature": "s"}),
        ] {
            let message = with(json!([thinking, {"type": "text", "text": "!"}]));
            assert_eq!((message.reasoning_content.as_deref(), message.text().as_ref()), (Some("hm"), "!"));
        }
        let both = json!([{"role": "assistant", "reasoning_content": "hm",
            "content": [{"type": "thinking", "thinking": "other"}, {"type": "text", "text": "!"}]}]);
        assert_eq!(messages(both).unwrap()[0].reasoning_content.as_deref(), Some("hm"));
        let by_user = json!([{"role": "user", "content": [{"type": "thinking", "thinking": "hm"}]}]);
        assert_eq!(messages(by_user).unwrap_err().status, 400);
    }

    #[test]
    fn other_types_of_tools_are_left_out() {
        let given = [json!({"type": "web_search"}), json!({"type": "function", "function": {"name": "f"}})];
        assert_eq!(functions(given.to_vec()).unwrap(), given[1..]);
    }

    #[test]
    fn a_wrong_function_is_refused_where_it_is() {
        for (tool, field) in [
            (json!({"type": "function", "function": {"name": "f", "parameters": []}}), "tools[1].function.parameters"),
            (json!({"type": "function", "function": {"name": ""}}), "tools[1].function.name"),
            (json!({"type": "function"}), "tools[1].function.name"),
            (json!({"name": "f", "parameters": 3}), "tools[1].parameters"),
        ] {
            let failure = functions(vec![json!({"type": "web_search"}), tool]).unwrap_err();
            assert_eq!((failure.status.as_u16(), failure.param.as_deref()), (400, Some(field)), "{failure:?}");
        }
    }
}
