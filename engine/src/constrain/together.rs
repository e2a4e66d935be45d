//! Counts what applies together at one place of the JSON: properties of one object, expressions for one string,
//! alternatives that are merged with adjacent keywords.
//!
//! llguidance merges these into one schema. It recurses over the properties of an object, each with all that follow it,
//! and copies keywords adjacent to alternatives for each of them. None of that counts against its budgets. So it is
//! counted here beforehand: never too low, and sometimes too high, if schemas that apply together repeat each other.

use super::exact;
use super::expression::{UNKNOWN, ways};
use super::schema::{Fault, applied, escaped, list};
use crate::text::referred;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap};

/// The maximum number of properties of one object, including those from all schemas that apply to it.
pub(super) const MAX_PROPERTIES: u64 = 1000;

/// The same with `minProperties` or `maxProperties`, for which llguidance tries each property.
const MAX_COUNTED: u64 = 60;

/// The maximum number of pairs of properties of the same object, in all objects of a schema.
const MAX_PAIRS: u64 = 3_000_000;

/// The maximum number of ways to continue a string that all of its expressions allow together, and the total for all
/// strings with more than one expression. A pair takes a fifth of a microsecond.
pub(super) const MAX_WAYS: u64 = 100_000;
const MAX_WAYS_OF_ALL: u64 = 500_000;

/// The maximum number of schemas, of up to 300 bytes each, after all alternatives are merged with adjacent keywords.
const MAX_SCHEMAS: u64 = 250_000;

/// The explanation of the limit in messages.
const MERGED: &str = "once alternatives are merged with adjacent keywords";

/// Why a few schemas may exceed the limit.
const INTEGERS: &str = "; an integer that may be negative counts as three, one with a `minimum` of 0 as one";

/// The maximum number of schemas, properties and strings that are visited for counting.
const MAX_STEPS: u64 = 500_000;

/// The counts of what applies together at a place of the JSON.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    properties: u64,
    /// Whether the number of properties is limited by keywords.
    counted: bool,
    /// The sum of the ways of the expressions for property names.
    names: u64,
    /// The product of the ways of a string's expressions, and the number of those expressions.
    ways: u64,
    expressions: u64,
    /// The number of alternatives once each is merged with those of other schemas; 0 for one.
    alternatives: u64,
}

impl Counts {
    fn and(self, other: Self) -> Self {
        Self {
            properties: self.properties.saturating_add(other.properties),
            counted: self.counted || other.counted,
            names: self.names.saturating_add(other.names),
            ways: self.ways.max(1).saturating_mul(other.ways.max(1)),
            expressions: self.expressions + other.expressions,
            alternatives: self.alternatives.max(1).saturating_mul(other.alternatives.max(1)),
        }
    }

    fn or(self, other: Self) -> Self {
        Self {
            properties: self.properties.max(other.properties),
            counted: self.counted || other.counted,
            names: self.names.max(other.names),
            ways: self.ways.max(other.ways),
            expressions: self.expressions.max(other.expressions),
            alternatives: self.alternatives.max(other.alternatives),
        }
    }

    fn is_nothing(&self) -> bool {
        self.properties == 0 && self.names == 0 && self.expressions == 0 && self.alternatives < 2
    }
}

/// A step from a schema to one for a value within.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step<'a> {
    Property(&'a str),
    /// Any property or item.
    Any,
    /// A definition, in `$defs` or `definitions`.
    Definition(&'a str, &'a str),
}

/// The steps from a schema to a place below it, the last one first.
type Path<'a> = Vec<Step<'a>>;

/// The counts of a schema.
#[derive(Debug, Default)]
struct Sum<'a> {
    at: BTreeMap<Path<'a>, Counts>,
    /// The number of its alternatives, and of schemas that it consists of with them.
    alternatives: u64,
    schemas: u64,
}

impl<'a> Sum<'a> {
    fn one() -> Self {
        Self { at: BTreeMap::new(), alternatives: 1, schemas: 1 }
    }

