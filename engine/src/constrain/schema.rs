//! The schemas within a JSON schema: the keywords that contain them, and their references.

use crate::text::referred;
use serde_json::{Map, Value};
use std::collections::HashSet;

/// How the value of a keyword contains schemas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subschemas {
    /// It is one, or a list of them.
    One,
    /// They are listed.
    List,
    /// They have names.
    Named,
}

fn subschemas(keyword: &str) -> Option<Subschemas> {
    match keyword {
        "additionalItems"
        | "additionalProperties"
        | "contains"
        | "else"
        | "if"
        | "items"
        | "not"
        | "propertyNames"
        | "then"
        | "unevaluatedItems"
        | "unevaluatedProperties" => Some(Subschemas::One),
        "allOf" | "anyOf" | "oneOf" | "prefixItems" => Some(Subschemas::List),
        "$defs" | "definitions" | "dependentSchemas" | "patternProperties" | "properties" => Some(Subschemas::Named),
        _ => None,
    }
}

/// An error in a part of a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    /// The path of the part.
    pub place: String,
    pub message: String,
}

impl Fault {
    pub fn new(place: &str, message: impl Into<String>) -> Self {
        Self { place: place.to_owned(), message: message.into() }
    }
}

/// A key as a step of a JSON pointer.
pub(super) fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// The schemas that a keyword lists.
pub(super) fn list<'v>(keywords: &'v Map<String, Value>, key: &str) -> &'v [Value] {
    keywords.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// How many schemas these keywords apply to the same value, where all but `allOf` apply one.
pub(super) fn applied(keywords: &Map<String, Value>, keys: &[&str]) -> usize {
    let count = |key: &str| match key {
        "allOf" => list(keywords, key).len(),
        key => usize::from(keywords.contains_key(key)),
    };
    keys.iter().copied().map(count).sum()
}

/// The types that a schema names, if it names any.
pub(super) fn named_types(keywords: &Map<String, Value>) -> Option<Vec<&str>> {
    match keywords.get("type")? {
        Value::String(name) => Some(vec![name]),
        Value::Array(names) => Some(names.iter().filter_map(Value::as_str).collect()),
        _ => None,
    }
}

/// A value and all values in it.
pub(super) fn all_values(value: &Value) -> impl Iterator<Item = &Value> {
    let mut open = vec![value];
    std::iter::from_fn(move || {
        let value = open.pop()?;
        match value {
            Value::Array(items) => open.extend(items),
            Value::Object(entries) => open.extend(entries.values()),
            _ => {}
        }
        Some(value)
    })
}

/// Adds definitions to a schema.
pub(super) fn define(schema: &mut Value, definitions: Map<String, Value>) {
    if let (Value::Object(keywords), false) = (schema, definitions.is_empty())
        && let Value::Object(known) = keywords.entry("$defs").or_insert_with(|| Map::new().into())
    {
        known.extend(definitions);
    }
}

/// Adds another pattern, which strings have to match as well.
pub(super) fn add_pattern(keywords: &mut Map<String, Value>, pattern: String) {
    let mut part = Map::new();
    part.insert("pattern".to_owned(), pattern.into());
    part.extend(keywords.get("type").map(|kind| ("type".to_owned(), kind.clone())));
    // A value that is not a list is refused elsewhere.
    if let Value::Array(list) = keywords.entry("allOf").or_insert_with(|| Value::Array(Vec::new())) {
        list.push(part.into());
    }
}

/// Changes a schema and all schemas in it, but not values that only look like schemas: defaults, examples, constants.
pub(crate) fn for_each(schema: &mut Value, change: &mut dyn FnMut(&mut Map<String, Value>)) {
    for_each_at(schema, "#", &mut |_, keywords| change(keywords));
}

/// The same, with the path of each schema.
fn for_each_at(schema: &mut Value, place: &str, change: &mut dyn FnMut(&str, &mut Map<String, Value>)) {
    let Value::Object(keywords) = schema else { return };
    change(place, keywords);
    for (keyword, value) in keywords.iter_mut() {
        match (subschemas(keyword), value) {
            (Some(Subschemas::One | Subschemas::List), Value::Array(list)) => {
                for (at, part) in list.iter_mut().enumerate() {
                    for_each_at(part, &format!("{place}/{keyword}/{at}"), &mut *change);
                }
            }
            (Some(Subschemas::Named), Value::Object(named)) => {
                for (name, part) in named {
                    for_each_at(part, &format!("{place}/{keyword}/{}", escaped(name)), &mut *change);
                }
            }
            (Some(Subschemas::One), part) => for_each_at(part, &format!("{place}/{keyword}"), &mut *change),
            _ => {}
        }
    }
}

