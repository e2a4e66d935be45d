//! The fields of a request that constrain its reply: a schema, or function calls.

use super::failure::{Failure, shown};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::HashSet;
use wglm_engine::text::function_mut;
use wglm_engine::{Calls, SchemaOptions};

#[derive(Debug, Clone, Default, PartialEq)]
pub enum Format {
    #[default]
    Text,
    /// Any JSON object.
    Object,
    /// JSON that is valid against a schema.
    Schema(Value),
}

/// Keys of a body whose values can contain a schema. The numbers in these values keep all of their digits.
pub const SCHEMAS: [&str; 5] = ["format", "json_schema", "output_config", "response_format", "text"];

/// Reads `tool_choice` of OpenAI's APIs: a mode, the name of a function in one of two forms, or a list of the functions
/// that may be called. The other functions are then removed from `functions`.
pub fn choice(choice: Option<&Value>, functions: &mut Vec<Value>) -> Result<Calls, Failure> {
    let choice = match choice {
        None => return Ok(Calls::Auto),
        Some(Value::String(word)) => return by_word(word),
        Some(choice) => choice,
    };
    let wrong = || unknown(&choice.to_string());
    match choice.get("type").and_then(Value::as_str) {
        Some("allowed_tools") => {
            let allowed = choice.get("allowed_tools").unwrap_or(choice);
            let tools = allowed.get("tools").and_then(Value::as_array).ok_or_else(wrong)?;
            let names: HashSet<&str> = tools.iter().filter_map(name).collect();
            functions.retain(|function| name(function).is_some_and(|name| names.contains(name)));
            allowed.get("mode").map_or(Ok(Calls::Auto), |mode| by_word(mode.as_str().unwrap_or_default()))
        }
        None | Some("function") => name(choice).map(|name| Calls::Function(name.to_owned())).ok_or_else(wrong),
        // A tool of another type, which is not among the functions.
        Some(_) => Ok(Calls::Auto),
    }
}

/// Refuses a function without a name, or with parameters that are not an object. `place` is where the request has it,
/// and the names are those of its fields.
pub fn check_function(place: &str, function: &Value, [name, parameters]: [&str; 2]) -> Result<(), Failure> {
    let wrong = |field, expected, found: Option<&Value>| {
        let found = found.map_or("none".to_owned(), Value::to_string);
        let wrong = format_args!("expected {expected}, found {}", shown(&found));
        Err(Failure::of_field(&format!("{place}.{field}"), wrong))
    };
    match (function.get(name), function.get(parameters)) {
        (Some(Value::String(given)), None | Some(Value::Null | Value::Object(_))) if !given.is_empty() => Ok(()),
        (Some(Value::String(given)), found) if !given.is_empty() => wrong(parameters, "an object", found),
        (found, _) => wrong(name, "the name of a function", found),
    }
}

/// A function in the form of chat completions, from the fields of a tool with these names, and `strict`. Fields that
/// are null are left out. `place` is where the request has the tool.
pub fn function(place: &str, tool: &Value, [name, description, parameters]: [&str; 3]) -> Result<Value, Failure> {
    check_function(place, tool, [name, parameters])?;
    let field = |(to, from): (&str, &str)| Some((to.to_owned(), tool.get(from).filter(|it| !it.is_null())?.clone()));
    let fields = [("name", name), ("description", description), ("parameters", parameters), ("strict", "strict")];
    let fields: Map<String, Value> = fields.into_iter().filter_map(field).collect();
    Ok(json!({"type": "function", "function": fields}))
}

/// Closes the objects in the arguments of all functions.
pub fn close(functions: &mut [Value]) {
    for fields in functions.iter_mut().filter_map(function_mut) {
        fields.insert("strict".to_owned(), true.into());
    }
}

fn by_word(word: &str) -> Result<Calls, Failure> {
    match word {
        "auto" => Ok(Calls::Auto),
        "none" => Ok(Calls::None),
        "required" | "any" => Ok(Calls::Required),
        _ => Err(unknown(word)),
    }
}

/// The name of a function, which is in the object itself or in its field `function`.
fn name(tool: &Value) -> Option<&str> {
    tool.get("function").unwrap_or(tool).get("name")?.as_str()
}

fn unknown(found: &str) -> Failure {
    let expected = "expected auto, none, required or the name of a function";
    Failure::of_field("tool_choice", format_args!("{}: {expected}", shown(found)))
}

/// `response_format` of chat completions, or `text.format` of responses, which has the schema one level higher.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct FormatField {
    #[serde(rename = "type")]
    kind: Option<String>,
    json_schema: Option<SchemaField>,
    schema: Option<Value>,
    strict: Option<bool>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct SchemaField {
    schema: Option<Value>,
    strict: Option<bool>,
}

impl FormatField {
    /// Any JSON object.
    pub fn object() -> Self {
        Self { kind: Some("json_object".into()), ..Self::default() }
    }

    /// JSON that is valid against a schema.
    pub fn schema(schema: Value) -> Self {
        Self { kind: Some("json_schema".into()), schema: Some(schema), ..Self::default() }
    }

