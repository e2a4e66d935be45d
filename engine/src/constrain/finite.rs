//! Whether a schema has a finite value.
//!
//! A type whose every value contains another value of the same type has none, and its text would never end. So for each
//! schema this computes whether it has a finite value: at first none is known, and a schema has a value as soon as
//! everything that it requires has one, until nothing changes. Schemas without a value are refused if they are
//! required, and otherwise allow nothing.

use super::exact::{Said, plainly};
use super::schema::{Fault, escaped, list, named_types, within};
use crate::text::referred;
use serde_json::{Map, Value};
use std::collections::HashSet;

/// Removes the parts of a schema that have no value.
///
/// # Errors
/// For a schema that has no value as a whole, with the path of the responsible part.
pub(super) fn prune(schema: &mut Value) -> Result<(), Fault> {
    let mut finite = Finite { whole: schema, with: HashSet::new() };
    while finite.grows(schema) {}
    if !finite.has(schema) {
        return Err(finite.why(schema));
    }
    let mut barren = Vec::new();
    finite.barren(schema, "", &mut barren);
    for place in barren {
        if let Some(part) = schema.pointer_mut(&place) {
            *part = Value::Bool(false);
        }
    }
    Ok(())
}

/// The schemas known to have a value, by their addresses.
struct Finite<'a> {
    whole: &'a Value,
    with: HashSet<*const Value>,
}

