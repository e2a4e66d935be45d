//! Limits on the size and depth of schemas and grammars. llguidance follows references and rules by unbounded
//! recursion, and a stack overflow ends the process. So this refuses what is too deep before llguidance sees it. The
//! crate cannot be asked how deep it would recurse, so `Depth` follows the order in which it compiles. Its version is
//! pinned, and a test compares the two.

use super::expression::ways;
use super::schema::{Fault, all_values, list, named_types};
use super::together::{self, MAX_WAYS};
use crate::text::referred;
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};

/// The maximum nesting depth of the values of a schema and of the brackets of a grammar.
const DEEPEST: usize = 200;

/// The maximum nesting depth of schemas, and of rules of a grammar, where the target of a reference counts as nested
/// within the referrer.
const DEEPEST_REFERRED: usize = 150;

/// The maximum number of values in a schema, and of bytes in its names and strings.
const MAX_VALUES: usize = 200_000;
const MAX_BYTES: usize = 4 << 20;

/// The maximum length of a reference in bytes. References are looked up repeatedly.
const LONGEST_REFERENCE: usize = 2048;

/// The maximum length of a grammar in bytes.
const LONGEST_GRAMMAR: usize = 256 << 10;

/// The maximum number of alternatives in a `oneOf`: each is compared with every other.
const MAX_OF_ONE: usize = 1000;

/// The maximum number of values below the alternatives of one `oneOf`, and of pairs of them in all lists together:
/// nested alternatives are compared one by one.
const MAX_BELOW: u64 = 10_000;
const MAX_COMPARED: u64 = MAX_BELOW * MAX_BELOW;

/// The maximum number of pairs of patterns in the `patternProperties` of all objects: each pattern of an object is
/// compared with every other.
const MAX_PATTERNS: u64 = 10_000;

/// The same for schemas that are merged with others. Each merge may bring all patterns of the schema together in one
/// object.
const MAX_MERGED: u64 = 1_000_000;

/// Why a schema is too large or too deep to be compiled, if it is.
pub(super) fn of_schema(schema: &Value) -> Option<Fault> {
    let whole = |message| Fault { place: "#".to_owned(), message };
    if let Some(message) = of_whole(schema) {
        return Some(whole(message));
    }
    // llguidance's options contain expressions too.
    let options = schema.get("x-guidance").and_then(Value::as_object).into_iter().flat_map(Map::values);
    let refused = options.filter_map(Value::as_str).find_map(|expression| ways(expression).err());
    refused.map(whole).or_else(|| together::excess(schema))
}

/// Why a schema is too large or nested too deeply to be examined, if it is.
pub(super) fn of_size(schema: &Value) -> Option<String> {
    measured(schema).err()
}

/// The objects in a schema, if it is not too large.
fn measured(schema: &Value) -> Result<Vec<&Map<String, Value>>, String> {
    if is_deeper_than(schema, DEEPEST) {
        return Err(format!("more than {DEEPEST} levels of nesting"));
    }
    let (mut values, mut bytes, mut objects) = (0, 0, Vec::new());
    for value in all_values(schema) {
        values += 1;
        match value {
            Value::Object(entries) => {
                bytes += entries.keys().map(String::len).sum::<usize>();
                objects.push(entries);
            }
            Value::String(text) => bytes += text.len(),
            _ => {}
        }
        if value.get("$ref").and_then(Value::as_str).is_some_and(|name| name.len() > LONGEST_REFERENCE) {
            return Err(format!("a reference of more than {LONGEST_REFERENCE} bytes"));
        }
        if value.get("oneOf").and_then(Value::as_array).is_some_and(|list| list.len() > MAX_OF_ONE) {
            return Err(format!("more than {MAX_OF_ONE} alternatives in oneOf"));
        }
    }
    if values > MAX_VALUES {
        return Err(format!("too large: {values} values; the maximum is {MAX_VALUES}"));
    }
    if bytes > MAX_BYTES {
        return Err(format!("too large: {bytes} bytes of names and strings; the maximum is {MAX_BYTES}"));
    }
    Ok(objects)
}

