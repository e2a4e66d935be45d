//! Closes the objects of a schema: they may have only the properties that the schema names, unless the schema itself
//! allows others.
//!
//! Several schemas may apply to the same object (`allOf`, `anyOf`, `oneOf`, `$ref`). If each were closed alone, none of
//! them would allow the properties of the others. So they are closed together, as `unevaluatedProperties` would: what
//! one of them names is allowed by all. A definition that is a part of such a group, and elsewhere applies alone, gets
//! a copy that is not closed. Alternatives in such a copy allow each other's properties.

use super::schema::{DEFINITIONS, Fault, applied, define, list, named_types};
use crate::text::referred;
use serde_json::{Map, Value, json};
use std::collections::HashSet;

/// The maximum number of schemas and names that are visited. The closed schema has at most this many more.
const MAX_STEPS: usize = 50_000;

/// Keywords with alternatives, one of which has to hold.
const BRANCHES: [&str; 2] = ["anyOf", "oneOf"];
/// Keywords whose schemas apply to the same value as the schema that has them.
const IN_PLACE: [&str; 3] = ["allOf", "anyOf", "oneOf"];

/// A schema with closed objects. Its references are in the simple form (`reference::simplify`).
///
/// # Errors
/// For a schema that would become too large.
pub(super) fn closed(schema: &Value) -> Result<Value, Fault> {
    let mut closing = Closing { whole: schema, steps: 0, parts: Vec::new(), names: 0 };
    let mut made = schema.clone();
    closing.alone(&mut made)?;
    for key in DEFINITIONS {
        for definition in made.get_mut(key).and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut) {
            closing.alone(definition)?;
        }
    }
    let copies = closing.copies()?;
    define(&mut made, copies);
    Ok(made)
}

/// What the schemas that apply to an object say about its properties.
#[derive(Debug, Clone, Default)]
struct Known {
    /// Their names, and the expressions of names, each with a schema that any value matches.
    names: Map<String, Value>,
    patterns: Map<String, Value>,
    /// Whether any properties are named. An object without names is one with any properties.
    is_named: bool,
    /// Whether a schema allows other properties.
    is_open: bool,
}

impl Known {
    fn add(&mut self, keywords: &Map<String, Value>) {
        let named = |key: &str| keywords.get(key).and_then(Value::as_object);
        let any = |name: &String| (name.clone(), Value::Bool(true));
        self.names.extend(named("properties").into_iter().flat_map(Map::keys).map(any));
        let required = list(keywords, "required").iter().filter_map(Value::as_str);
        self.names.extend(required.map(|name| any(&name.to_owned())));
        self.patterns.extend(named("patternProperties").into_iter().flat_map(Map::keys).map(any));
        self.is_named |= ["properties", "patternProperties"].iter().any(|key| keywords.contains_key(*key));
        let mut others = ["additionalProperties", "unevaluatedProperties"].iter().filter_map(|key| keywords.get(*key));
        self.is_open |= others.any(|value| *value != Value::Bool(false));
    }

    fn extend(&mut self, other: &Self) {
        self.names.extend(other.names.iter().map(|(name, any)| (name.clone(), any.clone())));
        self.patterns.extend(other.patterns.iter().map(|(name, any)| (name.clone(), any.clone())));
        self.is_named |= other.is_named;
        self.is_open |= other.is_open;
    }

    fn len(&self) -> usize {
        self.names.len() + self.patterns.len()
    }

    /// Closes a schema, which then allows what is known, unless it says itself what other properties are allowed.
    fn close(&self, keywords: &mut Map<String, Value>) {
        let is_object = named_types(keywords).is_none_or(|kinds| kinds.contains(&"object"));
        if !self.is_named || self.is_open || !is_object || keywords.contains_key("additionalProperties") {
            return;
        }
        for (key, known) in [("properties", &self.names), ("patternProperties", &self.patterns)] {
            if known.is_empty() {
                continue;
            }
            if let Value::Object(named) = keywords.entry(key).or_insert_with(|| json!({})) {
                for (name, any) in known {
                    named.entry(name).or_insert_with(|| any.clone());
                }
            }
        }
        keywords.insert("additionalProperties".to_owned(), false.into());
    }
}