/// A requirement for a schema to have a value.
enum Need<'a> {
    /// A part, by the path to it.
    Part(String, &'a Value),
    /// The target of a reference.
    Reference(&'a str),
    /// One of these.
    Any(&'static str, &'a [Value]),
    /// Something impossible, for this reason.
    Never(String),
}

fn number(keywords: &Map<String, Value>, key: &str) -> Option<u64> {
    keywords.get(key).and_then(Value::as_u64)
}

impl<'a> Finite<'a> {
    /// Marks the schemas that are found to have a value. Returns whether there are new ones.
    fn grows(&mut self, schema: &Value) -> bool {
        let mut grew = false;
        for (_, part) in within(schema) {
            grew |= self.grows(part);
        }
        if !self.with.contains(&std::ptr::from_ref(schema)) && self.has(schema) {
            grew |= self.with.insert(std::ptr::from_ref(schema));
        }
        grew
    }

    fn is_known(&self, schema: &Value) -> bool {
        self.with.contains(&std::ptr::from_ref(schema))
    }

    fn has(&self, schema: &Value) -> bool {
        let Some(keywords) = schema.as_object() else { return *schema != Value::Bool(false) };
        self.needs(keywords).iter().all(|need| self.is_met(need))
    }

    fn is_met(&self, need: &Need) -> bool {
        match need {
            Need::Part(_, part) => self.is_known(part),
            // A dangling reference has its own error.
            Need::Reference(reference) => referred(reference, self.whole).is_none_or(|meant| self.is_known(meant)),
            Need::Any(_, parts) => parts.iter().any(|part| self.is_known(part)),
            Need::Never(_) => false,
        }
    }

    /// The requirements of a schema.
    fn needs<'v>(&self, keywords: &'v Map<String, Value>) -> Vec<Need<'v>> {
        let mut needs = Vec::new();
        needs.extend(keywords.get("$ref").and_then(Value::as_str).map(Need::Reference));
        for (at, part) in list(keywords, "allOf").iter().enumerate() {
            needs.push(Need::Part(format!("/allOf/{at}"), part));
        }
        for key in ["anyOf", "oneOf"] {
            if keywords.contains_key(key) {
                needs.push(Need::Any(key, list(keywords, key)));
            }
        }
        if keywords.get("enum").and_then(Value::as_array).is_some_and(Vec::is_empty) {
            needs.push(Need::Never("no value is allowed".to_owned()));
        }
        // A value of any of its types is enough. Schemas of several types are rarely impossible, so only single types
        // are checked.
        if let Some([only]) = named_types(keywords).as_deref() {
            self.of_type(only, keywords, &mut needs);
        }
        needs
    }

    fn of_type<'v>(&self, name: &str, keywords: &'v Map<String, Value>, needs: &mut Vec<Need<'v>>) {
        let mut crossed = |least: &str, most: &str| {
            if let (Some(from), Some(to)) = (number(keywords, least), number(keywords, most))
                && from > to
            {
                needs.push(Need::Never(format!("`{least}` is {from} and `{most}` is {to}")));
            }
        };
        match name {
            "string" => crossed("minLength", "maxLength"),
            "array" => {
                crossed("minItems", "maxItems");
                Self::of_items(keywords, needs);
            }
            "object" => {
                crossed("minProperties", "maxProperties");
                Self::of_properties(keywords, needs);
            }
            "integer" | "number" => needs.extend(of_number(keywords).map(Need::Never)),
            _ => {}
        }
    }

    /// The required items.
    fn of_items<'v>(keywords: &'v Map<String, Value>, needs: &mut Vec<Need<'v>>) {
        let least = number(keywords, "minItems").unwrap_or(0) as usize;
        let is_list = keywords.get("items").is_some_and(Value::is_array);
        let (first, rest) = if is_list { ("items", "additionalItems") } else { ("prefixItems", "items") };
        let parts = list(keywords, first);
        for (at, part) in parts.iter().enumerate().take(least) {
            needs.push(Need::Part(format!("/{first}/{at}"), part));
        }
        let count = parts.len();
        match keywords.get(rest).filter(|_| least > count) {
            Some(Value::Bool(false)) => {
                needs.push(Need::Never(format!("`minItems` is {least}, but only {count} items are allowed")));
            }
            Some(part) => needs.push(Need::Part(format!("/{rest}"), part)),
            None => {}
        }
    }

    /// The required properties.
    fn of_properties<'v>(keywords: &'v Map<String, Value>, needs: &mut Vec<Need<'v>>) {
        let required = list(keywords, "required");
        if let Some(most) = number(keywords, "maxProperties").filter(|most| *most < required.len() as u64) {
            needs.push(Need::Never(format!("`maxProperties` is {most}, but {} are required", required.len())));
        }
        let named = keywords.get("properties").and_then(Value::as_object);
        let is_closed = keywords.get("additionalProperties") == Some(&Value::Bool(false));
        for name in required.iter().filter_map(Value::as_str) {
            match named.and_then(|named| named.get(name)) {
                Some(part) => needs.push(Need::Part(format!("/properties/{}", escaped(name)), part)),
                None if is_closed && !keywords.contains_key("patternProperties") => {
                    let name: String = name.chars().take(40).collect();
                    needs.push(Need::Never(format!("{name:?} is required, but not among the allowed properties")));
                }
                None => {}
            }
        }
    }

    /// Why a schema has no value: the path to the part that is impossible, or that requires itself.
    fn why(&self, schema: &Value) -> Fault {
        let (mut place, mut part, mut seen) = ("#".to_owned(), schema, HashSet::new());
        loop {
            let Some(keywords) = part.as_object() else {
                return Fault::new(&place, "no value is valid: the schema is false");
            };
            if !seen.insert(std::ptr::from_ref(part)) {
                return Fault::new(&place, "no finite value is valid: each must contain another one of its kind");
            }
            let needs = self.needs(keywords);
            let unmet: Vec<&Need> = needs.iter().filter(|need| !self.is_met(need)).collect();
            // An impossible requirement explains more than one that depends on another.
            let first = unmet.iter().find(|need| matches!(need, Need::Never(_))).or_else(|| unmet.first());
            match first {
                Some(Need::Part(step, inner)) => (place, part) = (format!("{place}{step}"), *inner),
                Some(Need::Reference(reference)) => match referred(reference, self.whole) {
                    Some(meant) => (place, part) = ((*reference).to_owned(), meant),
                    None => return Fault::new(&place, "no value is valid"),
                },
                Some(Need::Any(key, parts)) => match parts.first() {
                    Some(inner) => (place, part) = (format!("{place}/{key}/0"), inner),
                    None => return Fault::new(&place, format!("`{key}` is empty, so no value is valid")),
                },
                Some(Need::Never(reason)) => return Fault::new(&place, format!("no value is valid: {reason}")),
                None => return Fault::new(&place, "no value is valid"),
            }
        }
    }

    /// The paths of the outermost schemas without a value.
    fn barren(&self, schema: &Value, place: &str, found: &mut Vec<String>) {
        for (step, part) in within(schema) {
            let place = format!("{place}{step}");
            if part.is_object() && !self.is_known(part) {
                found.push(place);
            } else {
                self.barren(part, &place, found);
            }
        }
    }
}

