//! Interprets the arguments of a call. GLM writes strings without quotes and everything else as JSON, so the function's
//! schema decides whether `5` is a number or a string.

use super::keyed::KeyedCall;
use crate::text::ToolCall;
use serde_json::{Map, Value};

impl KeyedCall {
    /// The call with its arguments converted to the types in the schemas of `tools`. The function need not be among
    /// them.
    pub(super) fn understood(&self, tools: &[Value]) -> ToolCall {
        let properties = properties(tools, self.name());
        let argument = |(key, text): &(String, String)| {
            let schema = properties.and_then(|properties| properties.get(key));
            (key.clone(), meaning(text, schema))
        };
        ToolCall::new(self.name(), self.arguments.iter().map(argument).collect::<Map<_, _>>())
    }
}

/// The schemas of the parameters of function `name`, described either in OpenAI's form or as the inner object of that
/// form alone.
fn properties<'a>(tools: &'a [Value], name: &str) -> Option<&'a Value> {
    let function = |tool: &'a Value| tool.get("function").unwrap_or(tool);
    let named = tools.iter().map(function).find(|function| function.get("name").is_some_and(|n| n == name))?;
    named.get("parameters")?.get("properties")
}

/// The value that an argument's text stands for: a string if the schema says so or the text is not JSON, and otherwise
/// JSON. If the schema allows a string among other types, JSON of one of the other types wins.
fn meaning(text: &str, schema: Option<&Value>) -> Value {
    let types = schema.map(types).unwrap_or_default();
    let read = serde_json::from_str::<Value>(text).ok();
    let fits = |value: &Value| types.iter().any(|name| *name != "string" && is(value, name));
    let read = if types.contains(&"string") { read.filter(fits) } else { read };
    read.unwrap_or_else(|| Value::String(text.to_owned()))
}

/// The types that a schema names; empty if it names none.
fn types(schema: &Value) -> Vec<&str> {
    match schema.get("type") {
        Some(Value::String(name)) => return vec![name],
        Some(Value::Array(names)) => return names.iter().filter_map(Value::as_str).collect(),
        _ => {}
    }
    let list = |key: &str| schema.get(key).and_then(Value::as_array).into_iter().flatten();
    let values = list("enum").chain(schema.get("const")).map(type_of);
    values.chain(list("anyOf").chain(list("oneOf")).flat_map(types)).collect()
}

/// The JSON Schema name of a value's type.
fn type_of(value: &Value) -> &str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Whether a value is of the type that JSON Schema calls `name`.
fn is(value: &Value, name: &str) -> bool {
    type_of(value) == name || name == "integer" && (value.is_i64() || value.is_u64())
}
