//! What the arguments of a call mean: GLM writes strings bare and everything else as JSON, so that the function's
//! schema has to tell whether `5` is a number.

use super::call::Call;
use super::message::ToolCall;
use serde_json::{Map, Value};

impl Call {
    /// The call, with arguments as the tools' schemas have them. It may be of a function that is not among them.
    pub(super) fn understood(&self, tools: &[Value]) -> ToolCall {
        let properties = properties(tools, self.name());
        let argument = |(key, text): &(String, String)| {
            let schema = properties.and_then(|properties| properties.get(key));
            (key.clone(), meaning(text, schema))
        };
        ToolCall::new(self.name(), self.arguments.iter().map(argument).collect::<Map<_, _>>())
    }
}

/// The schemas of a function's parameters, in OpenAI's form or without what that wraps around them.
fn properties<'a>(tools: &'a [Value], name: &str) -> Option<&'a Value> {
    let function = |tool: &'a Value| tool.get("function").unwrap_or(tool);
    let named = tools.iter().map(function).find(|function| function.get("name").is_some_and(|n| n == name))?;
    named.get("parameters")?.get("properties")
}

/// A string where the schema says so, or where the text is no JSON; JSON otherwise. Where it may be a string or
/// something else, it is what it can be read as.
fn meaning(text: &str, schema: Option<&Value>) -> Value {
    let types = schema.map(types).unwrap_or_default();
    let read = serde_json::from_str::<Value>(text).ok();
    let fits = |value: &Value| types.iter().any(|name| *name != "string" && is(value, name));
    let read = if types.contains(&"string") { read.filter(fits) } else { read };
    read.unwrap_or_else(|| Value::String(text.to_owned()))
}

/// The types that a schema names; none if it names none.
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

fn is(value: &Value, name: &str) -> bool {
    type_of(value) == name || name == "integer" && (value.is_i64() || value.is_u64())
}
