//! The settings that are JSON: the functions that the model may call, and the schema of its answer.

use serde_json::Value;
use wglm::{Constraint, Error, Result};

/// A function in the form that both OpenAI and wglm read.
pub const TOOL: &str = r#"{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}"#;
/// A schema.
pub const SCHEMA: &str = r#"{"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}"#;

/// The functions that a text describes, as a list or as a single one; none if it is blank.
///
/// # Errors
/// [`Error::Argument`], which says where the text is not JSON, or which entry does not describe a function.
pub fn tools(text: &str) -> Result<Vec<Value>> {
    let tools = match json("functions", text)? {
        None => Vec::new(),
        Some(Value::Array(tools)) => tools,
        Some(tool) => vec![tool],
    };
    let odd = tools.iter().position(|tool| !is_function(tool));
    odd.map_or(Ok(tools), |odd| {
        let found = format!("entry {}, which is not a function", odd + 1);
        Err(Error::Argument { argument: "functions", expected: format!("functions like {TOOL}"), found })
    })
}

/// The constraint by a schema; none if the text is blank.
///
/// # Errors
/// The errors of [`Constraint::json_schema`], and [`Error::Argument`], which says where the text is not JSON.
pub fn schema(text: &str) -> Result<Option<Constraint>> {
    json("schema of the answer", text)?.map(Constraint::json_schema).transpose()
}

fn json(argument: &'static str, text: &str) -> Result<Option<Value>> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    let wrong = |error: serde_json::Error| Error::Argument {
        argument,
        expected: "JSON".into(),
        found: format!("text that is not JSON: {error}"),
    };
    serde_json::from_str(text).map(Some).map_err(wrong)
}

/// Whether a value describes a function as wglm expects it.
fn is_function(tool: &Value) -> bool {
    let function = tool.get("function").unwrap_or(tool);
    let named = function.get("name").and_then(Value::as_str).is_some_and(|name| !name.is_empty());
    named && function.get("parameters").is_none_or(|parameters| parameters.is_object() || parameters.is_null())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{SCHEMA, TOOL, schema, tools};

    #[test]
    fn functions_are_read_and_errors_say_where() {
        assert!(tools(" \n").unwrap().is_empty());
        assert_eq!(tools(TOOL).unwrap().len(), 1);
        assert_eq!(tools(&format!("[{TOOL}, {TOOL}]")).unwrap().len(), 2);
        assert_eq!(tools(r#"{"name": "weather"}"#).unwrap().len(), 1, "the inner object alone");
        for (text, part) in
            [("[", "line 1 column 1"), (r#"[{"name": "a"}, 3]"#, "entry 2"), (r#"{"name": ""}"#, "entry 1")]
        {
            let error = tools(text).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn schemas_are_read_and_errors_say_where() {
        assert!(schema("").unwrap().is_none());
        assert!(schema(SCHEMA).unwrap().is_some());
        for (text, part) in [("{", "line 1 column 1"), (r#"{"type": "cow"}"#, "cow")] {
            let error = schema(text).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
