//! Messages and functions of chat completions, checked and in the form of the library.

use crate::serve::failure::Failure;
use crate::serve::parts::{Parts, check_parts};
use serde_json::Value;
use wglm_engine::text::{Content, FunctionCall, Message, ToolCall};

/// The messages as the model's template takes them.
pub fn messages(messages: Vec<Message>) -> Result<Vec<Message>, Failure> {
    let mut parts = Parts::new(messages.iter().rposition(|message| message.role == "user"));
    messages.into_iter().enumerate().map(|(index, message)| one(index, message, &mut parts)).collect()
}

fn one(index: usize, mut message: Message, parts: &mut Parts) -> Result<Message, Failure> {
    if message.role == "developer" {
        message.role = "system".into();
    }
    if message.role == "function" {
        message.role = "tool".into();
    }
    if message.tool_calls.is_empty() {
        let call = older_call(index, &mut message)?;
        message.tool_calls.extend(call);
    }
    check_parts(index, "calls", message.tool_calls.len())?;
    if let Some(Content::Parts(given)) = &message.content {
        check_parts(index, "parts", given.len())?;
        let texts = given.iter().map(|part| parts.part(index, part)).collect::<Result<Vec<_>, _>>()?;
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

/// The call of a message in the form that had no `tool_calls`.
fn older_call(index: usize, message: &mut Message) -> Result<Option<ToolCall>, Failure> {
    let Some(call) = message.extra.remove("function_call").filter(|call| !call.is_null()) else { return Ok(None) };
    let function: FunctionCall = serde_json::from_value(call)
        .map_err(|error| Failure::invalid(format!("message {index}: function_call: cannot parse it: {error}")))?;
    Ok(Some(ToolCall { id: None, kind: "function".into(), function }))
}

/// Whether a tool is a function. Tools of other types are done by a provider's servers; this server does not have them,
/// so the model does not get them.
pub fn is_function(tool: &Value) -> bool {
    let kind = tool.get("type").and_then(Value::as_str);
    kind.is_none_or(|kind| kind == "function")
}

pub fn functions(tools: Vec<Value>) -> Vec<Value> {
    tools.into_iter().filter(is_function).collect()
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
    fn calls_may_have_their_older_form() {
        let given = json!([
            {"role": "assistant", "content": null, "function_call": {"name": "f", "arguments": "{\"x\": 1}"}},
            {"role": "function", "name": "f", "content": "2"},
            {"role": "assistant", "content": "2", "function_call": null},
        ]);
        let read = messages(serde_json::from_value(given).unwrap()).unwrap();
        let call = &read[0].tool_calls[0].function;
        assert_eq!((call.name.as_str(), &call.arguments, read[1].role.as_str()), ("f", &json!({"x": 1}), "tool"));
        assert!(read[2].tool_calls.is_empty());
        let wrong = json!([{"role": "assistant", "function_call": "f"}]);
        assert_eq!(messages(serde_json::from_value(wrong).unwrap()).unwrap_err().status, 400);
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