fn of_whole(schema: &Value) -> Option<String> {
    let objects = match measured(schema) {
        Ok(objects) => objects,
        Err(why) => return Some(why),
    };
    if let Some(why) = of_patterns(&objects).or_else(|| of_one(&objects, schema)) {
        return Some(why);
    }
    let draft = schema.get("$schema").and_then(Value::as_str).unwrap_or_default();
    let is_old = ["draft-04", "draft-06", "draft-07", "2019-09"].iter().any(|name| draft.contains(name));
    let mut depth = Depth { whole: schema, is_old, known: HashMap::new(), steps: 0 };
    depth
        .below(schema, 0)
        .is_none()
        .then(|| format!("more than {DEEPEST_REFERRED} levels of nesting and references, or too many references"))
}

/// Why too many patterns of properties would have to be compared, if so.
fn of_patterns(objects: &[&Map<String, Value>]) -> Option<String> {
    let counts = || objects.iter().map(|keywords| length(keywords.get("patternProperties")));
    if counts().map(|count| count * count).sum::<u64>() > MAX_PATTERNS {
        return Some(format!("more than {MAX_PATTERNS} pairs of patterns in patternProperties"));
    }
    let (patterns, merged) = (counts().sum::<u64>(), objects.iter().map(|keywords| merged(keywords)).sum::<u64>());
    (patterns * patterns * merged > MAX_MERGED).then(|| {
        format!("more than {MAX_MERGED} pairs of patterns in patternProperties of schemas that apply together")
    })
}

/// How many schemas are merged with others at a schema: those listed together or combined with keywords of objects, and
/// those of properties that a pattern may match too.
fn merged(keywords: &Map<String, Value>) -> u64 {
    let values = list(keywords, "enum").iter().filter(|value| value.is_object()).count() as u64;
    let reference = u64::from(keywords.contains_key("$ref"));
    let [all, any, one] = ["allOf", "anyOf", "oneOf"].map(|key| length(keywords.get(key)));
    let parts = [values, reference, all, any, one];
    let kinds = parts.iter().filter(|count| **count > 0).count();
    if kinds == 1 && all < 2 && !OF_OBJECTS.iter().any(|key| keywords.contains_key(*key)) {
        return 0;
    }
    let named = if keywords.contains_key("patternProperties") { length(keywords.get("properties")) } else { 0 };
    parts.iter().sum::<u64>() + named
}

/// Keywords that make an object's schema be merged with others.
const OF_OBJECTS: [&str; 7] =
    ["type", "properties", "patternProperties", "additionalProperties", "required", "minProperties", "maxProperties"];

/// The number of items or entries of a value.
fn length(value: Option<&Value>) -> u64 {
    match value {
        Some(Value::Array(items)) => items.len() as u64,
        Some(Value::Object(entries)) => entries.len() as u64,
        _ => 0,
    }
}

/// Why too many alternatives of a `oneOf` would have to be compared, if so.
fn of_one(objects: &[&Map<String, Value>], whole: &Value) -> Option<String> {
    let mut pairs = 0u64;
    for keywords in objects {
        let count = below(list(keywords, "oneOf"), whole);
        pairs = pairs.saturating_add(count.saturating_mul(count));
        if pairs > MAX_COMPARED {
            return Some(format!("more than {MAX_COMPARED} pairs of values in oneOf"));
        }
    }
    None
}

/// The number of values in the alternatives of a list and in the targets of their references, counted up to the limit.
fn below(list: &[Value], whole: &Value) -> u64 {
    let mut count = 0u64;
    for alternative in list {
        let (mut next, mut followed) = (Some(alternative), HashSet::new());
        while let Some(part) = next {
            // Up to one more than the most.
            count += all_values(part).take((MAX_BELOW + 1).saturating_sub(count) as usize).count() as u64;
            if count > MAX_BELOW {
                return count;
            }
            let reference = part.get("$ref").and_then(Value::as_str).filter(|name| followed.insert(*name));
            next = reference.and_then(|name| referred(name, whole));
        }
    }
    count
}