/// Changes the keywords of a schema, or says why that is not possible.
type Change<'a> = dyn FnMut(&mut Map<String, Value>) -> Result<(), String> + 'a;

/// Changes a schema and all schemas in it, up to the first error.
pub(super) fn try_for_each(schema: &mut Value, change: &mut Change<'_>) -> Result<(), Fault> {
    let mut fault = None;
    for_each_at(schema, "#", &mut |place, keywords| {
        if fault.is_none()
            && let Err(message) = change(keywords)
        {
            fault = Some(Fault::new(place, message));
        }
    });
    fault.map_or(Ok(()), Err)
}

/// The schemas that a schema is made of, with the paths to them.
pub(super) fn within(schema: &Value) -> Vec<(String, &Value)> {
    let mut found = Vec::new();
    for (keyword, value) in schema.as_object().into_iter().flatten() {
        match (subschemas(keyword), value) {
            (Some(Subschemas::One | Subschemas::List), Value::Array(list)) => {
                found.extend(list.iter().enumerate().map(|(at, part)| (format!("/{keyword}/{at}"), part)));
            }
            (Some(Subschemas::Named), Value::Object(named)) => {
                found.extend(named.iter().map(|(name, part)| (format!("/{keyword}/{}", escaped(name)), part)));
            }
            (Some(Subschemas::One), part) => found.push((format!("/{keyword}"), part)),
            _ => {}
        }
    }
    found
}

/// Whether a schema, or one in it, has a keyword.
pub(super) fn has_keyword(schema: &Value, keyword: &str) -> bool {
    schema.get(keyword).is_some() || within(schema).iter().any(|(_, part)| has_keyword(part, keyword))
}

/// Replaces `oneOf` by `anyOf` if no value can be valid against two alternatives, because a `discriminator`, as written
/// by Pydantic and OpenAPI, or a property distinguishes them. llguidance compares alternatives, but does not resolve
/// references, and refuses those.
pub(super) fn open_unions(schema: &mut Value) {
    let mut is_there = false;
    for_each(schema, &mut |keywords: &mut Map<String, Value>| is_there |= keywords.contains_key("oneOf"));
    // A reference to the list would no longer resolve.
    if !is_there || references(schema).iter().any(|reference| reference.contains("/oneOf")) {
        return;
    }
    let whole = schema.clone();
    for_each(schema, &mut |keywords: &mut Map<String, Value>| {
        let Some(list) = keywords.get("oneOf").and_then(Value::as_array) else { return };
        let is_told = keywords.get("discriminator").is_some_and(Value::is_object);
        if keywords.contains_key("anyOf") || !is_told && !are_apart(list, &whole) {
            return;
        }
        // The order of keywords determines the order of properties.
        let renamed = |(key, value)| (if key == "oneOf" { "anyOf".to_owned() } else { key }, value);
        *keywords = std::mem::take(keywords).into_iter().map(renamed).collect();
    });
}

/// The maximum number of required properties, values of a property and chained references that are examined to
/// distinguish alternatives.
const MAX_LOOKED_AT: usize = 50;

/// Whether no value is valid against two of these schemas: their types differ, or all are objects that require the same
/// property, with different texts as its value.
fn are_apart(list: &[Value], whole: &Value) -> bool {
    let all: Vec<&Value> = list.iter().map(|part| meant(part, whole)).collect();
    if are_of_other_types(&all) {
        return true;
    }
    let is_object = |part: &&Value| part.get("type").and_then(Value::as_str) == Some("object");
    let Some(first) = all.first() else { return false };
    all.iter().all(is_object)
        && required(first).any(|name| {
            let mut known = HashSet::new();
            let mut are_new = |texts: Vec<_>| texts.into_iter().all(|text| known.insert(text));
            all.iter().all(|part| texts_of(part, name, whole).is_some_and(&mut are_new))
        })
}

/// Whether each of these schemas names types, and no two name the same.
fn are_of_other_types(all: &[&Value]) -> bool {
    let mut kinds = HashSet::new();
    all.iter().all(|part| {
        let Some(names) = part.as_object().and_then(named_types) else { return false };
        names.into_iter().all(|name| kinds.insert(if name == "integer" { "number" } else { name }))
    })
}

/// The properties that a schema requires.
fn required(schema: &Value) -> impl Iterator<Item = &str> {
    let names = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    names.take(MAX_LOOKED_AT).filter_map(Value::as_str)
}

