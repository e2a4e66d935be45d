//! References in the only form that llguidance resolves: `#`, or a definition whose name needs no escapes.
//!
//! JSON Schema has more: JSON pointers with `~0` and `~1`, percent-encoding, anchors, and the `$id` of a schema in the
//! same document. The targets of these, and targets that are not definitions, get definitions of their own.

use super::schema::{DEFINITIONS, Fault, all_values, define, escaped, has_keyword, within};
use crate::text::decoded;
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};

/// The most values in all added definitions.
const MAX_COPIED: usize = 200_000;

/// Converts all references in a schema to the simple form. If `lenient`, dangling references accept anything. Returns
/// whether definitions were added.
///
/// # Errors
/// For a reference to another document, or to something that does not exist.
pub(super) fn simplify(schema: &mut Value, lenient: bool) -> Result<bool, Fault> {
    if !has_keyword(schema, "$ref") {
        return Ok(false);
    }
    let mut all = Resources::new(schema.clone());
    all.collect(schema, "", "");
    let mut names = Names::of(schema);
    let (mut meant, mut wanted) = (HashMap::new(), Vec::new());
    let mut next = 0;
    while let Some((place, base, reference)) = all.references.get(next).cloned() {
        next += 1;
        let key = (base, reference);
        if meant.contains_key(&key) {
            continue;
        }
        let simple = match all.target(&key.0, &key.1) {
            Ok(target) => {
                // A schema under an unknown keyword, as in `#/components/schemas/A`, is one because of this reference.
                if let Some(part) = schema.pointer(&target) {
                    let base = all.base_of(&target).to_owned();
                    all.collect(part, &target, &base);
                }
                Some(names.simple(&target, &mut wanted))
            }
            Err(_) if lenient => None,
            Err(message) => return Err(Fault::new(&format!("#{place}"), format!("`$ref`: {message}"))),
        };
        meant.insert(key, simple);
    }
    let copied = wanted.iter().filter_map(|(target, _)| schema.pointer(target)).flat_map(all_values).count();
    if copied > MAX_COPIED {
        return Err(Fault::new("#", format!("too large: references to {copied} values that are not definitions")));
    }
    let mut definitions = Map::new();
    for (target, name) in &wanted {
        let mut copy = schema.pointer(target).cloned().unwrap_or(Value::Bool(true));
        rewrite(&mut copy, all.base_of(target), target, &meant, all.is_old);
        definitions.insert(name.clone(), copy);
    }
    rewrite(schema, "", "", &meant, all.is_old);
    let added = !definitions.is_empty();
    define(schema, definitions);
    Ok(added)
}

/// The named parts of a document. Places are JSON pointers.
struct Resources {
    whole: Value,
    /// Whether it is of draft 3 or 4, in which `$id` is called `id`. In later ones `id` is an annotation.
    is_old: bool,
    /// The places of schemas with an `$id`, by their full `$id`, and the reverse.
    ids: HashMap<String, String>,
    uris: HashMap<String, String>,
    /// The same by the last segment of the `$id`; `None` if several schemas share it.
    last_segments: HashMap<String, Option<String>>,
    /// The places of anchors, by the resource that they are in.
    anchors: HashMap<(String, String), String>,
    /// The places of references, the resources that contain them, and the references.
    references: Vec<(String, String, String)>,
    /// The places of all collected schemas.
    collected: HashSet<String>,
}

/// The `$id` of a schema that begins a resource.
fn id(schema: &Value, is_old: bool) -> Option<&str> {
    let old = || if is_old { schema.get("id") } else { None };
    let id = schema.get("$id").or_else(old)?.as_str()?;
    (!id.is_empty() && !id.starts_with('#')).then(|| id.trim_end_matches('#'))
}

/// Resolves a reference against the `$id` of its resource: section 5.2 of RFC 3986.
fn joined(base: &str, reference: &str) -> String {
    let is_of_scheme = |sign: char| sign.is_ascii_alphanumeric() || "+-.".contains(sign);
    let has_scheme = |uri: &str| uri.split_once(':').is_some_and(|(scheme, _)| scheme.chars().all(is_of_scheme));
    if has_scheme(reference) {
        return reference.to_owned();
    }
    let base = base.split(['?', '#']).next().unwrap_or_default();
    let scheme = base.find("://").map_or(0, |at| at + 1);
    if reference.starts_with("//") {
        return format!("{}{reference}", &base[..scheme]);
    }
    let start = if scheme == 0 { 0 } else { base[scheme + 2..].find('/').map_or(base.len(), |at| scheme + 2 + at) };
    let (origin, path) = base.split_at(start);
    let directory = match path.rfind('/') {
        _ if reference.starts_with('/') => "",
        Some(end) => &path[..=end],
        None if origin.is_empty() => "",
        None => "/",
    };
    let mut segments: Vec<&str> = Vec::new();
    for segment in directory.split_inclusive('/').chain(reference.split_inclusive('/')) {
        match segment {
            "./" | "." => {}
            "../" | ".." => {
                // The first one is the root.
                if segments.len() > usize::from(segments.first() == Some(&"/")) {
                    segments.pop();
                }
            }
            segment => segments.push(segment),
        }
    }
    format!("{origin}{}", segments.concat())
}