/// Whether a value is nested more than `levels` deep.
fn is_deeper_than(value: &Value, levels: usize) -> bool {
    let Some(left) = levels.checked_sub(1) else { return true };
    match value {
        Value::Array(items) => items.iter().any(|item| is_deeper_than(item, left)),
        Value::Object(entries) => entries.values().any(|entry| is_deeper_than(entry, left)),
        _ => false,
    }
}

/// Measures a schema in the order in which llguidance compiles it: the target of a reference is compiled within the
/// first schema that refers to it, and reused for any other such reference.
struct Depth<'a> {
    whole: &'a Value,
    /// Whether lists of items are as in drafts before 2020-12.
    is_old: bool,
    /// The number of levels below the targets of references; `None` while one is being measured.
    known: HashMap<&'a str, Option<usize>>,
    /// The number of measured schemas. A schema with several names is measured for each.
    steps: usize,
}

/// A schema that another contains or refers to.
enum Within<'a> {
    Schema(&'a Value),
    Reference(&'a str),
}

impl<'a> Depth<'a> {
    /// The number of levels below a schema at a level; `None` for too many.
    fn below(&mut self, schema: &'a Value, level: usize) -> Option<usize> {
        self.steps += 1;
        if self.steps > 2 * MAX_VALUES {
            return None;
        }
        let mut below = 0;
        for part in self.within(schema) {
            let of_part = match part {
                Within::Schema(part) => self.of(part, level + 1)?,
                Within::Reference(name) => self.referred(name, level + 1)?,
            };
            below = below.max(1 + of_part);
        }
        (level + below <= DEEPEST_REFERRED).then_some(below)
    }

    fn of(&mut self, schema: &'a Value, level: usize) -> Option<usize> {
        if level > DEEPEST_REFERRED { None } else { self.below(schema, level) }
    }

    fn referred(&mut self, name: &'a str, level: usize) -> Option<usize> {
        if let Some(known) = self.known.get(name) {
            return Some(known.unwrap_or(0));
        }
        let Some(meant) = referred(name, self.whole) else { return Some(0) };
        self.known.insert(name, None);
        let below = self.of(meant, level)?;
        self.known.insert(name, Some(below));
        Some(below)
    }

    /// The schemas that a schema contains and refers to, in the order of compilation: keywords that apply schemas in
    /// place in their order, each preceded by all others met so far.
    fn within(&self, schema: &'a Value) -> Vec<Within<'a>> {
        let Some(keywords) = schema.as_object() else { return Vec::new() };
        let (mut found, mut met) = (Vec::new(), HashMap::new());
        for (keyword, value) in keywords {
            match keyword.as_str() {
                "const" | "enum" => self.by_type(keywords, &mut met, &mut found),
                "allOf" | "anyOf" | "oneOf" => {
                    self.by_type(keywords, &mut met, &mut found);
                    found.extend(value.as_array().into_iter().flatten().map(Within::Schema));
                }
                "$ref" => {
                    self.by_type(keywords, &mut met, &mut found);
                    found.extend(value.as_str().map(Within::Reference));
                }
                other => drop(met.insert(other, value)),
            }
        }
        self.by_type(keywords, &mut met, &mut found);
        found
    }

    /// The schemas in the keywords met so far, for each type of value.
    fn by_type(
        &self,
        keywords: &'a Map<String, Value>,
        met: &mut HashMap<&'a str, &'a Value>,
        found: &mut Vec<Within<'a>>,
    ) {
        if met.is_empty() {
            return;
        }
        let types = named_types(keywords).unwrap_or(vec!["array", "object"]);
        let named = |key: &str| met.get(key).and_then(|value| value.as_object()).into_iter().flat_map(Map::values);
        for name in types {
            if name == "object" {
                let properties = named("properties").chain(named("patternProperties"));
                let all = properties.chain(met.get("additionalProperties").copied());
                found.extend(all.map(Within::Schema));
            } else if name == "array" {
                let [items, first, others] =
                    ["items", "prefixItems", "additionalItems"].map(|key| met.get(key).copied());
                let is_list = items.is_some_and(Value::is_array);
                let (first, rest) = match self.is_old || others.is_some() || is_list {
                    true if is_list => (items, others),
                    true => (None, items),
                    false => (first, items),
                };
                let first = first.and_then(Value::as_array).into_iter().flatten();
                found.extend(first.chain(rest).map(Within::Schema));
            }
        }
        met.clear();
    }
}

/// Why a grammar is too large or too deep to be compiled, if it is.
pub(super) fn of_lark(grammar: &str) -> Option<String> {
    if grammar.len() > LONGEST_GRAMMAR {
        return Some(format!("too large: {} bytes; the maximum is {LONGEST_GRAMMAR}", grammar.len()));
    }
    let mut rules = Rules::default();
    let (mut depth, mut rest) = (0usize, grammar);
    while let Some(first) = rest.chars().next() {
        let skipped = match first {
            '"' => {
                rules.operands().add(1);
                quoted(rest, '"')
            }
            '&' => {
                rules.operands().are_met = true;
                1
            }
            '#' => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' => {
                let length = quoted(rest, '/');
                match ways(rest[..length].trim_matches('/')) {
                    Ok(ways) => rules.operands().add(ways),
                    Err(why) => return Some(why),
                }
                length
            }
            '%' if rest.starts_with("%json") => {
                let mut schemas = serde_json::Deserializer::from_str(&rest["%json".len()..]).into_iter::<Value>();
                match schemas.next() {
                    Some(Ok(schema)) => {
                        if let Some(Fault { place, message }) = of_schema(&schema) {
                            return Some(format!("{place}: {message}"));
                        }
                        "%json".len() + schemas.byte_offset()
                    }
                    _ => "%json".len(),
                }
            }
            '(' | '[' | '{' => {
                depth += 1;
                1
            }
            ')' | ']' | '}' => {
                depth = depth.saturating_sub(1);
                1
            }
            ':' if rest.starts_with("::") => 2,
            ':' if depth == 0 => {
                rules.begin();
                1
            }
            '\n' => {
                rules.line = rules.body.len();
                1
            }
            letter if is_name(letter) => {
                let end = rest.find(|letter| !is_name(letter)).unwrap_or(rest.len());
                rules.body.push((&rest[..end], depth));
                end
            }
            other => other.len_utf8(),
        };
        if depth > DEEPEST {
            return Some(format!("more than {DEEPEST} levels of brackets"));
        }
        rest = &rest[skipped..];
    }
    rules.line = rules.body.len();
    rules.begin();
    if rules.are_deep() {
        return Some(format!("more than {DEEPEST_REFERRED} levels of rules and brackets"));
    }
    let mut known = HashMap::new();
    let met = rules.operands.iter().filter(|(_, of)| of.are_met);
    let most = met.map(|(name, _)| rules.ways(name, 0, &mut known)).max().unwrap_or(0);
    (most > MAX_WAYS).then(|| {
        format!("too complex: the expressions that apply together allow {most} ways to continue a text; the maximum is {MAX_WAYS}")
    })
}

/// The expressions and strings of a rule: how many ways to continue a text they allow.
#[derive(Debug, Clone, Copy)]
struct Operands {
    /// The sum and the product over all of them.
    sum: u64,
    product: u64,
    /// Whether some of them must match together.
    are_met: bool,
}

impl Default for Operands {
    fn default() -> Self {
        Self { sum: 0, product: 1, are_met: false }
    }
}

impl Operands {
    fn add(&mut self, ways: u64) {
        self.sum = self.sum.saturating_add(ways);
        self.product = self.product.saturating_mul(ways.max(1));
    }
}

fn is_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// The references between the rules of a grammar.
#[derive(Default)]
struct Rules<'a> {
    /// The names in each rule, and their depth in brackets.
    known: HashMap<&'a str, Vec<(&'a str, usize)>>,
    /// The rule that is being read, its names, and where among these the present line begins.
    rule: &'a str,
    body: Vec<(&'a str, usize)>,
    line: usize,
    /// The expressions of each rule.
    operands: HashMap<&'a str, Operands>,
}