/// The texts that a schema allows as the value of a required property, if it allows nothing else.
fn texts_of<'a>(schema: &'a Value, name: &str, whole: &'a Value) -> Option<Vec<&'a str>> {
    let property = meant(schema.get("properties")?.get(name)?, whole);
    let values = match property.get("const") {
        Some(only) => std::slice::from_ref(only),
        None => property.get("enum")?.as_array()?,
    };
    let is_known = values.len() <= MAX_LOOKED_AT && required(schema).any(|known| known == name);
    if is_known { values.iter().map(Value::as_str).collect() } else { None }
}

/// The schema itself, or the target of its reference.
fn meant<'a>(part: &'a Value, whole: &'a Value) -> &'a Value {
    let mut part = part;
    for _ in 0..MAX_LOOKED_AT {
        let reference = part.get("$ref").and_then(Value::as_str);
        match reference.and_then(|reference| referred(reference, whole)) {
            Some(referred) => part = referred,
            None => break,
        }
    }
    part
}

/// The keywords under which a schema has definitions.
pub(super) const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

/// A part of a schema with the definitions that it refers to.
pub(super) fn with_definitions(part: &Value, whole: &Value) -> Value {
    let mut part = part.clone();
    let mut needed: HashSet<(&str, String)> = HashSet::new();
    let mut names = references(&part);
    while let Some(reference) = names.pop() {
        let place = DEFINITIONS.iter().find_map(|key| {
            let name = reference.strip_prefix("#/")?.strip_prefix(key)?.strip_prefix('/')?;
            let name = name.split('/').next().unwrap_or(name).replace("~1", "/").replace("~0", "~");
            Some((*key, name))
        });
        let Some((key, name)) = place else { continue };
        if let Some(definition) = whole.get(key).and_then(|all| all.get(&name))
            && needed.insert((key, name))
        {
            names.extend(references(definition));
        }
    }
    let Value::Object(keywords) = &mut part else { return part };
    for key in DEFINITIONS {
        // In the order of the schema, because texts are compared.
        let all = whole.get(key).and_then(Value::as_object).into_iter().flatten();
        let of_part = all.filter(|(name, _)| needed.contains(&(key, (*name).clone())));
        let of_part: Map<String, Value> = of_part.map(|(name, part)| (name.clone(), part.clone())).collect();
        if !of_part.is_empty() {
            keywords.entry(key).or_insert(Value::Object(of_part));
        }
    }
    part
}

/// Whether a schema refers to something that is not a definition.
pub(super) fn refers_elsewhere(schema: &Value) -> bool {
    let is_definition = |reference: &String| {
        let path = reference.strip_prefix("#/").unwrap_or_default();
        DEFINITIONS.iter().any(|key| path.strip_prefix(key).is_some_and(|rest| rest.starts_with('/')))
    };
    !references(schema).iter().all(is_definition)
}

/// All references in a schema.
fn references(schema: &Value) -> Vec<String> {
    all_values(schema).filter_map(|value| value.get("$ref")?.as_str()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::open_unions;
    use serde_json::{Value, json};

    /// Whether `oneOf` was replaced by `anyOf`.
    fn is_open(mut schema: Value) -> bool {
        open_unions(&mut schema);
        schema.get("anyOf").is_some() && schema.get("oneOf").is_none()
    }

    fn of_kind(kind: Value) -> Value {
        json!({"type": "object", "properties": {"kind": kind}, "required": ["kind"]})
    }

    #[test]
    fn alternatives_that_are_apart() {
        let referred = |second: &str, more: Value| {
            let mut schema = json!({"oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}], "$defs": {
                "cat": of_kind(json!({"const": "cat"})), "dog": of_kind(json!({"enum": [second, "hound"]})),
            }});
            schema
                .as_object_mut()
                .into_iter()
                .for_each(|schema| schema.extend(more.as_object().cloned().unwrap_or_default()));
            schema
        };
        assert!(is_open(referred("dog", json!({}))));
        assert!(!is_open(referred("cat", json!({}))), "a cat is valid by both");
        assert!(is_open(referred("cat", json!({"discriminator": {"propertyName": "kind"}}))));
        assert!(!is_open(referred("dog", json!({"anyOf": [{}]}))), "there is such a list");
        assert!(!is_open(json!({"oneOf": [{"type": "integer"}, {"type": "number"}]})));
        let types = json!({"oneOf": [{"$ref": "#/$defs/a"}, {"type": ["null", "boolean"]}], "$defs": {"a": {"type": "string"}}});
        assert!(is_open(types));
        let optional = json!({"type": "object", "properties": {"kind": {"const": "dog"}}});
        assert!(!is_open(json!({"oneOf": [of_kind(json!({"const": "cat"})), optional]})), "without a kind it is valid");
    }
}
