//! The fields of a response that repeat those of its request, as they were understood: only those that are also part of
//! the prompt or of the reply's constraint, and short ones.

use super::Body;
use super::namespaces::Namespaces;
use crate::serve::constraints::Format;
use crate::serve::conversation::Conversation;
use crate::serve::failure::{Failure, shown};
use crate::serve::fields::{at_most, at_most_in};
use crate::serve::figures::decimal;
use crate::serve::memory::Size;
use serde_json::{Map, Value, json};
use wglm_engine::{Calls, ChatState, Constraint, Overflow};

/// The maximum number of metadata keys, and of characters in each, as in OpenAI's API.
const METADATA_KEYS: usize = 16;
const METADATA_KEY: usize = 64;

/// The maximum number of characters in a text that is in the answer and not in the prompt. For values of metadata it is
/// the limit of OpenAI's API.
const SHORT: usize = 512;

/// The maximum number of copies of the fields: each event with the whole response makes them as values and then as
/// text.
const COPIES: usize = 4;

/// A text if it is short.
fn short(text: Option<&str>) -> Option<&str> {
    text.filter(|text| text.chars().count() <= SHORT)
}

/// Refuses metadata that OpenAI's API would refuse.
pub fn check_metadata(metadata: &Map<String, Value>) -> Result<(), Failure> {
    at_most("metadata", metadata.len(), METADATA_KEYS, "keys")?;
    for (key, value) in metadata {
        at_most_in("metadata: a key", key.chars().count(), METADATA_KEY, "characters")?;
        if short(value.as_str()).is_none() {
            let expected = format!("expected a string of at most {SHORT} characters");
            return Err(Failure::invalid(format!("metadata.{}: {expected}", shown(key))).with_param("metadata"));
        }
    }
    Ok(())
}

/// What constrains the reply, as the client sent it.
pub struct Constraints {
    format: Value,
    choice: Value,
    tools: Vec<Value>,
}

impl Constraints {
    pub fn of(body: &Body, conversation: &Conversation, namespaces: &Namespaces) -> Self {
        let Conversation { format, calls, tools, .. } = conversation;
        Self {
            format: self::format(format, body.format()),
            choice: choice(body.tool_choice.as_ref(), calls, tools, namespaces),
            tools: self::tools(tools, namespaces),
        }
    }
}

/// The format of the answer, with the short fields that were given next to a schema.
fn format(format: &Format, given: &Value) -> Value {
    let text = |name: &str| short(given.get(name).and_then(Value::as_str));
    match format {
        Format::Text => json!({"type": "text"}),
        Format::Object => json!({"type": "json_object"}),
        Format::Schema(_) => json!({
            "type": "json_schema",
            "name": text("name").unwrap_or_default(),
            "description": text("description"),
            "schema": given.get("schema").map(Constraint::repeated),
            "strict": given.get("strict").and_then(Value::as_bool),
        }),
    }
}

/// `tool_choice`. `functions` are those that may be called.
fn choice(given: Option<&Value>, calls: &Calls, functions: &[Value], namespaces: &Namespaces) -> Value {
    let mode = match calls {
        Calls::Auto => "auto",
        Calls::Required => "required",
        Calls::None => return json!("none"),
        Calls::Function(name) => return namespaces.chosen(name),
    };
    let kind = given.and_then(|given| given.get("type")).and_then(Value::as_str);
    if kind != Some("allowed_tools") {
        return json!(mode);
    }
    let names = functions.iter().filter_map(|function| function["function"]["name"].as_str());
    let tools: Vec<Value> = names.map(|name| namespaces.chosen(name)).collect();
    json!({"type": "allowed_tools", "mode": mode, "tools": tools})
}

