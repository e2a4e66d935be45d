//! The functions that a reply may call: their names, and the schemas of their arguments.

use super::stack::with_stack;
use super::{check, closed, depth, reference};
use serde_json::{Map, Value, json};

/// The functions, with any arguments for those whose schema is too large, too deep or too complex.
pub fn bounded(tools: &[Value]) -> Vec<Value> {
    opened(tools, check::is_small)
}

/// The functions, with any arguments for those whose schema cannot be used: if not even parts of it are supported, or
/// no value is valid.
pub fn supported(tools: &[Value]) -> Vec<Value> {
    opened(tools, |schema| check::arguments(schema).is_ok())
}

fn opened(tools: &[Value], keeps: impl Fn(&Value) -> bool) -> Vec<Value> {
    let of = |tool: &Value| {
        let mut tool = tool.clone();
        if !keeps(&parameters(&tool)) {
            // The function's name comes from a client and is not logged.
            tracing::warn!("any arguments of a function are accepted, because its schema is not supported");
            let inner = if tool.get("function").is_some() { tool.get_mut("function") } else { Some(&mut tool) };
            if let Some(Value::Object(function)) = inner {
                function.insert("parameters".to_owned(), json!({"type": "object"}));
            }
        }
        tool
    };
    tools.iter().map(of).collect()
}

/// The name of a function.
pub fn name(tool: &Value) -> &str {
    function(tool).get("name").and_then(Value::as_str).unwrap_or_default()
}

/// The description of a function, in OpenAI's form or as only its inner object.
fn function(tool: &Value) -> &Value {
    tool.get("function").unwrap_or(tool)
}

/// The schema of a function's arguments, which is that of an object. A function without one takes no arguments. Objects
/// in the schema of a function with `strict` are closed.
pub(super) fn parameters(tool: &Value) -> Value {
    let function = function(tool);
    let given = function.get("parameters").filter(|given| !given.is_null());
    let none =
        || Map::from_iter([("properties".to_owned(), json!({})), ("additionalProperties".to_owned(), false.into())]);
    let mut schema = given.map_or_else(none, |given| given.as_object().cloned().unwrap_or_default());
    schema.entry("type").or_insert_with(|| "object".into());
    let named = schema.get("properties").and_then(Value::as_object).filter(|named| !named.is_empty());
    let is_named = |name: &Value| named.is_some_and(|named| name.as_str().is_some_and(|name| named.contains_key(name)));
    let mut required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    let is_whole = named.is_some() && required.all(is_named);
    // The function cannot use other arguments, unless another part of the schema names them.
    if is_whole && !["allOf", "anyOf", "oneOf", "$ref"].iter().any(|key| schema.contains_key(*key)) {
        schema.entry("additionalProperties").or_insert(false.into());
    }
    let (mut schema, is_strict) = (Value::Object(schema), function.get("strict") == Some(&Value::Bool(true)));
    // A dangling reference accepts anything, so this cannot fail. What is too large to be closed stays open.
    let simplify = || {
        if depth::of_size(&schema).is_none() {
            let _ = reference::simplify(&mut schema, true);
            if is_strict && let Ok(closed) = closed::closed(&schema) {
                schema = closed;
            }
        }
        Ok(())
    };
    let _ = with_stack(check::SCHEMA, simplify);
    schema
}
