//! References in the one form that llguidance looks up: `#`, or a definition by a name without signs that need escapes.
//!
//! JSON Schema has more: JSON pointers with `~0` and `~1`, characters as in a URI, anchors, and the `$id` of a schema in the
//! same document. What is referred to by these, and what is no definition, gets a definition of its own.

use super::schema::{Fault, escaped, has_keyword, within};
use crate::text::decoded;
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};

/// The most values that definitions of their own may consist of.
const MOST_COPIED: usize = 200_000;

/// The keywords under which a schema has definitions.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

/// Gives all references in a schema the simple form. If it is `lenient`, those that lead nowhere accept anything.
///
/// # Errors
/// For a reference to another document, or to what is not there.
pub(super) fn simplify(schema: &mut Value, lenient: bool) -> Result<(), Fault> {
    if !has_keyword(schema, "$ref") {
        return Ok(());
    }
    let mut all =
        Resources { whole: schema.clone(), ids: HashMap::new(), anchors: HashMap::new(), references: Vec::new() };
    all.collect(schema, "", "");
    let mut names = Names::of(schema);
    let (mut meant, mut wanted) = (HashMap::new(), Vec::new());
    for (place, base, reference) in &all.references {
        let key = (base.clone(), reference.clone());
        if meant.contains_key(&key) {
            continue;
        }
        let simple = match all.target(base, reference) {
            Ok(target) => Some(names.simple(&target, &mut wanted)),
            Err(_) if lenient => None,
            Err(message) => return Err(Fault::new(&format!("#{place}"), format!("`$ref`: {message}"))),
        };
        meant.insert(key, simple);
    }
    let copied: usize = wanted.iter().filter_map(|(target, _)| schema.pointer(target)).map(size).sum();
    if copied > MOST_COPIED {
        return Err(Fault::new("#", format!("too large: references to {copied} values that are no definitions")));
    }
    let mut definitions = Map::new();
    for (target, name) in &wanted {
        let mut copy = schema.pointer(target).cloned().unwrap_or(Value::Bool(true));
        rewrite(&mut copy, &all.base_of(target), target, &meant);
        definitions.insert(name.clone(), copy);
    }
    rewrite(schema, "", "", &meant);
    if let (Value::Object(keywords), false) = (&mut *schema, definitions.is_empty()) {
        let known = keywords.entry("$defs").or_insert_with(|| Value::Object(Map::new()));
        known.as_object_mut().into_iter().for_each(|known| known.extend(std::mem::take(&mut definitions)));
    }
    Ok(())
}

/// How many values a value consists of.
fn size(value: &Value) -> usize {
    let (mut count, mut open) = (0, vec![value]);
    while let Some(value) = open.pop() {
        count += 1;
        match value {
            Value::Array(items) => open.extend(items),
            Value::Object(entries) => open.extend(entries.values()),
            _ => {}
        }
    }
    count
}

/// What has a name of its own in a document. Places are JSON pointers.
struct Resources {
    whole: Value,
    /// The places of schemas with an `$id`.
    ids: HashMap<String, String>,
    /// The places of anchors, by the resource that they are in.
    anchors: HashMap<(String, String), String>,
    /// The places of references, the resources that these are in, and the references.
    references: Vec<(String, String, String)>,
}

/// The `$id` of a schema that begins a resource.
fn id(schema: &Value) -> Option<&str> {
    let id = schema.get("$id").or_else(|| schema.get("id"))?.as_str()?;
    (!id.is_empty() && !id.starts_with('#')).then(|| id.trim_end_matches('#'))
}

