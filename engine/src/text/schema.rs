//! What the schema of a function's argument says about its type, through references and alternatives. The reader of a
//! call's arguments and the grammar that constrains them both use this.

use serde_json::Value;
use std::collections::HashSet;

/// The most steps for finding alternatives and types: visited schemas, and values and type names in them. Arguments are
/// read during a reply, so a schema that would take more steps counts as one without a type. Reader and grammar must
/// agree on that, and so share the count.
const MAX_STEPS: usize = 10_000;

/// The alternatives that a part of a schema consists of, with references, `anyOf` and `oneOf` resolved. References
/// point into the whole schema, and each is followed once. An `allOf` of one schema is that schema. Empty if there
/// would be too many steps.
#[cfg(feature = "constrain")]
pub(crate) fn alternatives<'a>(part: &'a Value, whole: &'a Value) -> Vec<&'a Value> {
    Steps(MAX_STEPS).alternatives(part, whole).unwrap_or_default()
}

/// The names of types in JSON Schema.
const TYPES: [&str; 7] = ["null", "boolean", "integer", "number", "string", "array", "object"];

/// The types that a part of a schema names, each once, without names that JSON Schema does not have; empty if it names
/// none, or if that would take too many steps.
pub(crate) fn types<'a>(part: &'a Value, whole: &'a Value) -> Vec<&'a str> {
    Steps(MAX_STEPS).types(part, whole).unwrap_or_default()
}

/// The schema of the arguments that are not among the properties of a function's schema, if all of them have the same.
pub(crate) fn other_argument(whole: &Value) -> Option<&Value> {
    whole.get("additionalProperties").filter(|part| part.is_object() && whole.get("patternProperties").is_none())
}

/// The most parts of an `allOf` that are searched for types.
const MAX_OF_ALL: usize = 100;

/// The number of steps left.
struct Steps(usize);

impl Steps {
    /// Takes `count` steps; `None` if fewer are left.
    fn take(&mut self, count: usize) -> Option<()> {
        self.0 = self.0.checked_sub(count)?;
        Some(())
    }

    fn alternatives<'a>(&mut self, part: &'a Value, whole: &'a Value) -> Option<Vec<&'a Value>> {
        let (mut found, mut followed, mut open) = (Vec::new(), HashSet::new(), vec![part]);
        while let Some(part) = open.pop() {
            self.take(1)?;
            if let Some(reference) = part.get("$ref").and_then(Value::as_str) {
                match referred(reference, whole) {
                    Some(meant) if followed.insert(reference) => open.push(meant),
                    Some(_) => {} // already an alternative
                    None => found.push(part),
                }
            } else if part.get("enum").is_some() || part.get("const").is_some() {
                found.push(part);
            } else if let Some(options) = list(part, "anyOf").or_else(|| list(part, "oneOf")) {
                open.extend(options.iter().rev());
            } else if let (Some([only]), None) = (list(part, "allOf"), part.get("type")) {
                open.push(only);
            } else {
                found.push(part);
            }
        }
        Some(found)
    }

    fn types<'a>(&mut self, part: &'a Value, whole: &'a Value) -> Option<Vec<&'a str>> {
        let mut found = Vec::new();
        for one in self.alternatives(part, whole)? {
            let mut names = self.named_by(one)?;
            // All of these must hold, so the first that names types is enough.
            for part in list(one, "allOf").unwrap_or_default().iter().take(MAX_OF_ALL) {
                if names.is_empty() {
                    for one in self.alternatives(part, whole)? {
                        names.extend(self.named_by(one)?);
                    }
                }
            }
            for name in names {
                if TYPES.contains(&name) && !found.contains(&name) {
                    found.push(name);
                }
            }
        }
        Some(found)
    }

    /// The types that a schema names by itself.
    fn named_by<'a>(&mut self, one: &'a Value) -> Option<Vec<&'a str>> {
        match one.get("type") {
            Some(Value::String(name)) => Some(vec![name.as_str()]),
            Some(Value::Array(names)) => {
                self.take(names.len())?;
                Some(names.iter().filter_map(Value::as_str).collect())
            }
            _ => {
                let values = list(one, "enum").unwrap_or_default();
                self.take(values.len())?;
                Some(values.iter().chain(one.get("const")).map(type_of).collect())
            }
        }
    }
}

/// The part of a schema that a reference within the schema points to: a JSON pointer, possibly percent-encoded.
pub(crate) fn referred<'a>(reference: &str, whole: &'a Value) -> Option<&'a Value> {
    let path = decoded(reference.strip_prefix('#')?)?;
    if path == "/" { Some(whole) } else { whole.pointer(&path) }
}

/// Percent-decodes a part of a URI; `None` if the result is not text.
pub(crate) fn decoded(part: &str) -> Option<String> {
    let mut pieces = part.split('%');
    let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        let code = piece.get(..2).filter(|code| code.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(code, 16).ok()?);
        bytes.extend_from_slice(&piece.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}

/// The schemas that a keyword lists, if there are any.
fn list<'a>(part: &'a Value, key: &str) -> Option<&'a [Value]> {
    part.get(key).and_then(Value::as_array).map(Vec::as_slice).filter(|list| !list.is_empty())
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
pub(crate) fn is_of_type(value: &Value, name: &str) -> bool {
    type_of(value) == name || name == "integer" && (value.is_i64() || value.is_u64())
}

#[cfg(test)]
mod tests {
    use super::types;
    use serde_json::{Value, json};

    /// Alternatives of alternatives are visited up to the limit of steps.
    #[test]
    fn too_much_to_look_at() {
        let whole = json!({"$defs": {"many": {"anyOf": vec![json!({"title": "any"}); 200]}}});
        let part = |count: usize| {
            let one = json!({"allOf": [{"$ref": "#/$defs/many"}, {"title": "either"}]});
            let all: Vec<Value> = [json!({"type": "string"})].into_iter().chain(vec![one; count]).collect();
            json!({"anyOf": all})
        };
        assert_eq!(types(&part(10), &whole), ["string"]);
        assert!(types(&part(1000), &whole).is_empty());
        let values = |count: usize| json!({"enum": vec!["value"; count]});
        assert_eq!(types(&values(9000), &whole), ["string"]);
        assert!(types(&values(11_000), &whole).is_empty());
    }

    /// Callers compare each value of a schema with each of its types, so there are only a few.
    #[test]
    fn unknown_types_are_left_out() {
        let unknown = (0..4000).map(|number| format!("type {number}"));
        let names: Vec<String> = ["string", "null", "string"].map(str::to_owned).into_iter().chain(unknown).collect();
        assert_eq!(types(&json!({"type": names}), &Value::Null), ["string", "null"]);
        let part = json!({"anyOf": [{"type": "text"}, {"type": "integer"}]});
        assert_eq!(types(&part, &Value::Null), ["integer"]);
        assert!(types(&json!({"type": "text"}), &Value::Null).is_empty());
    }
}