    /// Reads the format from this field, whose name is for errors. Unsupported keywords of a schema are ignored if
    /// `strict` is false, and refused if it is true or absent. Objects are closed if it is true or if the options say
    /// so.
    pub fn read(self, name: &str, options: SchemaOptions) -> Result<Format, Failure> {
        let (inner, strict) = self.json_schema.map_or((None, None), |field| (field.schema, field.strict));
        let (schema, strict) = (inner.or(self.schema), strict.or(self.strict));
        let closed = options.closed || strict == Some(true);
        let options = options.with_lenient(strict == Some(false)).with_closed(closed);
        match (self.kind.as_deref(), schema) {
            (None | Some("text"), _) => Ok(Format::Text),
            (Some("json_object" | "json_schema"), Some(schema)) => Ok(Format::Schema(options.put_into(schema))),
            (Some("json_object"), None) if options.whitespace => {
                Ok(Format::Schema(options.put_into(json!({"type": "object"}))))
            }
            (Some("json_object"), None) => Ok(Format::Object),
            (Some("json_schema"), None) => Err(Failure::of_field(name, "type json_schema: there is no schema")),
            (Some(other), _) => {
                let wrong = format!("{}: expected text, json_object or json_schema", shown(other));
                Err(Failure::of_field(name, wrong))
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{FormatField, choice, close, function};
    use serde_json::{Value, json};
    use wglm_engine::{Calls, SchemaOptions};

    fn functions() -> Vec<Value> {
        ["ring", "sleep"].map(|name| json!({"type": "function", "function": {"name": name}})).into()
    }

    #[test]
    fn functions_in_both_forms_are_closed() {
        let mut tools = [json!({"name": "ring"}), json!({"type": "function", "function": {"name": "ring"}}), json!(3)];
        close(&mut tools);
        assert_eq!((&tools[0]["strict"], &tools[1]["function"]["strict"]), (&json!(true), &json!(true)));
        assert!(tools[1].get("strict").is_none() && tools[2] == 3, "{tools:?}");
    }

    #[test]
    fn strict_is_kept_as_it_was_sent() {
        for strict in [json!(true), json!(false), json!(null)] {
            let tool = json!({"name": "ring", "strict": strict});
            let made = function("tools[0]", &tool, ["name", "description", "parameters"]).unwrap();
            assert_eq!(made["function"]["strict"], strict, "{made}");
        }
    }

    #[test]
    fn a_wrong_function_is_refused_where_it_is() {
        for (tool, field, wrong) in [
            (json!({"name": "f", "input_schema": "x"}), "tools[1].input_schema", "expected an object, found \"x\""),
            (json!({"name": "", "input_schema": {}}), "tools[1].name", "expected the name of a function, found \"\""),
            (json!({"input_schema": 3}), "tools[1].name", "expected the name of a function, found none"),
        ] {
            let failure = function("tools[1]", &tool, ["name", "description", "input_schema"]).unwrap_err();
            assert_eq!((failure.param.as_deref(), failure.message), (Some(field), format!("{field}: {wrong}")));
        }
    }

    #[test]
    fn a_wrong_format_has_the_name_of_its_field() {
        for (given, found) in [(json!({"type": "xml"}), "xml"), (json!({"type": "json_schema"}), "no schema")] {
            let field: FormatField = serde_json::from_value(given).unwrap();
            let failure = field.read("text.format", SchemaOptions::default()).unwrap_err();
            assert!(failure.message.starts_with("text.format: ") && failure.message.contains(found), "{failure:?}");
            assert_eq!(failure.param.as_deref(), Some("text.format"));
        }
    }

    #[test]
    fn a_choice_is_a_word_or_a_function() {
        for (given, wanted) in [
            (json!("auto"), Calls::Auto),
            (json!("none"), Calls::None),
            (json!("required"), Calls::Required),
            (json!({"type": "function", "function": {"name": "ring"}}), Calls::Function("ring".into())),
            (json!({"type": "function", "name": "ring"}), Calls::Function("ring".into())),
            (json!({"type": "web_search"}), Calls::Auto),
        ] {
            let mut left = functions();
            assert_eq!(choice(Some(&given), &mut left).unwrap(), wanted, "{given}");
            assert_eq!(left, functions(), "{given}");
        }
        for wrong in
            [json!("perhaps"), json!(3), json!({}), json!({"type": "function"}), json!({"type": "allowed_tools"})]
        {
            assert_eq!(choice(Some(&wrong), &mut functions()).unwrap_err().status, 400, "{wrong}");
        }
    }

    #[test]
    fn functions_that_are_not_allowed_are_left_out() {
        let nested = json!({"mode": "required", "tools": [{"type": "function", "function": {"name": "sleep"}}]});
        let flat =
            json!({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "sleep"}]});
        for given in [json!({"type": "allowed_tools", "allowed_tools": nested}), flat] {
            let mut left = functions();
            assert_eq!(choice(Some(&given), &mut left).unwrap(), Calls::Required);
            assert_eq!(left, functions()[1..], "{given}");
        }
    }
}