impl Resources {
    fn collect(&mut self, schema: &Value, place: &str, base: &str) {
        let mut base = base;
        if let Some(id) = id(schema) {
            self.ids.entry(id.to_owned()).or_insert_with(|| place.to_owned());
            base = place;
        }
        for key in ["$anchor", "$id", "id"] {
            let Some(name) = schema.get(key).and_then(Value::as_str) else { continue };
            let name = if key == "$anchor" { Some(name) } else { name.strip_prefix('#') };
            if let Some(name) = name.filter(|name| !name.is_empty()) {
                self.anchors.entry((base.to_owned(), name.to_owned())).or_insert_with(|| place.to_owned());
            }
        }
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            self.references.push((place.to_owned(), base.to_owned(), reference.to_owned()));
        }
        for (step, part) in within(schema) {
            self.collect(part, &format!("{place}{step}"), base);
        }
    }

    /// The place of the resource that something at a place is in.
    fn base_of(&self, place: &str) -> String {
        let holds =
            |of: &&String| place.strip_prefix(of.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        self.ids.values().filter(holds).max_by_key(|of| of.len()).cloned().unwrap_or_default()
    }

    /// The place that a reference means.
    fn target(&self, base: &str, reference: &str) -> Result<String, String> {
        let shown = || reference.chars().take(80).collect::<String>();
        let (document, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let resource = if document.is_empty() { Some(base) } else { self.document(document) };
        let resource =
            resource.ok_or_else(|| format!("{:?} is in another document; only this one is looked at", shown()))?;
        let fragment = decoded(fragment).ok_or_else(|| format!("{:?} is no URI", shown()))?;
        let target = match fragment.as_str() {
            "" | "/" => resource.to_owned(),
            pointer if pointer.starts_with('/') => format!("{resource}{pointer}"),
            name => {
                let known = self.anchors.get(&(resource.to_owned(), name.to_owned()));
                known.cloned().ok_or_else(|| format!("there is no anchor {:?}", shown()))?
            }
        };
        match self.whole.pointer(&target) {
            Some(Value::Object(_) | Value::Bool(_)) => Ok(target),
            Some(_) => Err(format!("what is at {:?} is no schema", shown())),
            None => Err(format!("there is nothing at {:?}", shown())),
        }
    }

    /// The place of the schema whose `$id` is this, or ends in it.
    fn document(&self, uri: &str) -> Option<&str> {
        let exact = self.ids.get(uri);
        let tail = format!("/{}", uri.trim_start_matches("./"));
        exact
            .or_else(|| self.ids.iter().find(|(id, _)| id.ends_with(&tail)).map(|(_, place)| place))
            .map(String::as_str)
    }
}

/// The names of definitions.
struct Names {
    used: HashSet<String>,
    /// The names of those that are made, by the places of what they are copies of.
    made: HashMap<String, String>,
}

impl Names {
    fn of(schema: &Value) -> Self {
        let used = schema.get("$defs").and_then(Value::as_object).into_iter().flat_map(Map::keys).cloned().collect();
        Self { used, made: HashMap::new() }
    }

    /// A reference to a place in the simple form. If that has to become a definition, it is `wanted`, with its name.
    fn simple(&mut self, target: &str, wanted: &mut Vec<(String, String)>) -> String {
        let is_simple = target.is_empty()
            || DEFINITIONS.iter().any(|key| {
                let name = target.strip_prefix('/').and_then(|rest| rest.strip_prefix(key)?.strip_prefix('/'));
                name.is_some_and(|name| !name.is_empty() && !name.contains(['/', '~', '%']))
            });
        if is_simple {
            return format!("#{target}");
        }
        if !self.made.contains_key(target) {
            let last = target.rsplit('/').next().unwrap_or_default().replace("~1", "/").replace("~0", "~");
            let mut name: String = last.chars().map(|sign| if sign.is_alphanumeric() { sign } else { '_' }).collect();
            while self.used.contains(&name) {
                name.push('_');
            }
            self.used.insert(name.clone());
            self.made.insert(target.to_owned(), name.clone());
            wanted.push((target.to_owned(), name));
        }
        format!("#/$defs/{}", escaped(self.made.get(target).map_or("", String::as_str)))
    }
}

/// The simple forms of references, by the resource they are in.
type Meant = HashMap<(String, String), Option<String>>;

/// Puts the simple form in the place of each reference in a schema that stood at a place.
fn rewrite(schema: &mut Value, base: &str, place: &str, meant: &Meant) {
    let base = if id(schema).is_some() { place.to_owned() } else { base.to_owned() };
    let steps: Vec<String> = within(schema).into_iter().map(|(step, _)| step).collect();
    if let Value::Object(keywords) = schema
        && let Some(reference) = keywords.get("$ref").and_then(Value::as_str)
    {
        match meant.get(&(base.clone(), reference.to_owned())) {
            Some(Some(simple)) => drop(keywords.insert("$ref".to_owned(), simple.clone().into())),
            Some(None) => drop(keywords.shift_remove("$ref")),
            None => {}
        }
    }
    for step in steps {
        if let Some(part) = schema.pointer_mut(&step) {
            rewrite(part, &base, &format!("{place}{step}"), meant);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::simplify;
    use serde_json::{Value, json};

    fn simple(mut schema: Value) -> Value {
        simplify(&mut schema, false).unwrap();
        schema
    }

    #[test]
    fn references_in_all_forms() {
        for (key, reference) in [
            ("a/b", "#/$defs/a~1b"),
            ("a~b", "#/$defs/a~0b"),
            ("a b", "#/$defs/a%20b"),
            ("é", "#/$defs/%C3%A9"),
            ("a%b", "#/$defs/a%25b"),
        ] {
            let schema = simple(json!({"$ref": reference, "$defs": {key: {"type": "null"}}}));
            let name = schema["$ref"].as_str().unwrap().strip_prefix("#/$defs/").unwrap();
            assert_eq!(schema["$defs"][name], json!({"type": "null"}), "{schema}");
            assert!(!name.contains(['/', '~', '%']), "{schema}");
        }
        let anchored = simple(json!({"$ref": "#leaf", "$defs": {"a": {"$anchor": "leaf", "type": "null"}}}));
        assert_eq!(anchored["$ref"], "#/$defs/a");
        let part =
            simple(json!({"type": "object", "properties": {"a": {"type": "null"}, "b": {"$ref": "#/properties/a"}}}));
        assert_eq!(
            (&part["properties"]["b"]["$ref"], &part["$defs"]["a"]),
            (&json!("#/$defs/a"), &json!({"type": "null"}))
        );
        // One that refers to itself.
        let tree = json!({"properties": {"tree": {"properties": {"inner": {"$ref": "#/properties/tree"}}}}});
        let tree = simple(tree);
        assert_eq!(tree["$defs"]["tree"]["properties"]["inner"]["$ref"], "#/$defs/tree");
    }

    #[test]
    fn documents_within_a_document() {
        let schema = simple(json!({
            "$id": "https://example.org/root.json",
            "properties": {"a": {"$ref": "leaf.json"}, "b": {"$ref": "root.json#/$defs/other"}},
            "$defs": {
                "inner": {"$id": "https://example.org/leaf.json", "$ref": "#/$defs/own", "$defs": {"own": {"type": "null"}}},
                "other": {"type": "boolean"},
            },
        }));
        assert_eq!(schema["properties"]["a"]["$ref"], "#/$defs/inner");
        assert_eq!(schema["properties"]["b"]["$ref"], "#/$defs/other");
        assert_eq!(schema["$defs"]["inner"]["$ref"], "#/$defs/own");
        assert_eq!(schema["$defs"]["own"], json!({"type": "null"}));
    }

    #[test]
    fn references_that_lead_nowhere() {
        for (reference, words) in [
            ("#/$defs/nosuch", "there is nothing at"),
            ("https://example.org/other.json", "another document"),
            ("#nosuch", "no anchor"),
            ("#/title", "is no schema"),
        ] {
            let schema = || json!({"title": "a", "properties": {"x/y": {"$ref": reference}}});
            let fault = simplify(&mut schema(), false).unwrap_err();
            assert!(fault.place == "#/properties/x~1y" && fault.message.contains(words), "{fault:?}");
            let mut open = schema();
            simplify(&mut open, true).unwrap();
            assert_eq!(open["properties"]["x/y"], json!({}));
        }
    }
}