impl Resources {
    fn new(whole: Value) -> Self {
        let draft = whole.get("$schema").and_then(Value::as_str).unwrap_or_default();
        let is_old = ["draft-03", "draft-04"].iter().any(|old| draft.contains(old));
        Self {
            whole,
            is_old,
            ids: HashMap::new(),
            uris: HashMap::new(),
            last_segments: HashMap::new(),
            anchors: HashMap::new(),
            references: Vec::new(),
            collected: HashSet::new(),
        }
    }

    /// Adds what is named in the schema at a place, unless it has been added before.
    fn collect(&mut self, schema: &Value, place: &str, base: &str) {
        if !self.collected.insert(place.to_owned()) {
            return;
        }
        let mut base = base;
        if let Some(id) = id(schema, self.is_old) {
            let uri = joined(self.uris.get(base).map_or("", String::as_str), id);
            if !self.ids.contains_key(&uri) {
                let last = uri.rsplit('/').next().unwrap_or_default().to_owned();
                let known = self.last_segments.entry(last);
                known.and_modify(|place| *place = None).or_insert_with(|| Some(place.to_owned()));
                self.ids.insert(uri.clone(), place.to_owned());
            }
            self.uris.insert(place.to_owned(), uri);
            base = place;
        }
        // Without a dynamic reference, which is refused, a dynamic anchor is like any other.
        let anchors = ["$anchor", "$dynamicAnchor"];
        for key in anchors.into_iter().chain(["$id", "id"]) {
            if key == "id" && !self.is_old {
                continue;
            }
            let Some(name) = schema.get(key).and_then(Value::as_str) else { continue };
            let name = if anchors.contains(&key) { Some(name) } else { name.strip_prefix('#') };
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

    /// The place of the resource that contains a place.
    fn base_of<'p>(&self, place: &'p str) -> &'p str {
        let mut base = place;
        while !self.uris.contains_key(base) {
            let Some(end) = base.rfind('/') else { return "" };
            base = &base[..end];
        }
        base
    }

    /// The place that a reference means.
    fn target(&self, base: &str, reference: &str) -> Result<String, String> {
        let shown = || reference.chars().take(80).collect::<String>();
        let (document, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let resource = if document.is_empty() { base } else { self.document(base, document, &shown())? };
        let fragment = decoded(fragment).ok_or_else(|| format!("{:?} is not a valid URI", shown()))?;
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
            Some(_) => Err(format!("the value at {:?} is not a schema", shown())),
            None => Err(format!("there is nothing at {:?}", shown())),
        }
    }

    /// The place of the schema with this `$id`, in full or relative to the resource at `base`; otherwise of the only
    /// one whose `$id` ends with it.
    fn document(&self, base: &str, document: &str, shown: &str) -> Result<&str, String> {
        let elsewhere = || format!("{shown:?} is in another document, which is not read");
        let base = self.uris.get(base).map_or("", String::as_str);
        if let Some(place) = self.ids.get(&joined(base, document)) {
            return Ok(place);
        }
        let last = document.rsplit('/').next().unwrap_or_default();
        let place = match self.last_segments.get(last) {
            None => return Err(elsewhere()),
            Some(None) => {
                return Err(format!(
                    "{shown:?} is the end of the `$id` of one of several schemas; give the full `$id`"
                ));
            }
            Some(Some(place)) => place,
        };
        let tail = format!("/{}", document.trim_start_matches("./"));
        let ends = self.uris.get(place).is_some_and(|uri| uri.ends_with(&tail));
        if ends { Ok(place) } else { Err(elsewhere()) }
    }
}

/// The names of definitions.
struct Names {
    used: HashSet<String>,
    /// The names of the added definitions, by the places that they copy.
    made: HashMap<String, String>,
}

impl Names {
    fn of(schema: &Value) -> Self {
        let used = schema.get("$defs").and_then(Value::as_object).into_iter().flat_map(Map::keys).cloned().collect();
        Self { used, made: HashMap::new() }
    }

