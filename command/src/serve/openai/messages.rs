//! Messages and functions of chat completions, checked and in the form of the library.

use crate::serve::conversation::{check_parts, not_text};
use crate::serve::failure::{Failure, shown};
use serde_json::Value;
use wglm_engine::text::{Content, Message};

/// The messages as the model's template takes them.
pub fn messages(messages: Vec<Message>) -> Result<Vec<Message>, Failure> {
    messages.into_iter().enumerate().map(|(index, message)| one(index, message)).collect()
}

fn one(index: usize, mut message: Message) -> Result<Message, Failure> {
    if message.role == "developer" {
        message.role = "system".into();
    }
    if message.role == "function" {
        message.role = "tool".into();
    }
    check_parts(index, "calls", message.tool_calls.len())?;
    if let Some(Content::Parts(parts)) = &message.content {
        check_parts(index, "parts", parts.len())?;
        let texts = parts.iter().map(|part| text(index, part)).collect::<Result<Vec<&str>, _>>()?;
        message.content = Some(Content::Text(texts.join("\n")));
    }
    if message.reasoning_content.is_none() {
        // The names that other servers have for it, the second of them Ollama.
        let other = ["reasoning", "thinking"].iter().find_map(|name| message.extra.get(*name)?.as_str());
        message.reasoning_content = other.map(str::to_owned);
    }
    message.extra.clear();
    Ok(message)
}

/// The text of a part.
fn text(index: usize, part: &Value) -> Result<&str, Failure> {
    let kind = part.get("type").and_then(Value::as_str).unwrap_or("text");
    let field = if kind == "refusal" { "refusal" } else { "text" };
    let text = part.as_str().or_else(|| part.get(field).and_then(Value::as_str));
    match (kind, text) {
        ("text" | "input_text" | "output_text" | "refusal", Some(text)) => Ok(text),
        ("image_url" | "input_image" | "input_audio" | "file" | "input_file" | "video_url", _) => {
            Err(not_text(index, kind))
        }
        _ => Err(Failure::invalid(format!("message {index}: a part of type {}: expected text", shown(kind)))),
    }
}

/// The functions among the tools. Tools of other types are done by a provider's servers; this server does not have
/// them, so the model does not get them.
pub fn functions(tools: Vec<Value>) -> Vec<Value> {
    let function = |tool: &Value| {
        let kind = tool.get("type").and_then(Value::as_str);
        kind.is_none_or(|kind| kind == "function")
    };
    tools.into_iter().filter(function).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{functions, messages};
    use serde_json::json;

    #[test]
    fn text_in_parts_is_text() {
        let given = json!([
            {"role": "developer", "content": [{"type": "text", "text": "Be"}, {"type": "text", "text": "brief."}]},
            {"role": "assistant", "content": null, "reasoning": "hm", "refusal": null, "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}]},
        ]);
        let read = messages(serde_json::from_value(given).unwrap()).unwrap();
        assert_eq!((read[0].role.as_str(), read[0].text().as_ref()), ("system", "Be\nbrief."));
        assert_eq!(read[1].reasoning_content.as_deref(), Some("hm"));
        assert_eq!((read[1].extra.len(), &read[1].tool_calls[0].function.arguments), (0, &json!({"x": 1})));
    }

    #[test]
    fn pictures_are_refused() {
        let given = json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]);
        let failure = messages(serde_json::from_value(given).unwrap()).unwrap_err();
        assert!(failure.status == 400 && failure.message.contains("text only"), "{failure:?}");
    }

    #[test]
    fn other_types_of_tools_are_left_out() {
        let given = [json!({"type": "web_search"}), json!({"type": "function", "function": {"name": "f"}})];
        assert_eq!(functions(given.to_vec()), given[1..]);
    }
}