impl Rules<'_> {
    /// The expressions of the rule that is being read.
    fn operands(&mut self) -> &mut Operands {
        self.operands.entry(self.rule).or_default()
    }

    /// How many ways to continue a text a rule allows, including the rules that it names. `None` in `known` while it is
    /// being counted: a recursive rule is not an expression. Beyond the depth of rules the count is too large.
    fn ways<'b>(&'b self, rule: &'b str, level: usize, known: &mut HashMap<&'b str, Option<u64>>) -> u64 {
        if let Some(known) = known.get(rule) {
            return known.unwrap_or(0);
        }
        if level > DEEPEST_REFERRED {
            return u64::MAX;
        }
        known.insert(rule, None);
        let mut all = self.operands.get(rule).copied().unwrap_or_default();
        for (name, _) in self.known.get(rule).into_iter().flatten() {
            all.add(self.ways(name, level + 1, known));
        }
        let ways = if all.are_met { all.product } else { all.sum };
        known.insert(rule, Some(ways));
        ways
    }

    /// The names of the present line are the head of another rule.
    fn begin(&mut self) {
        let head = self.body.split_off(self.line.min(self.body.len()));
        self.known.entry(self.rule).or_default().append(&mut self.body);
        self.rule = head.first().map_or("", |(name, _)| *name);
        self.line = 0;
    }

    /// Whether rules are nested too deeply, each within the first one that names it.
    fn are_deep(&self) -> bool {
        let (mut seen, mut open) = (HashSet::new(), vec![("start", 0)]);
        while let Some((name, level)) = open.pop() {
            let Some(names) = self.known.get(name).filter(|_| seen.insert(name)) else { continue };
            if level > DEEPEST_REFERRED {
                return true;
            }
            open.extend(names.iter().rev().map(|(name, depth)| (*name, level + 1 + depth)));
        }
        false
    }
}