    /// A reference to a place in the simple form. If the place must become a definition, it is added to `wanted` with
    /// its name.
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

/// The simple forms of references, by the resources that contain them.
type Meant = HashMap<(String, String), Option<String>>;

/// Replaces each reference in a schema by its simple form. `place` is the schema's original place.
fn rewrite(schema: &mut Value, base: &str, place: &str, meant: &Meant, is_old: bool) {
    let base = if id(schema, is_old).is_some() { place.to_owned() } else { base.to_owned() };
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
            rewrite(part, &base, &format!("{place}{step}"), meant, is_old);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{joined, simplify};
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
        let anchored = simple(json!({"$ref": "#leaf", "$defs": {"a": {"$dynamicAnchor": "leaf", "type": "null"}}}));
        assert_eq!(anchored["$ref"], "#/$defs/a");
        let part =
            simple(json!({"type": "object", "properties": {"a": {"type": "null"}, "b": {"$ref": "#/properties/a"}}}));
        assert_eq!(
            (&part["properties"]["b"]["$ref"], &part["$defs"]["a"]),
            (&json!("#/$defs/a"), &json!({"type": "null"}))
        );
        // A schema that refers to itself.
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

    /// Schemas under a keyword that JSON Schema does not know refer to each other, and to themselves.
    #[test]
    fn schemas_under_an_unknown_keyword() {
        let schema = simple(json!({
            "$ref": "#/components/schemas/A",
            "components": {"schemas": {
                "A": {"type": "object", "properties": {
                    "a": {"$ref": "#/components/schemas/A"}, "b": {"$ref": "#/components/schemas/B"}}},
                "B": {"type": "null"},
            }},
        }));
        assert_eq!(schema["$ref"], "#/$defs/A");
        let a = &schema["$defs"]["A"]["properties"];
        assert_eq!((&a["a"]["$ref"], &a["b"]["$ref"]), (&json!("#/$defs/A"), &json!("#/$defs/B")));
        assert_eq!(schema["$defs"]["B"], json!({"type": "null"}));
    }

    #[test]
    fn references_in_full() {
        for (base, reference, full) in [
            ("https://example.org/a/root.json", "leaf.json", "https://example.org/a/leaf.json"),
            ("https://example.org/a/root.json", "../b/./leaf.json", "https://example.org/b/leaf.json"),
            ("https://example.org/a/root.json", "../../../leaf.json", "https://example.org/leaf.json"),
            ("https://example.org/a/root.json", "/leaf.json", "https://example.org/leaf.json"),
            ("https://example.org/a/root.json?x=/y", "//other.org/leaf", "https://other.org/leaf"),
            ("https://example.org", "leaf.json", "https://example.org/leaf.json"),
            ("https://example.org/a/", "urn:leaf", "urn:leaf"),
            ("urn:root", "leaf", "leaf"),
            ("", "./leaf.json", "leaf.json"),
            ("a/root.json", "leaf.json", "a/leaf.json"),
        ] {
            assert_eq!(joined(base, reference), full, "{base} {reference}");
        }
    }

    /// Of several schemas whose `$id` ends with a reference, the one relative to the reference is meant; otherwise it
    /// is an error.
    #[test]
    fn documents_with_the_same_end() {
        let leaf = |of: &str, kind: &str| json!({"$id": format!("https://{of}.org/leaf.json"), "type": kind});
        let schema = |id: &str| {
            json!({"$id": id, "properties": {"a": {"$ref": "leaf.json"}},
                "$defs": {"one": leaf("one", "null"), "two": leaf("two", "boolean")}})
        };
        assert_eq!(simple(schema("https://one.org/root.json"))["properties"]["a"]["$ref"], "#/$defs/one");
        assert_eq!(simple(schema("https://two.org/root.json"))["properties"]["a"]["$ref"], "#/$defs/two");
        let fault = simplify(&mut schema("https://three.org/root.json"), false).unwrap_err();
        assert!(fault.message.contains("one of several"), "{fault:?}");
        let mut only = schema("https://three.org/root.json");
        only["$defs"]["two"] = json!({});
        assert_eq!(simple(only)["properties"]["a"]["$ref"], "#/$defs/one");
        // Relative to the resource that contains the reference, not to the whole document.
        let nested = json!({
            "$id": "https://example.org/root.json",
            "$defs": {"dir": {"$id": "dir/", "$defs": {"in": {"$id": "leaf.json"}}, "properties": {"a": {"$ref": "leaf.json"}}},
                "leaf": {"$id": "leaf.json"}},
        });
        let nested = simple(nested);
        let name = nested["$defs"]["dir"]["properties"]["a"]["$ref"].as_str().unwrap().to_owned();
        assert_eq!(name, "#/$defs/in", "{nested}");
    }

    /// `id` is an annotation, except in the drafts that had it instead of `$id`.
    #[test]
    fn an_annotation_called_id() {
        let schema = |draft: Value| json!({"$schema": draft, "properties": {"a": {"id": "field-1", "$ref": "#/$defs/X"}}, "$defs": {"X": {}}});
        let schema_of = |draft: &str| schema(json!(format!("https://json-schema.org/{draft}/schema")));
        assert_eq!(simple(schema_of("draft/2020-12"))["properties"]["a"]["$ref"], "#/$defs/X");
        simplify(&mut schema_of("draft-04"), false).unwrap_err();
        let old = json!({"$schema": "http://json-schema.org/draft-04/schema#", "$ref": "leaf",
            "definitions": {"a": {"id": "leaf", "type": "null"}}});
        assert_eq!(simple(old)["$ref"], "#/definitions/a");
    }

    #[test]
    fn references_that_lead_nowhere() {
        for (reference, words) in [
            ("#/$defs/nosuch", "there is nothing at"),
            ("https://example.org/other.json", "another document"),
            ("#nosuch", "no anchor"),
            ("#/title", "is not a schema"),
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