    fn join(&mut self, other: Self, join: impl Fn(Counts, Counts) -> Counts) {
        for (path, held) in other.at {
            let known = self.at.entry(path).or_default();
            *known = join(*known, held);
        }
    }

    /// Adds counts that also apply.
    fn and(&mut self, other: Self) {
        let (mine, others) = (self.alternatives, other.alternatives);
        self.schemas = self.schemas.saturating_mul(others).saturating_add(other.schemas.saturating_mul(mine));
        self.alternatives = mine.saturating_mul(others);
        self.join(other, Counts::and);
    }

    /// Adds counts that apply alternatively.
    fn or(&mut self, other: Self) {
        self.alternatives = self.alternatives.saturating_add(other.alternatives);
        self.schemas = self.schemas.saturating_add(other.schemas);
        self.join(other, Counts::or);
    }

    /// Adds the counts one step below. Its alternatives count if it may be `merged` with other schemas.
    fn below(&mut self, step: Step<'a>, mut other: Self, merged: bool) {
        if merged && other.alternatives > 1 {
            let own = other.at.entry(Vec::new()).or_default();
            own.alternatives = own.alternatives.max(1).saturating_mul(other.alternatives);
        }
        self.schemas = self.schemas.saturating_add(other.schemas);
        let moved = other.at.into_iter().map(|(mut path, held)| {
            path.push(step);
            (path, held)
        });
        let at = moved.collect();
        self.join(Self { at, ..Self::default() }, Counts::and);
    }
}

/// The limit that a schema exceeds, if any.
pub(super) fn excess(schema: &Value) -> Option<Fault> {
    let (following, expressions) = (Vec::new(), HashMap::new());
    let mut count = Count { whole: schema, steps: 0, following, pairs: 0, ways: 0, expressions };
    let found = count.of(schema, false).and_then(|sum| count.judge(&sum));
    found.err().map(|Found { path, message }| Fault { place: pointer(&path), message })
}

/// An exceeded limit, and the steps to it.
struct Found<'a> {
    path: Path<'a>,
    message: String,
}

impl<'a> Found<'a> {
    fn whole(message: String) -> Self {
        Self { path: Vec::new(), message }
    }

    /// The same, one step further up.
    fn below(mut self, step: Step<'a>) -> Self {
        self.path.push(step);
        self
    }
}

/// Whether two paths may lead to the same place.
fn may_be_same(one: &Path, other: &Path) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(a, b)| a == b || *a == Step::Any || *b == Step::Any)
}

/// The steps as the path of the part of a schema, as far as they are known.
fn pointer(path: &Path) -> String {
    let mut pointer = "#".to_owned();
    for step in path.iter().rev() {
        let (keyword, name) = match step {
            Step::Property(name) => ("properties", name),
            Step::Definition(keyword, name) => (*keyword, name),
            Step::Any => break,
        };
        pointer += &format!("/{keyword}/{}", escaped(name));
    }
    pointer
}

/// Counts what applies together.
struct Count<'a> {
    whole: &'a Value,
    steps: u64,
    /// The references that are being followed.
    following: Vec<&'a str>,
    /// Pairs of properties so far, and ways of strings with several expressions.
    pairs: u64,
    ways: u64,
    /// The ways of expressions, by their addresses.
    expressions: HashMap<(*const u8, usize), u64>,
}

/// How many bytes of a name are one step.
const NAME: usize = 64;

