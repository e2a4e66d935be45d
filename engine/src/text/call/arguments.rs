//! Interprets the arguments of a call in GLM's form, which writes strings without quotes and everything else as JSON, so
//! the function's schema decides whether `5` is a number or a string.

use crate::text::schema::{is_of_type, types};
use serde_json::Value;

/// The types that the schema of argument `key` names, of function `name` among `tools`; none if they are not known.
pub(super) fn types_of(tools: &[Value], name: &str, key: &str) -> Vec<String> {
    let whole = parameters(tools, name);
    let part = whole.and_then(|whole| whole.get("properties")?.get(key));
    let names = part.zip(whole).map(|(part, whole)| types(part, whole)).unwrap_or_default();
    names.into_iter().map(str::to_owned).collect()
}

/// The schema of the parameters of function `name`, described either in OpenAI's form or as only the inner object of
/// that form.
fn parameters<'a>(tools: &'a [Value], name: &str) -> Option<&'a Value> {
    let function = |tool: &'a Value| tool.get("function").unwrap_or(tool);
    let named = tools.iter().map(function).find(|function| function.get("name").is_some_and(|n| n == name))?;
    named.get("parameters")
}

/// The value that an argument's text stands for: a string if the schema says so or the text is not JSON, and otherwise
/// JSON. If the schema allows a string among other types, JSON of one of the other types wins.
pub(super) fn meaning(text: &str, types: &[String]) -> Value {
    let read = serde_json::from_str::<Value>(text).ok();
    let fits = |value: &Value| types.iter().any(|name| name != "string" && is_of_type(value, name));
    let read = if allows_strings(types) { read.filter(fits) } else { read };
    read.unwrap_or_else(|| Value::String(text.to_owned()))
}

/// Whether an argument whose text begins like this may [mean](meaning) something other than that text as a string.
/// `false` is certain.
pub(super) fn may_be_json(text: &str, types: &[String]) -> bool {
    let (begun, strings) = (text.trim_start(), allows_strings(types));
    let allows = |of: &[&str]| !strings || types.iter().any(|name| of.contains(&name.as_str()));
    let is_digits = |byte: u8| byte.is_ascii_digit() || b"+-.eE \n\r\t".contains(&byte);
    match begun.bytes().next() {
        None => !strings || types.len() > 1,
        Some(b'{') => allows(&["object"]),
        Some(b'[') => allows(&["array"]),
        Some(b'"') => !strings,
        Some(b'-' | b'0'..=b'9') => allows(&["number", "integer"]) && begun.bytes().all(is_digits),
        Some(b't' | b'f' | b'n') => {
            let names = [("true", "boolean"), ("false", "boolean"), ("null", "null")];
            names.iter().any(|(literal, of)| literal.starts_with(begun.trim_end()) && allows(&[of]))
        }
        Some(_) => false,
    }
}

/// Text as a string of JSON.
pub(super) fn json(text: &str) -> String {
    Value::from(text).to_string()
}

fn allows_strings(types: &[String]) -> bool {
    types.iter().any(|name| name == "string")
}