/// Why the keywords of a schema allow no number, if they do not.
fn of_number(keywords: &Map<String, Value>) -> Option<String> {
    let said = ["minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf"];
    if !said.iter().any(|key| keywords.contains_key(*key)) {
        return None;
    }
    let mut own = Map::new();
    own.extend(keywords.get("type").map(|kind| ("type".to_owned(), kind.clone())));
    own.extend(said.iter().filter_map(|key| Some(((*key).to_owned(), keywords.get(*key)?.clone()))));
    let schema = Value::Object(own);
    let numbers = Said::of(&schema).numbers(&schema)?;
    if !numbers.iter().all(super::range::Range::is_empty) {
        return None;
    }
    let shown = said.iter().filter_map(|key| Some(format!("`{key}` is {}", plainly(keywords.get(*key)?))));
    let kind = keywords.get("type").and_then(Value::as_str).unwrap_or("number");
    Some(format!("there is no {kind} where {}", shown.collect::<Vec<_>>().join(" and ")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::prune;
    use serde_json::{Value, json};

    fn why(mut schema: Value) -> (String, String) {
        let fault = prune(&mut schema).unwrap_err();
        (fault.place, fault.message)
    }

    #[test]
    fn types_without_an_end() {
        let never = json!({"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]});
        assert!(why(never).1.contains("another one of its kind"));
        let of = |never: Value| json!({"$ref": "#/$defs/a", "$defs": {"a": never}});
        for never in [
            json!({"$ref": "#/$defs/a"}),
            json!({"type": "array", "items": {"$ref": "#/$defs/a"}, "minItems": 1}),
            json!({"anyOf": [{"$ref": "#/$defs/a"}, {"type": "array", "prefixItems": [{"$ref": "#/$defs/a"}], "minItems": 1}]}),
            json!({"allOf": [{"type": "object"}, {"$ref": "#/$defs/a"}]}),
        ] {
            assert!(why(of(never.clone())).1.contains("another one of its kind"), "{never}");
        }
        for mut ends in [
            json!({"type": "object", "properties": {"next": {"$ref": "#"}}}),
            json!({"type": "array", "items": {"$ref": "#"}}),
            json!({"anyOf": [{"type": "null"}, {"type": "array", "items": {"$ref": "#"}, "minItems": 2}]}),
        ] {
            let before = ends.clone();
            prune(&mut ends).unwrap();
            assert_eq!(ends, before);
        }
    }

    #[test]
    fn parts_that_nobody_needs() {
        let mut schema = json!({"type": "object", "properties": {
            "never": {"$ref": "#/$defs/never"}, "list": {"type": "array", "items": {"$ref": "#/$defs/never"}},
            "either": {"anyOf": [{"$ref": "#/$defs/never"}, {"type": "null"}]},
        }, "$defs": {"never": {"type": "object", "properties": {"next": {"$ref": "#/$defs/never"}}, "required": ["next"]}}});
        prune(&mut schema).unwrap();
        assert_eq!(
            schema["properties"],
            json!({"never": false, "list": {"type": "array", "items": false},
            "either": {"anyOf": [false, {"type": "null"}]}})
        );
    }

    #[test]
    fn values_that_nothing_is() {
        for (schema, place, words) in [
            (json!({"enum": []}), "#", "no value is allowed"),
            (json!({"type": "integer", "minimum": 5, "maximum": 4}), "#", "`minimum` is 5 and `maximum` is 4"),
            (json!({"type": "number", "exclusiveMinimum": 1, "maximum": 1}), "#", "there is no number"),
            (json!({"type": "string", "minLength": 5, "maxLength": 4}), "#", "`minLength` is 5"),
            (json!({"type": "object", "properties": {"a": false}, "required": ["a"]}), "#/properties/a", "false"),
            (json!({"type": "array", "items": false, "minItems": 1}), "#", "`minItems` is 1"),
            (json!({"type": "object", "required": ["b"], "additionalProperties": false}), "#", "\"b\" is required"),
        ] {
            let (found, message) = why(schema.clone());
            assert!(found == place && message.contains(words), "{schema}: {found}: {message}");
        }
    }
}
