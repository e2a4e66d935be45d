//! Interprets the arguments of a call. GLM writes strings without quotes and everything else as JSON, so the function's
//! schema decides whether `5` is a number or a string.

use super::keyed::KeyedCall;
use crate::text::ToolCall;
use crate::text::schema::{is_of_type, types};
use serde_json::{Map, Value};

impl KeyedCall {
    /// The call with its arguments converted to the types in the schemas of `tools`. It may be a call of another
    /// function.
    pub(super) fn understood(&self, tools: &[Value]) -> ToolCall {
        let whole = parameters(tools, self.name());
        let argument = |(key, text): &(String, String)| {
            let part = whole.and_then(|whole| whole.get("properties")?.get(key));
            (key.clone(), meaning(text, part.zip(whole)))
        };
        ToolCall::new(self.name(), self.arguments.iter().map(argument).collect::<Map<_, _>>())
    }
}

/// The schema of the parameters of function `name`, described either in OpenAI's form or as only the inner object of
/// that form.
fn parameters<'a>(tools: &'a [Value], name: &str) -> Option<&'a Value> {
    let function = |tool: &'a Value| tool.get("function").unwrap_or(tool);
    let named = tools.iter().map(function).find(|function| function.get("name").is_some_and(|n| n == name))?;
    named.get("parameters")
}

/// The value that an argument's text stands for: a string if the schema says so or the text is not JSON, and otherwise
/// JSON. If the schema allows a string among other types, JSON of one of the other types wins. The schema is part of
/// another one, which its references point into.
fn meaning(text: &str, schema: Option<(&Value, &Value)>) -> Value {
    let types = schema.map(|(part, whole)| types(part, whole)).unwrap_or_default();
    let read = serde_json::from_str::<Value>(text).ok();
    let fits = |value: &Value| types.iter().any(|name| *name != "string" && is_of_type(value, name));
    let read = if types.contains(&"string") { read.filter(fits) } else { read };
    read.unwrap_or_else(|| Value::String(text.to_owned()))
}