/// The length of a quoted text with both of its marks, where a backslash escapes a mark.
fn quoted(text: &str, mark: char) -> usize {
    let mut escaped = false;
    for (at, letter) in text.char_indices().skip(1) {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            letter if letter == mark => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use llguidance::api::{GrammarInit, ParserLimits, TopLevelGrammar};
    use serde_json::json;

    /// The types of schemas in the order in which llguidance compiles them: it reports the first that it does not know,
    /// and then compiles the schema without it. Any other error comes after all types are compiled.
    fn compiled(schema: &Value) -> Vec<String> {
        let (mut schema, mut order) = (schema.to_string(), Vec::new());
        loop {
            let init = TopLevelGrammar::from_json_schema(serde_json::from_str(&schema).unwrap_or_default());
            let compiled = GrammarInit::Serialized(init).to_internal(None, ParserLimits::default());
            let Err(error) = compiled else { return order };
            let message = format!("{error:#}");
            let Some((_, rest)) = message.split_once("Invalid type: ") else { return order };
            let name: String = rest.chars().take_while(char::is_ascii_alphanumeric).collect();
            schema = schema.replace(&json!({ "type": name }).to_string(), "true");
            order.push(name);
        }
    }

    /// The same by the order in which depths are measured.
    fn measured_types<'a>(depth: &Depth<'a>, schema: &'a Value, met: &mut HashSet<&'a str>) -> Vec<String> {
        if let Some(Value::String(name)) = schema.get("type").filter(|name| *name != "object" && *name != "array") {
            return vec![name.clone()];
        }
        let of_part = |part| match part {
            Within::Schema(part) => measured_types(depth, part, met),
            Within::Reference(name) if met.insert(name) => {
                referred(name, depth.whole).map_or_else(Vec::new, |meant| measured_types(depth, meant, met))
            }
            Within::Reference(_) => Vec::new(),
        };
        depth.within(schema).into_iter().flat_map(of_part).collect()
    }

    #[test]
    fn depths_are_measured_in_the_order_of_compilation() {
        let [one, two, three, four] = ["one", "two", "three", "four"].map(|name| json!({ "type": name }));
        let a = || json!({"$ref": "#/$defs/a"});
        let whole = json!({"items": {"type": "array", "items": two}});
        for schema in [
            // A reference is compiled within the first schema that refers to it.
            json!({"properties": {"x": a(), "y": one, "z": a()}, "$defs": {"a": {"type": "array", "items": two}}}),
            json!({"$ref": "#/$defs/a", "properties": {"y": one}, "$defs": {"a": {"items": {"$ref": "#/$defs/b"}}, "b": whole}}),
            json!({"properties": {"x": one}, "$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [two, a(), three]}}}),
            // Keywords that apply schemas in place come after those met before them.
            json!({"anyOf": [one], "properties": {"x": two}, "allOf": [three], "additionalProperties": four}),
            json!({"properties": {"x": one}, "const": {}, "items": two, "oneOf": [three, {"items": four}]}),
            // Arrays come before objects, unless types are listed, and the keywords of each have an order of their own.
            json!({"properties": {"x": one}, "items": two}),
            json!({"type": ["object", "array"], "items": two, "properties": {"x": one}}),
            json!({"type": "object", "additionalProperties": one, "patternProperties": {"^p": two}, "properties": {"x": three}}),
            json!({"type": "array", "items": one, "prefixItems": [two, three]}),
            // As in drafts before 2020-12.
            json!({"items": [one, two], "additionalItems": three}),
            json!({"items": one, "additionalItems": two}),
        ] {
            let depth = Depth { whole: &schema, is_old: false, known: HashMap::new(), steps: 0 };
            let order = measured_types(&depth, &schema, &mut HashSet::new());
            assert!(!order.is_empty(), "{schema}");
            assert_eq!(order, compiled(&schema), "{schema}");
        }
    }

    fn patterns(count: usize) -> Value {
        let named: Map<String, Value> = (0..count).map(|number| (format!("^p{number}_"), json!({}))).collect();
        json!({"type": "object", "patternProperties": named})
    }

    fn is_refused(schema: &Value) -> bool {
        of_schema(schema).is_some()
    }

    #[test]
    fn patterns_are_compared_with_each_other() {
        assert!(!is_refused(&patterns(100)));
        assert!(of_schema(&patterns(101)).is_some_and(|why| why.message.contains("patternProperties")));
        // Patterns of different objects are not compared,
        let objects = |count: usize| json!({"prefixItems": vec![patterns(10); count]});
        assert!(!is_refused(&objects(100)) && is_refused(&objects(101)));
        // unless the objects are merged.
        let together = |count: usize| json!({"allOf": vec![patterns(5); count]});
        assert!(!is_refused(&together(20)) && is_refused(&together(200)));
        let parts = vec![json!({"type": "object", "$ref": "#/$defs/a"}); 1000];
        let again = |count: usize| json!({"prefixItems": parts, "$defs": {"a": patterns(count)}});
        assert!(!is_refused(&again(20)) && is_refused(&again(90)));
    }

    #[test]
    fn one_of_many_values() {
        let many = |count: usize| json!({"enum": (0..count).collect::<Vec<_>>()});
        let list = |alternatives: usize, count: usize| json!({"oneOf": vec![many(count); alternatives]});
        assert!(!is_refused(&list(1000, 5)) && !is_refused(&list(2, 4000)));
        assert!(of_schema(&list(1000, 190)).is_some_and(|why| why.message.contains("oneOf")));
        // Many lists, and alternatives behind references.
        let lists = |count: usize| json!({"prefixItems": vec![list(10, 100); count]});
        assert!(!is_refused(&lists(50)) && is_refused(&lists(150)));
        let parts = vec![json!({"$ref": "#/$defs/a"}); 100];
        let referred = |count: usize| json!({"oneOf": parts, "$defs": {"a": {"$ref": "#/$defs/b"}, "b": many(count)}});
        assert!(!is_refused(&referred(50)) && is_refused(&referred(200)));
        // Circular references.
        assert!(!is_refused(&json!({"oneOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"$ref": "#/$defs/a"}}})));
    }
}