/// The functions that the model knows, in the form in which the client sent them: those of a namespace in a list of
/// their own.
fn tools(functions: &[Value], namespaces: &Namespaces) -> Vec<Value> {
    let mut tools: Vec<Value> = Vec::new();
    for function in functions {
        let field = |name: &str| function["function"].get(name);
        let (namespace, name) = namespaces.meant(field("name").and_then(Value::as_str).unwrap_or_default());
        let tool = json!({
            "type": "function",
            "name": name,
            "description": field("description"),
            "parameters": field("parameters"),
            "strict": field("strict"),
        });
        let last = tools.last_mut().filter(|last| last["type"] == "namespace" && last["name"].as_str() == namespace);
        match (namespace, last.and_then(|last| last["tools"].as_array_mut())) {
            (_, Some(list)) => list.push(tool),
            (Some(namespace), None) => tools.push(json!({"type": "namespace", "name": namespace, "tools": [tool]})),
            (None, None) => tools.push(tool),
        }
    }
    tools
}

/// All the fields, for a chat that was made from the body.
pub fn fields(body: Body, reasoning: &Value, constraints: Constraints, chat: &ChatState) -> Map<String, Value> {
    let (sampling, text, Constraints { format, choice, tools }) = (&chat.options.sampling, body.text, constraints);
    let verbosity = short(text.as_ref().and_then(|text| text.get("verbosity")?.as_str()));
    let effort = short(reasoning["effort"].as_str());
    let truncation = if chat.overflow == Overflow::Refuse { "disabled" } else { "auto" };
    let fields = [
        ("instructions", json!(body.instructions)),
        ("max_output_tokens", json!(body.max_output_tokens)),
        ("metadata", Value::Object(body.metadata.unwrap_or_default())),
        ("parallel_tool_calls", json!(body.parallel_tool_calls.unwrap_or(true))),
        ("previous_response_id", json!(body.previous_response_id)),
        ("reasoning", json!({"effort": effort, "summary": null})),
        ("temperature", decimal(sampling.temperature)),
        ("top_p", decimal(sampling.top_p)),
        ("text", json!({"format": format, "verbosity": verbosity})),
        ("tool_choice", choice),
        ("tools", Value::Array(tools)),
        ("truncation", json!(truncation)),
    ];
    fields.map(|(name, value)| (name.to_owned(), value)).into_iter().collect()
}

/// The fields, without those that may be long.
pub fn shortened(fields: &Map<String, Value>) -> Map<String, Value> {
    let short = |(name, value): (&String, &Value)| {
        let value = match name.as_str() {
            "instructions" => Value::Null,
            "tools" => json!([]),
            "text" => json!({"format": {"type": "text"}}),
            "tool_choice" if value.is_object() => json!("auto"),
            _ => value.clone(),
        };
        (name.clone(), value)
    };
    fields.iter().map(short).collect()
}

/// The bytes of memory that the fields take until the reply ends.
pub fn bytes(fields: &Map<String, Value>) -> usize {
    COPIES * Size::of_map(fields).bytes()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Format, format};
    use crate::serve::parse::read;
    use axum::body::Bytes;
    use serde_json::Value;

    /// A schema is repeated with its numbers as numbers.
    #[test]
    fn a_schema_with_long_numbers_is_repeated() {
        let body = r#"{"text": {"format": {"schema": {"enum": [123456789012345678901, "a"]}}}}"#;
        let read: Value = read(&Bytes::from_static(body.as_bytes())).unwrap();
        let given = &read["text"]["format"];
        assert!(given["schema"]["enum"][0].is_string(), "{given}");
        let repeated = format(&Format::Schema(Value::Null), given);
        let number = &repeated["schema"]["enum"][0];
        assert!(number.as_f64().is_some_and(|number| (number - 1.2345678901234568e20).abs() < 1e6), "{repeated}");
    }

    /// They are refused below the keys of schemas, too, and never cause a panic.
    #[test]
    fn numbers_that_are_not_json() {
        for wrong in [r#"{"text": {"x": 1-2}}"#, r#"{"text": {"x": -}}"#, r#"{"x": 1e9999}"#] {
            assert_eq!(read::<Value>(&Bytes::from_static(wrong.as_bytes())).unwrap_err().status, 400, "{wrong}");
        }
        let extreme = r#"{"text": {"x": [1.5e-9223372036854775808, 10e9223372036854775807]}}"#;
        assert!(read::<Value>(&Bytes::from_static(extreme.as_bytes())).is_ok());
    }
}