struct Closing<'a> {
    /// The schema as it was, for references.
    whole: &'a Value,
    steps: usize,
    /// The references whose targets are parts of other schemas and not closed there, and the names of those copies.
    parts: Vec<(String, String)>,
    /// How many names were made.
    names: usize,
}

impl<'a> Closing<'a> {
    fn step(&mut self, count: usize) -> Result<(), Fault> {
        self.steps += count;
        if self.steps <= MAX_STEPS {
            return Ok(());
        }
        Err(Fault::new(
            "#",
            format!(
                "too large: closing its objects takes more than {MAX_STEPS} steps; \
             write additionalProperties: false where it is needed, and leave out the option that closes all objects"
            ),
        ))
    }

    /// What these schemas, and all that apply to the same value because of them, say about properties.
    fn known<'s>(&mut self, schemas: impl Iterator<Item = &'s Value>) -> Result<Known, Fault>
    where
        'a: 's,
    {
        let (mut open, mut seen, mut known): (Vec<&Value>, _, _) =
            (schemas.collect(), HashSet::new(), Known::default());
        let mut at = 0;
        while let Some(schema) = open.get(at).copied() {
            at += 1;
            let Some(keywords) = schema.as_object() else { continue };
            let named = ["properties", "patternProperties"].iter().filter_map(|key| keywords.get(*key)?.as_object());
            self.step(1 + named.map(Map::len).sum::<usize>() + list(keywords, "required").len())?;
            known.add(keywords);
            open.extend(IN_PLACE.iter().flat_map(|key| list(keywords, key)));
            if let Some(reference) = keywords.get("$ref").and_then(Value::as_str)
                && seen.insert(reference)
            {
                open.extend(referred(reference, self.whole));
            }
        }
        Ok(known)
    }

    /// What the schema of a keyword's reference says.
    fn known_of_reference(&mut self, keywords: &Map<String, Value>) -> Result<Known, Fault> {
        let reference = keywords.get("$ref").and_then(Value::as_str);
        self.known(reference.and_then(|reference| referred(reference, self.whole)).into_iter())
    }

    /// Closes a schema that applies to a value without others.
    fn alone(&mut self, schema: &mut Value) -> Result<(), Fault> {
        self.together(schema, Some(&Known::default()))
    }

    /// Closes a schema, and what others that apply to the same value say about properties; `None` if those close it.
    fn together(&mut self, schema: &mut Value, others: Option<&Known>) -> Result<(), Fault> {
        self.step(1)?;
        let Value::Object(keywords) = schema else { return Ok(()) };
        for part in elsewhere(keywords) {
            self.alone(part)?;
        }
        let Some(others) = others else { return self.leave_open(keywords) };
        let mut known = others.clone();
        known.add(keywords);
        self.step(known.len())?;
        if BRANCHES.iter().any(|key| keywords.contains_key(*key)) {
            return self.branches(keywords, &known);
        }
        match applied(keywords, &["allOf", "$ref"]) {
            0 => known.close(keywords),
            // A reference to a definition that is closed itself.
            1 if !known.is_named && known.len() == 0 && !known.is_open => {
                for part in list_mut(keywords, "allOf") {
                    self.together(part, Some(&known))?;
                }
            }
            _ => return self.all(keywords, &known),
        }
        Ok(())
    }

    /// Closes a schema with parts that all apply. If a part has alternatives, each of these is closed.
    fn all(&mut self, keywords: &mut Map<String, Value>, known: &Known) -> Result<(), Fault> {
        let mut known = known.clone();
        known.extend(&self.known_of_reference(keywords)?);
        let mut parts = Vec::new();
        for part in list(keywords, "allOf") {
            parts.push(self.known(std::iter::once(part))?);
        }
        let has_branches = |part: &Value| BRANCHES.iter().any(|key| part.get(*key).is_some());
        for at in 0..parts.len() {
            let Some(part) = list_mut(keywords, "allOf").get_mut(at).filter(|part| has_branches(part)) else {
                continue;
            };
            let mut others = known.clone();
            self.step(others.len())?;
            for (_, other) in parts.iter().enumerate().filter(|(of, _)| *of != at) {
                self.step(1 + other.len())?;
                others.extend(other);
            }
            self.together(part, Some(&others))?;
        }
        for part in parts {
            self.step(1 + part.len())?;
            known.extend(&part);
        }
        known.close(keywords);
        for part in list_mut(keywords, "allOf").iter_mut().filter(|part| !has_branches(part)) {
            self.together(part, None)?;
        }
        self.refer_to_copy(keywords)
    }

    /// Closes each alternative of a schema, with what else applies.
    fn branches(&mut self, keywords: &mut Map<String, Value>, known: &Known) -> Result<(), Fault> {
        let mut outer = known.clone();
        outer.extend(&self.known_of_reference(keywords)?);
        outer.extend(&self.known(list(keywords, "allOf").iter())?);
        let [any, one] = BRANCHES;
        let of_any = self.known(list(keywords, any).iter())?;
        let of_one = self.known(list(keywords, one).iter())?;
        for (key, other) in [(any, of_one), (one, of_any)] {
            let mut others = outer.clone();
            others.extend(&other);
            for part in list_mut(keywords, key) {
                self.step(others.len())?;
                self.together(part, Some(&others))?;
            }
        }
        for part in list_mut(keywords, "allOf") {
            self.together(part, None)?;
        }
        self.refer_to_copy(keywords)
    }

    /// Leaves a schema open that is closed by another one which applies to the same value.
    fn leave_open(&mut self, keywords: &mut Map<String, Value>) -> Result<(), Fault> {
        for key in IN_PLACE {
            for part in list_mut(keywords, key) {
                self.together(part, None)?;
            }
        }
        self.refer_to_copy(keywords)
    }

    /// Changes a reference so that its target is not closed.
    fn refer_to_copy(&mut self, keywords: &mut Map<String, Value>) -> Result<(), Fault> {
        let Some(Value::String(reference)) = keywords.get_mut("$ref") else { return Ok(()) };
        let name = match self.parts.iter().find(|(known, _)| known == reference) {
            Some((_, name)) => name.clone(),
            None => {
                let name = self.new_name();
                self.parts.push((reference.clone(), name.clone()));
                name
            }
        };
        self.step(self.parts.len())?;
        *reference = format!("#/$defs/{name}");
        Ok(())
    }

    /// A name that no definition has.
    fn new_name(&mut self) -> String {
        loop {
            self.names += 1;
            let name = format!("open{}", self.names);
            if self.whole.get("$defs").and_then(|all| all.get(&name)).is_none() {
                return name;
            }
        }
    }

    /// The definitions that are not closed.
    fn copies(&mut self) -> Result<Map<String, Value>, Fault> {
        let mut copies = Map::new();
        while let Some((reference, name)) = self.parts.get(copies.len()).cloned() {
            let mut copy = referred(&reference, self.whole).cloned().unwrap_or(Value::Bool(true));
            if let Value::Object(keywords) = &mut copy {
                // Definitions and options are those of the whole schema.
                keywords.retain(|key, _| key != "x-guidance" && !DEFINITIONS.contains(&key.as_str()));
            }
            self.together(&mut copy, None)?;
            copies.insert(name, copy);
        }
        Ok(copies)
    }
}

/// The schemas of a keyword that lists them.
fn list_mut<'v>(keywords: &'v mut Map<String, Value>, key: &str) -> &'v mut [Value] {
    keywords.get_mut(key).and_then(Value::as_array_mut).map_or(&mut [], Vec::as_mut_slice)
}

/// The schemas within a schema that apply to other values: properties and items.
fn elsewhere(keywords: &mut Map<String, Value>) -> Vec<&mut Value> {
    let mut found = Vec::new();
    for (key, value) in keywords {
        match (key.as_str(), value) {
            ("properties" | "patternProperties", Value::Object(named)) => found.extend(named.values_mut()),
            ("items" | "prefixItems", Value::Array(list)) => found.extend(list),
            ("additionalItems" | "additionalProperties" | "items", part) => found.push(part),
            _ => {}
        }
    }
    found
}