impl<'a> Count<'a> {
    fn step(&mut self, count: usize) -> Result<(), Found<'a>> {
        self.steps += count as u64;
        if self.steps <= MAX_STEPS {
            return Ok(());
        }
        let message = format!("too large: more than {MAX_STEPS} schemas and properties that apply together");
        Err(Found::whole(message))
    }

    /// Checks the limits everywhere below a schema.
    fn judge(&mut self, sum: &Sum<'a>) -> Result<(), Found<'a>> {
        let any: Vec<(&Path<'a>, &Counts)> = sum.at.iter().filter(|(path, _)| path.contains(&Step::Any)).collect();
        if (any.len() as u64).saturating_mul(sum.at.len() as u64) > 50 * MAX_STEPS {
            return Err(Found::whole("too large: too many patterns and lists in addition to properties".to_owned()));
        }
        for (path, own) in &sum.at {
            let same = any.iter().filter(|(other, _)| *other != path && may_be_same(other, path));
            let held = same.fold(*own, |held, (_, other)| held.and(**other));
            let found = |message: String| Err(Found { path: path.clone(), message });
            let (most, beside) = match held.counted {
                true => (MAX_COUNTED, " with minProperties or maxProperties"),
                false => (MAX_PROPERTIES, ""),
            };
            if held.properties > most {
                let count = held.properties;
                return found(format!("too large: {count} properties of one object{beside}; the maximum is {most}"));
            }
            // Those of `own`: schemas for all properties are mostly not merged with those for one.
            if own.alternatives > MAX_SCHEMAS {
                return found(format!("too large: more than {MAX_SCHEMAS} alternatives, {MERGED}{INTEGERS}"));
            }
            let ways = held.ways.max(held.names.saturating_mul(held.names));
            if ways > MAX_WAYS {
                return found(format!(
                    "too complex: the expressions that apply together allow {ways} ways to continue a text; the maximum is \
                     {MAX_WAYS}"
                ));
            }
            self.pairs += held.properties * held.properties;
            self.ways += if held.expressions > 1 { held.ways } else { 0 };
        }
        let (pairs, ways) = (self.pairs, self.ways);
        if pairs > MAX_PAIRS {
            let most = MAX_PAIRS;
            return Err(Found::whole(format!(
                "too large: {pairs} pairs of properties of the same object; the maximum is {most}"
            )));
        }
        if ways > MAX_WAYS_OF_ALL {
            let most = MAX_WAYS_OF_ALL;
            let what = "ways to continue texts, by all expressions that apply together";
            return Err(Found::whole(format!("too complex: {ways} {what}; the maximum is {most}")));
        }
        Ok(())
    }

    /// The counts of a schema. The targets of its references count if another schema `holds` too, or if the reference
    /// has adjacent keywords.
    fn of(&mut self, schema: &'a Value, holds: bool) -> Result<Sum<'a>, Found<'a>> {
        self.step(1)?;
        let Some(keywords) = schema.as_object() else { return Ok(Sum::one()) };
        let applied = applied(keywords, &["allOf", "anyOf", "oneOf", "$ref", "const", "enum"]);
        let beside = KEYWORDS.iter().any(|key| keywords.contains_key(*key));
        let holds = holds || applied > 1 || applied == 1 && beside;
        let mut sum = self.own(keywords, holds)?;
        for part in list(keywords, "allOf") {
            let part = self.of(part, holds)?;
            self.and(&mut sum, part)?;
        }
        for key in ["anyOf", "oneOf"] {
            let mut any: Option<Sum> = None;
            for part in list(keywords, key) {
                let part = self.of(part, holds)?;
                any = Some(self.either(any, part)?);
            }
            any.map(|any| self.and(&mut sum, any)).transpose()?;
        }
        let mut any: Option<Sum> = None;
        for value in list(keywords, "enum").iter().chain(keywords.get("const")) {
            let value = self.constant(value)?;
            any = Some(self.either(any, value)?);
        }
        any.map(|any| self.and(&mut sum, any)).transpose()?;
        if let Some(name) = keywords.get("$ref").and_then(Value::as_str).filter(|_| holds)
            && !self.following.contains(&name)
            && let Some(referred) = referred(name, self.whole)
        {
            self.following.push(name);
            let referred = self.of(referred, holds)?;
            self.following.pop();
            self.and(&mut sum, referred)?;
        }
        Ok(sum)
    }

    fn and(&mut self, sum: &mut Sum<'a>, part: Sum<'a>) -> Result<(), Found<'a>> {
        self.step(part.at.len())?;
        sum.and(part);
        if sum.schemas <= MAX_SCHEMAS {
            return Ok(());
        }
        Err(Found::whole(format!("too large: more than {MAX_SCHEMAS} schemas, {MERGED}")))
    }

    fn either(&mut self, any: Option<Sum<'a>>, part: Sum<'a>) -> Result<Sum<'a>, Found<'a>> {
        self.step(part.at.len())?;
        let Some(mut any) = any else { return Ok(part) };
        any.or(part);
        Ok(any)
    }

    /// The ways of an expression. It is parsed once, however often it is referred to.
    fn ways_of(&mut self, expression: &'a str) -> Result<u64, Found<'a>> {
        let key = (expression.as_ptr(), expression.len());
        if let Some(known) = self.expressions.get(&key) {
            return Ok(*known);
        }
        let found = ways(expression).map_err(Found::whole)?;
        self.expressions.insert(key, found);
        Ok(found)
    }

    /// The counts of the keywords of types, and of the definitions.
    fn own(&mut self, keywords: &'a Map<String, Value>, holds: bool) -> Result<Sum<'a>, Found<'a>> {
        let (mut sum, mut held) = (Sum::one(), Counts::default());
        held.counted = ["minProperties", "maxProperties"].iter().any(|key| keywords.contains_key(*key));
        if let Some(pattern) = keywords.get("pattern").and_then(Value::as_str) {
            (held.ways, held.expressions) = (self.ways_of(pattern)?, 1);
        }
        if keywords.contains_key("format") {
            held = held.and(Counts { ways: UNKNOWN, expressions: 1, ..Counts::default() });
        }
        let named = |key: &str| keywords.get(key).and_then(Value::as_object);
        // Numbers below zero are a separate part, and llguidance keeps both parts even if they exclude each other:
        // twelve such schemas take a second in a debug build.
        if holds && exact::is_divided(keywords) {
            held.alternatives = 3;
        }
        let properties = named("properties");
        let is_known =
            |name: &Value| properties.is_some_and(|all| name.as_str().is_some_and(|name| all.contains_key(name)));
        let required = list(keywords, "required");
        self.step(required.iter().map(|name| 1 + name.as_str().map_or(0, str::len) / NAME).sum())?;
        held.properties =
            (properties.map_or(0, Map::len) + required.iter().filter(|name| !is_known(name)).count()) as u64;
        for (name, part) in properties.into_iter().flatten() {
            self.below(&mut sum, Step::Property(name), part, holds)?;
        }
        let (mut any, mut most): (Option<Sum>, u64) = (None, 1); // never the same property or item
        for (pattern, part) in named("patternProperties").into_iter().flatten() {
            held.names = held.names.saturating_add(self.ways_of(pattern)?);
            let part = self.of(part, holds).map_err(|found| found.below(Step::Any))?;
            most = most.max(part.alternatives);
            any = Some(self.either(any, part)?);
        }
        for key in ["additionalProperties", "items", "additionalItems", "prefixItems"] {
            let parts = keywords.get(key).map_or(&[][..], |part| match part {
                Value::Array(parts) => parts,
                part => std::slice::from_ref(part),
            });
            for part in parts {
                let part = self.of(part, holds).map_err(|found| found.below(Step::Any))?;
                most = most.max(part.alternatives);
                any = Some(self.either(any, part)?);
            }
        }
        // Schemas of different properties are not alternatives.
        any.into_iter().for_each(|any| sum.below(Step::Any, Sum { alternatives: most, ..any }, holds));
        // Definitions apply where they are referred to.
        let keys = if self.following.is_empty() { &["$defs", "definitions"][..] } else { &[] };
        for key in keys {
            for (name, part) in named(key).into_iter().flatten() {
                let part = self.of(part, false).and_then(|part| self.judge(&part));
                part.map_err(|found| found.below(Step::Definition(key, name)))?;
            }
        }
        if !held.is_nothing() || held.counted {
            sum.at.insert(Vec::new(), held);
        }
        Ok(sum)
    }

    fn below(&mut self, sum: &mut Sum<'a>, step: Step<'a>, part: &'a Value, holds: bool) -> Result<(), Found<'a>> {
        let part = self.of(part, holds).map_err(|found| found.below(step))?;
        self.step(part.at.len())?;
        sum.below(step, part, holds);
        Ok(())
    }

    /// The counts of a value of `const` or `enum`.
    fn constant(&mut self, value: &'a Value) -> Result<Sum<'a>, Found<'a>> {
        self.step(1)?;
        let mut sum = Sum::one();
        match value {
            Value::Object(entries) => {
                sum.at.insert(Vec::new(), Counts { properties: entries.len() as u64, ..Counts::default() });
                for (name, value) in entries {
                    let value = self.constant(value)?;
                    self.step(value.at.len())?;
                    sum.below(Step::Property(name), value, false);
                }
            }
            Value::Array(items) => {
                for item in items {
                    let item = self.constant(item)?;
                    self.step(item.at.len())?;
                    sum.below(Step::Any, item, false);
                }
            }
            _ => {}
        }
        Ok(sum)
    }
}

/// Keywords that make a schema applied in place be merged with those of types.
const KEYWORDS: [&str; 15] = [
    "type",
    "properties",
    "patternProperties",
    "additionalProperties",
    "required",
    "minProperties",
    "maxProperties",
    "items",
    "prefixItems",
    "additionalItems",
    "pattern",
    "format",
    "minLength",
    "maxLength",
    "multipleOf",
];

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use super::excess;
    use serde_json::{Map, Value, json};

    fn properties(from: usize, count: usize) -> Value {
        let named: Map<String, Value> =
            (from..from + count).map(|n| (format!("p{n}"), json!({"type": "null"}))).collect();
        json!({"type": "object", "properties": named})
    }

    fn patterns(count: usize) -> Vec<Value> {
        ('a'..).take(count).map(|letter| json!({"type": "string", "pattern": format!(".*{letter}.{{15}}")})).collect()
    }

    fn refused(schema: &Value, place: &str, words: &str) {
        let found = excess(schema).unwrap_or_else(|| panic!("{schema} is not too much"));
        assert!(found.place == place && found.message.contains(words), "{found:?}");
    }

    #[test]
    fn properties_of_one_object() {
        assert!(excess(&properties(0, 1000)).is_none());
        refused(&properties(0, 1001), "#", "1001 properties");
        let of = |parts: Vec<Value>| json!({"type": "object", "properties": {"a": {"allOf": parts}}});
        let parts = |count| (0..8).map(|part| properties(part * count, count)).collect();
        assert!(excess(&of(parts(125))).is_none());
        refused(&of(parts(126)), "#/properties/a", "1008 properties");
        // Objects apart from each other, and alternatives.
        let lists = |count: usize| json!({"prefixItems": vec![json!({"anyOf": [properties(0, 600), properties(600, 600)]}); count]});
        assert!(excess(&lists(2)).is_none());
        // By references, and as values.
        let referred = json!({"$ref": "#/$defs/a", "$defs": {"a": properties(0, 600)}});
        let mut both = referred.clone();
        both["properties"] = properties(600, 600)["properties"].clone();
        assert!(excess(&referred).is_none());
        refused(&both, "#", "1200 properties");
        refused(&json!({"const": properties(0, 1001)["properties"]}), "#", "1001 properties");
        refused(&json!({"$defs": {"a/b": properties(0, 1001)}}), "#/$defs/a~1b", "1001 properties");
        let required: Vec<String> = (0..1001).map(|n| n.to_string()).collect();
        refused(&json!({"type": "object", "required": required}), "#", "1001 properties");
    }

    #[test]
    fn properties_that_are_counted() {
        let counted = |count| {
            let mut schema = properties(0, count);
            schema["minProperties"] = 1.into();
            schema
        };
        assert!(excess(&counted(60)).is_none());
        refused(&counted(61), "#", "minProperties");
    }

    #[test]
    fn all_objects_together() {
        let of = |count: usize| {
            let named: Map<String, Value> = (0..count).map(|n| (format!("a{n}"), properties(0, 1000))).collect();
            json!({"type": "object", "properties": named})
        };
        assert!(excess(&of(2)).is_none());
        refused(&of(3), "#", "pairs of properties");
    }

    #[test]
    fn expressions_that_hold_together() {
        assert!(excess(&json!({"allOf": patterns(10)})).is_none());
        refused(&json!({"allOf": patterns(20)}), "#", "ways");
        let of = |named: Vec<Value>| json!({"type": "object", "allOf": named});
        let one = |pattern: &Value| json!({"properties": {"a": {"items": pattern}}});
        refused(&of(patterns(20).iter().map(one).collect()), "#/properties/a", "ways");
        let by_name = |(at, pattern): (usize, &Value)| json!({"properties": {format!("p{at}"): pattern}});
        assert!(excess(&of(patterns(20).iter().enumerate().map(by_name).collect())).is_none());
        // Some apply to all properties, others to one.
        let mixed = |(at, pattern): (usize, &Value)| match at % 2 {
            0 => json!({"properties": {"a": pattern}}),
            _ => json!({"additionalProperties": pattern}),
        };
        refused(&of(patterns(20).iter().enumerate().map(mixed).collect()), "#/properties/a", "ways");
        // Chained by references.
        let chain: Map<String, Value> = patterns(20)
            .into_iter()
            .enumerate()
            .map(|(at, mut pattern)| {
                pattern["$ref"] = format!("#/$defs/d{}", at + 1).into();
                (format!("d{at}"), pattern)
            })
            .collect();
        refused(&json!({"$ref": "#/$defs/d0", "type": "string", "$defs": chain}), "#/$defs/d0", "ways");
        // Alternatives do not apply together, nor do expressions of different strings.
        assert!(excess(&json!({"type": "string", "anyOf": patterns(20)})).is_none());
        let apart: Map<String, Value> =
            patterns(20).into_iter().enumerate().map(|(at, part)| (at.to_string(), part)).collect();
        assert!(excess(&json!({"type": "object", "properties": apart})).is_none());
        let named: Map<String, Value> =
            (0..50).map(|n| (format!("^p{n}_"), json!({"type": "string", "pattern": "^[a-z]+$"}))).collect();
        assert!(excess(&json!({"type": "object", "patternProperties": named})).is_none());
    }

    #[test]
    fn alternatives_that_are_merged() {
        let values: Vec<String> = (0..3000).map(|n| n.to_string()).collect();
        let of = |count: usize| {
            let any: Vec<Value> = (0..count).map(|n| json!({"type": "object", "maxProperties": n})).collect();
            json!({"allOf": [{"anyOf": any}, {"type": "object", "properties": {"a": {"enum": values}}}]})
        };
        assert!(excess(&of(30)).is_none());
        refused(&of(3000), "#", "alternatives");
        assert!(excess(&json!({"type": "string", "enum": values})).is_none());
    }

    /// Alternatives of a property too: each of one schema is merged with each of the others.
    #[test]
    fn alternatives_of_a_property() {
        let of = |part: Value, count: usize| json!({"allOf": vec![json!({"properties": {"a": part}}); count]});
        let nullable = json!({"anyOf": [{"type": "string"}, {"type": "null"}]});
        let integers = [json!({"type": "integer"}), json!({"type": ["integer", "null"], "minimum": -1})];
        for (part, most) in integers.into_iter().map(|part| (part, 11)).chain([(nullable, 17)]) {
            assert!(excess(&of(part.clone(), most)).is_none(), "{part}");
            refused(&of(part, most + 1), "#/properties/a", "an integer that may be negative counts as three");
        }
        assert!(excess(&of(json!({"type": "integer", "minimum": 0}), 100)).is_none());
        // Objects and items apart from each other.
        let named: Map<String, Value> = (0..100).map(|at| (at.to_string(), json!({"type": "integer"}))).collect();
        let both = json!({"allOf": [{"properties": named}, {"additionalProperties": {"type": "integer"}}]});
        assert!(excess(&both).is_none());
    }
}
