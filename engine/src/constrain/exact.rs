//! Numbers of a schema with all their digits, instead of doubles.
//!
//! JSON is read so that no number loses digits: a number that a double or 64 bits cannot represent becomes a string
//! that begins with a [mark](MARK). The range of a number is then computed here from all keywords and schemas that
//! apply to it. llguidance gets the ranges that it can represent exactly, and otherwise a string, again with the mark,
//! which [`hold`] replaces in the grammar by the expression of the numbers.

use super::decimal::{Bound, Decimal};
use super::range::{Range, Written, expression};
use super::schema::{Fault, all_values, applied, define, has_keyword, list, named_types, try_for_each};
use crate::text::referred;
use llguidance::earley::{Grammar, lexerspec::LexerSpec};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// The prefix of numbers and of expressions of numbers: a character that no text contains.
pub(super) const MARK: char = '\u{10fffd}';

/// The maximum number of numbers, and of schemas, that are visited to find a schema's range of numbers.
const MAX_STEPS: usize = 2000;

/// The number that a value is.
pub(super) fn number(value: &Value) -> Option<Decimal> {
    text_of(value).and_then(|text| Decimal::parse(&text))
}

/// The text of a number.
fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::Number(number) => Some(number.to_string()),
        Value::String(text) => text.strip_prefix(MARK).map(str::to_owned),
        _ => None,
    }
}

/// A value with its original numbers.
pub(super) fn plainly(value: &Value) -> String {
    text_of(value).unwrap_or_else(|| value.to_string().replace(MARK, ""))
}

/// JSON in which numbers that would lose digits are strings with the mark: all of them, or those below these keys of
/// the outermost object. `None` if there are none.
pub(crate) fn marked(text: &str, below: &[&str]) -> Option<String> {
    let (mut made, mut copied, mut depth, mut key) = (String::new(), 0, 0usize, "");
    let (bytes, mut at, mut last) = (text.as_bytes(), 0, "");
    while let Some(byte) = bytes.get(at) {
        let start = at;
        match byte {
            b'"' => {
                at += 1;
                while bytes.get(at).is_some_and(|byte| *byte != b'"') {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                at += 1;
                last = text.get(start + 1..at - 1).unwrap_or_default();
            }
            b'-' | b'0'..=b'9' => {
                while bytes.get(at).is_some_and(|byte| matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9')) {
                    at += 1;
                }
                let number = &text[start..at];
                if (below.is_empty() || below.contains(&key)) && !is_kept(number) {
                    made.push_str(&text[copied..start]);
                    made.push_str(&format!("\"{MARK}{number}\""));
                    copied = at;
                }
            }
            b':' if depth == 1 => {
                key = last;
                at += 1;
            }
            b'{' | b'[' => {
                depth += 1;
                at += 1;
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                at += 1;
            }
            _ => at += 1,
        }
    }
    (copied > 0).then(|| made + &text[copied..])
}

/// A value with the strings with the mark converted back to numbers, as far as a value can represent them.
pub(super) fn unmarked(value: &Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.iter().map(unmarked).collect()),
        Value::Object(entries) => {
            Value::Object(entries.iter().map(|(key, value)| (key.clone(), unmarked(value))).collect())
        }
        Value::String(text) => match text.strip_prefix(MARK) {
            Some(number) => serde_json::from_str(number).unwrap_or_else(|_| number.into()),
            None => value.clone(),
        },
        other => other.clone(),
    }
}

/// Whether serde gets a text unchanged: a number that it preserves, in 64 bits or as a double with the same digits, or
/// a text that is not a JSON number, which it refuses.
fn is_kept(text: &str) -> bool {
    if !is_json_number(text) {
        return true;
    }
    let Some(number) = Decimal::parse(text) else { return false };
    if text.parse::<i64>().is_ok() || text.parse::<u64>().is_ok() {
        return true;
    }
    let double = text.parse::<f64>().ok().filter(|double| double.is_finite());
    double.and_then(|double| Decimal::parse(&format!("{double:e}"))).is_some_and(|double| double == number)
}

/// Whether a text is a number by the syntax of JSON.
fn is_json_number(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let rest = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = rest.split_once(['e', 'E']).map_or((rest, None), |(of, exponent)| (of, Some(exponent)));
    let (whole, fraction) = mantissa.split_once('.').map_or((mantissa, None), |(of, fraction)| (of, Some(fraction)));
    let exponent = exponent.map(|exponent| exponent.strip_prefix(['+', '-']).unwrap_or(exponent));
    digits(whole)
        && (whole == "0" || !whole.starts_with('0'))
        && fraction.is_none_or(digits)
        && exponent.is_none_or(digits)
}

/// The error for a text that contains the mark.
pub(super) fn unsupported() -> String {
    format!("the character U+{:X} is not supported", u32::from(MARK))
}

/// The error in the strings with the mark in a schema, if any.
pub(super) fn misused(schema: &Value) -> Option<String> {
    all_values(schema).find_map(|value| match value {
        Value::Object(entries) => entries.keys().any(|key| key.contains(MARK)).then(unsupported),
        Value::String(text) if text.contains(MARK) && number(value).is_none() => {
            let number = text.strip_prefix(MARK).filter(|number| is_json_number(number));
            let shown = |number: &str| number.chars().take(40).collect::<String>();
            let of_number = |number| format!("a number has an exponent beyond ±1000: {}", shown(number));
            Some(number.map_or_else(unsupported, of_number))
        }
        _ => None,
    })
}

/// The maximum number of digits that a number in an answer may need: those of the longest number in the schema, or of
/// its longest format.
pub(super) fn longest(schema: &Value) -> usize {
    let longest = |value: &Value| match value {
        Value::Object(entries) => {
            let format = entries.get("format").and_then(Value::as_str).and_then(of_format);
            let bounds = format.into_iter().flat_map(|range| [range.least, range.most]).flatten();
            bounds.map(|bound| bound.value.lengths().0).max()
        }
        value => number(value).map(|number| number.lengths()).map(|(whole, places)| whole.max(1) + places),
    };
    all_values(schema).filter_map(longest).max().unwrap_or(0)
}

/// Replaces a schema's keywords of numbers by exact equivalents.
///
/// # Errors
/// For numbers that cannot be enforced.
pub(super) fn hold_numbers(schema: &mut Value, lenient: bool) -> Result<(), Fault> {
    let whole = if has_keyword(schema, "$ref") { schema.clone() } else { Value::Null };
    let mut numbers = Rewriting { whole: &whole, looked_at: 0, exact: BTreeSet::new() };
    try_for_each(schema, &mut |keywords| match numbers.hold(keywords) {
        Err(_) if lenient => {
            let_go(keywords);
            Ok(())
        }
        held => held,
    })?;
    let definition = |name: String| (name.clone(), json!({"const": name}));
    define(schema, numbers.exact.into_iter().map(definition).collect());
    Ok(())
}

/// Keywords of numbers.
const KEYWORDS: [&str; 5] = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"];

/// Keywords that apply schemas to the same value.
const APPLIED: [&str; 4] = ["$ref", "allOf", "anyOf", "oneOf"];

/// Keywords that assert nothing about a value.
const SILENT: [&str; 12] = [
    "$anchor",
    "$comment",
    "$defs",
    "$id",
    "$schema",
    "default",
    "definitions",
    "deprecated",
    "description",
    "examples",
    "title",
    "x-guidance",
];

/// The types of values as bits: a number is one whether it is an integer or not.
const TYPES: [(&str, u8); 7] = [
    ("null", 1),
    ("boolean", 2),
    ("integer", NUMBER),
    ("number", NUMBER),
    ("string", 8),
    ("array", 16),
    ("object", 32),
];
const NUMBER: u8 = 4;
const ALL: u8 = 63;

/// The types of values that a schema allows.
fn type_bits(keywords: &Map<String, Value>) -> u8 {
    let Some(names) = named_types(keywords) else { return ALL };
    TYPES.iter().filter(|(name, _)| names.contains(name)).fold(0, |all, (_, bit)| all | bit)
}

/// The assertions about numbers by a schema, and by those that apply with it.
pub(super) struct Said<'a> {
    pub whole: &'a Value,
    pub steps: usize,
    pub following: Vec<String>,
}

impl<'a> Said<'a> {
    pub fn of(whole: &'a Value) -> Self {
        Self { whole, steps: 0, following: Vec::new() }
    }

    fn step(&mut self) -> Option<()> {
        self.steps += 1;
        (self.steps <= MAX_STEPS).then_some(())
    }

    /// The schema that a reference means, unless it is being visited.
    fn follow<T>(
        &mut self,
        keywords: &Map<String, Value>,
        look: impl FnOnce(&mut Self, &'a Value) -> Option<T>,
    ) -> Option<T> {
        let reference = keywords.get("$ref").and_then(Value::as_str)?;
        if self.following.iter().any(|known| known == reference) || self.following.len() > 50 {
            return None;
        }
        let meant = referred(reference, self.whole)?;
        self.following.push(reference.to_owned());
        let looked = look(self, meant);
        self.following.pop();
        looked
    }

    /// The types that a schema allows, if that can be determined.
    pub fn types(&mut self, schema: &Value) -> Option<u8> {
        self.step()?;
        let Some(keywords) = schema.as_object() else {
            return Some(if *schema == Value::Bool(false) { 0 } else { ALL });
        };
        let mut types = type_bits(keywords);
        for part in list(keywords, "allOf") {
            types &= self.types(part)?;
        }
        for key in ["anyOf", "oneOf"] {
            if keywords.contains_key(key) {
                let mut any = 0;
                for part in list(keywords, key) {
                    any |= self.types(part)?;
                }
                types &= any;
            }
        }
        if keywords.contains_key("$ref") {
            types &= self.follow(keywords, |all, meant| all.types(meant))?;
        }
        if let Some(values) = values(keywords) {
            types &= values.into_iter().map(type_bit).fold(0, |all, bit| all | bit);
        }
        Some(types)
    }

    /// The numbers that a schema allows, if that can be determined.
    pub fn numbers(&mut self, schema: &Value) -> Option<Vec<Range>> {
        self.step()?;
        let Some(keywords) = schema.as_object() else {
            return Some(if *schema == Value::Bool(false) { Vec::new() } else { vec![Range::default()] });
        };
        let mut all = own(keywords);
        if let Some(values) = values(keywords) {
            self.steps += values.len();
            self.step()?;
            let points: Vec<Range> = values.into_iter().filter_map(point).collect();
            all = both(&all, &points)?;
        }
        for part in list(keywords, "allOf") {
            all = both(&all, &self.numbers(part)?)?;
        }
        for key in ["anyOf", "oneOf"] {
            if keywords.contains_key(key) {
                let mut any: Vec<Range> = Vec::new();
                for part in list(keywords, key) {
                    let more = self.numbers(part)?;
                    if key == "oneOf" && both(&any, &more)?.iter().any(|range| !range.is_empty()) {
                        return None;
                    }
                    any.extend(more);
                }
                all = both(&all, &any)?;
            }
        }
        if keywords.contains_key("$ref") {
            let meant = self.follow(keywords, |all, meant| all.numbers(meant))?;
            all = both(&all, &meant)?;
        }
        Some(all)
    }
}

/// The values that a schema lists by `const`, `enum`, or both.
fn values(keywords: &Map<String, Value>) -> Option<Vec<&Value>> {
    let listed = keywords.get("enum").and_then(Value::as_array);
    match (keywords.get("const"), listed) {
        (Some(only), Some(listed)) => Some(listed.iter().filter(|value| are_equal(value, only)).collect()),
        (Some(only), None) => Some(vec![only]),
        (None, listed) => listed.map(|listed| listed.iter().collect()),
    }
}

/// Whether two values are equal in JSON Schema, where `1` equals `1.0`.
fn are_equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| are_equal(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let same = |(name, value): (&String, &Value)| other.get(name).is_some_and(|other| are_equal(value, other));
            one.len() == other.len() && one.iter().all(same)
        }
        _ => match (number(one), number(other)) {
            (Some(one), Some(other)) => one == other,
            _ => one == other,
        },
    }
}

/// The bit of a value's type.
fn type_bit(value: &Value) -> u8 {
    match value {
        value if number(value).is_some() => NUMBER,
        Value::Null => 1,
        Value::Bool(_) => 2,
        Value::String(_) => 8,
        Value::Array(_) => 16,
        _ => 32,
    }
}

/// The range of one number.
fn point(value: &Value) -> Option<Range> {
    Some(Range::of(&number(value)?, &text_of(value)?))
}

/// The intersections of the ranges of two lists.
fn both(one: &[Range], other: &[Range]) -> Option<Vec<Range>> {
    if one.len().saturating_mul(other.len()) > MAX_STEPS {
        return None;
    }
    let all = one.iter().flat_map(|one| other.iter().map(|other| one.and(other)));
    Some(all.filter(|range| !range.is_empty()).collect())
}

/// The numbers that the schema's own keywords allow, except `const` and `enum`.
fn own(keywords: &Map<String, Value>) -> Vec<Range> {
    if type_bits(keywords) & NUMBER == 0 {
        return Vec::new();
    }
    let is_number = |name: &Value| name == "number";
    let integers = match keywords.get("type") {
        None => false,
        Some(Value::Array(names)) => !names.iter().any(is_number),
        Some(name) => !is_number(name),
    };
    let mut range = Range { integers, ..Range::default() };
    let end = |open: bool, key: &str| keywords.get(key).and_then(number).map(|value| Bound { value, open });
    // In draft 4 a boolean says whether the bound itself is excluded.
    let is_open = |key: &str| keywords.get(key) == Some(&Value::Bool(true));
    let least = [end(is_open("exclusiveMinimum"), "minimum"), end(true, "exclusiveMinimum")];
    let most = [end(is_open("exclusiveMaximum"), "maximum"), end(true, "exclusiveMaximum")];
    for least in least.into_iter().flatten() {
        range = range.and(&Range { least: Some(least), ..Range::default() });
    }
    for most in most.into_iter().flatten() {
        range = range.and(&Range { most: Some(most), ..Range::default() });
    }
    range.multiples.extend(keywords.get("multipleOf").and_then(number));
    let formatted = keywords.get("format").and_then(Value::as_str).and_then(of_format).map(|of| range.and(&of));
    // A format is an annotation, and must not contradict assertions.
    vec![formatted.filter(|formatted| integers && !formatted.is_empty()).unwrap_or(range)]
}

/// Whether a schema's integers are written in two parts: see [`Range::written`].
pub(super) fn is_divided(keywords: &Map<String, Value>) -> bool {
    let has_type = keywords.contains_key("type") && type_bits(keywords) & NUMBER != 0;
    has_type && own(keywords).iter().any(Range::is_divided)
}

/// The integers of a format.
fn of_format(name: &str) -> Option<Range> {
    let bits = |name: &str| match name {
        "8" => Some(8),
        "16" => Some(16),
        "32" => Some(32),
        "64" | "" => Some(64),
        "128" => Some(128),
        _ => None,
    };
    match name.strip_prefix("uint") {
        Some(rest) => bits(rest).map(|bits| Range::between(0u128.into(), (u128::MAX >> (128 - bits)).into())),
        None => name.strip_prefix("int").and_then(bits).map(|bits| {
            let most = u128::MAX >> (129 - bits);
            Range::between(Decimal::from(most + 1).negated(), most.into())
        }),
    }
}

/// The maximum number of schemas that are visited in total.
const MAX_LOOKED_AT: usize = 2_000_000;

/// The state of rewriting numbers.
struct Rewriting<'a> {
    whole: &'a Value,
    /// How many schemas were visited to find those that apply together.
    looked_at: usize,
    /// The strings for numbers that must become expressions.
    exact: BTreeSet<String>,
}

impl Rewriting<'_> {
    /// The schema of a range.
    fn schema(&mut self, written: Written) -> Value {
        match written {
            Written::Plain(schema) => schema,
            Written::Exact(expression) => {
                let name = format!("{MARK}{expression}{MARK}");
                let schema = json!({"$ref": format!("#/$defs/{name}")});
                self.exact.insert(name);
                schema
            }
        }
    }

    /// Rewrites the keywords of numbers in one schema.
    fn hold(&mut self, keywords: &mut Map<String, Value>) -> Result<(), String> {
        let applied = applied(keywords, &APPLIED);
        let types = type_bits(keywords);
        let says = KEYWORDS.iter().any(|key| keywords.contains_key(*key))
            || keywords.contains_key("type") && types & NUMBER != 0;
        if applied == 0 && values(keywords).is_some() {
            return self.hold_values(keywords);
        }
        if applied > 1 || applied == 1 && (says || values(keywords).is_some()) {
            return self.hold_together(keywords);
        }
        if !says || types & NUMBER == 0 || applied > 0 {
            return Ok(());
        }
        let written = written(&own(keywords))?;
        self.replace(keywords, types, written);
        Ok(())
    }

    /// Merges several schemas of numbers that apply together. If other values are allowed too, they are left unchanged.
    fn hold_together(&mut self, keywords: &mut Map<String, Value>) -> Result<(), String> {
        if type_bits(keywords) & NUMBER == 0 {
            return left_to_doubles(keywords);
        }
        let schema = Value::Object(keywords.clone());
        let mut said = Said::of(self.whole);
        let types = said.types(&schema);
        self.looked_at += said.steps;
        if self.looked_at > MAX_LOOKED_AT {
            return Err("too complex: too many schemas apply together".to_owned());
        }
        let ranges = if types == Some(NUMBER) { Said::of(self.whole).numbers(&schema) } else { None };
        let Some(ranges) = ranges else { return left_to_doubles(keywords) };
        let written = written(&ranges)?;
        for key in APPLIED.iter().chain(&["const", "enum"]) {
            keywords.shift_remove(*key);
        }
        self.replace(keywords, NUMBER, written);
        Ok(())
    }

    /// Replaces the keywords of numbers by the written ranges, in addition to the other types.
    fn replace(&mut self, keywords: &mut Map<String, Value>, types: u8, mut written: Vec<Written>) {
        for key in KEYWORDS.iter().chain(&["type", "format"]) {
            if types == NUMBER || KEYWORDS.contains(key) || *key == "type" {
                keywords.shift_remove(*key);
            }
        }
        if types == NUMBER && written.len() == 1 {
            if let Value::Object(only) = self.schema(written.swap_remove(0)) {
                keywords.extend(only);
            }
            return;
        }
        let mut options = Vec::new();
        let is_other = |(_, bit): &&(&str, u8)| types & bit & !NUMBER != 0;
        let others: Vec<&str> = TYPES.iter().filter(is_other).map(|(name, _)| *name).collect();
        if !others.is_empty() {
            let kept = keywords.keys().filter(|key| !SILENT.contains(&key.as_str())).cloned().collect::<Vec<_>>();
            let mut rest = Map::new();
            let kind = if let [only] = others[..] { json!(only) } else { json!(others) };
            rest.insert("type".to_owned(), kind);
            for key in kept {
                rest.extend(keywords.shift_remove(&key).map(|value| (key, value)));
            }
            options.push(Value::Object(rest));
        }
        options.extend(written.into_iter().map(|one| self.schema(one)));
        set_options(keywords, options);
    }

    /// Rewrites lists of values with numbers that doubles cannot represent.
    fn hold_values(&mut self, keywords: &mut Map<String, Value>) -> Result<(), String> {
        let is_exact = |value: &&Value| has_exact(value);
        let Some(values) = values(keywords).filter(|values| values.iter().any(|value| has_exact(value))) else {
            return Ok(());
        };
        let (allowed, types) = (own(keywords), type_bits(keywords));
        let values = values.into_iter().filter(|value| type_bit(value) & types != 0);
        let (exact, plain): (Vec<&Value>, Vec<&Value>) = values.partition(is_exact);
        let exact: Vec<Value> = exact.into_iter().cloned().collect();
        let plain: Vec<Value> = plain.into_iter().cloned().collect();
        let mut options = Vec::new();
        if !plain.is_empty() {
            let mut rest = keywords.clone();
            rest.shift_remove("const");
            rest.retain(|key, _| !SILENT.contains(&key.as_str()));
            rest.insert("enum".to_owned(), plain.into());
            options.push(Value::Object(rest));
        }
        for value in exact {
            if let Some(point) = point(&value) {
                if both(&allowed, &[point]).is_none_or(|both| !both.is_empty()) {
                    options.push(self.constant(&value)?);
                }
            } else if keywords
                .keys()
                .all(|key| ["const", "enum", "type"].contains(&key.as_str()) || SILENT.contains(&key.as_str()))
            {
                options.push(self.constant(&value)?);
            } else {
                return Err(
                    "`enum` or `const`: numbers with many digits within a value cannot be enforced together with other keywords"
                        .to_owned(),
                );
            }
        }
        keywords.retain(|key, _| SILENT.contains(&key.as_str()));
        set_options(keywords, options);
        Ok(())
    }

    /// A schema of one value, with all digits of its numbers.
    fn constant(&mut self, value: &Value) -> Result<Value, String> {
        if let Some(point) = point(value) {
            let mut written = point.written()?;
            let one = if written.is_empty() { None } else { Some(written.swap_remove(0)) };
            return Ok(one.map_or(Value::Bool(false), |one| self.schema(one)));
        }
        Ok(match value {
            Value::Array(items) => {
                let all = items.iter().map(|item| self.constant(item)).collect::<Result<Vec<_>, _>>()?;
                let count = all.len();
                json!({"type": "array", "prefixItems": all, "items": false, "minItems": count, "maxItems": count})
            }
            Value::Object(entries) => {
                let mut named = Map::new();
                for (name, value) in entries {
                    named.insert(name.clone(), self.constant(value)?);
                }
                let required: Vec<&String> = entries.keys().collect();
                json!({"type": "object", "properties": named, "required": required, "additionalProperties": false})
            }
            other => json!({"const": other}),
        })
    }
}

/// The written forms of ranges.
fn written(ranges: &[Range]) -> Result<Vec<Written>, String> {
    let mut written = Vec::new();
    for range in ranges {
        written.extend(range.written()?);
    }
    Ok(written)
}

/// Adds the options, one of which has to be valid; without options, no value is.
fn set_options(keywords: &mut Map<String, Value>, options: Vec<Value>) {
    let key = if options.is_empty() { "enum" } else { "anyOf" };
    keywords.insert(key.to_owned(), options.into());
}

/// Checks that a schema's own keywords of numbers are exact in doubles, if they must be.
fn left_to_doubles(keywords: &Map<String, Value>) -> Result<(), String> {
    let is_exact = |range: &Range| range.written().is_ok_and(|all| all.iter().any(Written::is_exact));
    let says = KEYWORDS.iter().any(|key| keywords.contains_key(*key));
    let of_values = values(keywords).is_some_and(|values| values.into_iter().any(has_exact));
    if says && own(keywords).iter().any(is_exact) || of_values {
        return Err("numbers with many digits cannot be enforced together with schemas of other values".to_owned());
    }
    Ok(())
}

/// Removes a schema's keywords of numbers, if they cannot be enforced and need not be.
fn let_go(keywords: &mut Map<String, Value>) {
    let of_values = values(keywords).is_some_and(|values| values.into_iter().any(has_exact));
    let left_out = KEYWORDS.iter().chain(if of_values { &["const", "enum"][..] } else { &[] });
    left_out.for_each(|key| drop(keywords.shift_remove(*key)));
}

/// Whether a value is or contains a number that doubles cannot represent.
fn has_exact(value: &Value) -> bool {
    let is_exact = |range: Range| range.written().map_or(true, |written| written.iter().any(Written::is_exact));
    all_values(value).filter_map(point).any(is_exact)
}

/// Replaces the strings that represent numbers in a grammar by the expressions of the numbers.
///
/// # Errors
/// llguidance's, for an expression that is too large.
pub(super) fn hold(
    grammar: Grammar,
    mut lexer: LexerSpec,
    exact: &BTreeSet<String>,
) -> Result<(Grammar, LexerSpec), String> {
    // With both marks no string is the beginning of another.
    let mut strings: Vec<String> = exact.iter().map(|name| format!("\"{MARK}{name}{MARK}\"")).collect();
    strings.sort_unstable();
    for (at, lexeme) in std::mem::take(&mut lexer.lexemes).into_iter().enumerate() {
        let begins = |start: &str| lexer.has_forced_bytes(&lexeme, start.as_bytes());
        let Some(string) = only(&strings, begins) else {
            lexer.lexemes.push(lexeme);
            continue;
        };
        let text = string.trim_matches(['"', MARK]);
        // A lexeme stores its own index, so the new one is created at the old one's index.
        let class = std::mem::replace(&mut lexer.current_class, lexeme.class());
        let made = lexer.add_greedy_lexeme(format!("number{at}"), expression(text), false, None, usize::MAX);
        lexer.current_class = class;
        made.map_err(|error| error.to_string())?;
        if lexer.lexemes.len() == at {
            return Err("too complex: the same numbers in two grammars".to_owned());
        }
    }
    Ok((grammar, lexer))
}

/// Finds the string that something equals among sorted strings, given only a test of whether it begins with a text. The
/// test is made where the strings differ, so that it is made few times even if there are many strings.
fn only(strings: &[String], begins: impl Fn(&str) -> bool) -> Option<&str> {
    let mut among = strings;
    while let (Some(first), Some(last)) = (among.first(), among.last()) {
        let pairs = first.char_indices().zip(last.chars());
        let Some(differ) = pairs.into_iter().find_map(|((at, one), other)| (one != other).then_some(at)) else { break };
        if !begins(&first[..differ]) {
            return None;
        }
        let mut rest = among;
        among = &[];
        while let (true, Some(first)) = (among.is_empty(), rest.first()) {
            let next = first[differ..].chars().next().map_or(0, char::len_utf8);
            let start = &first[..differ + next];
            let (same, others) = rest.split_at(rest.partition_point(|string| string.starts_with(start)));
            (among, rest) = (if begins(start) { same } else { &[] }, others);
        }
    }
    among.first().map(String::as_str).filter(|string| begins(string))
}

/// The expressions for which a grammar's text has strings.
pub(super) fn expressions(text: &str) -> BTreeSet<String> {
    let mut parts = text.split(MARK);
    parts.next();
    // Each lies between two marks, in a name and in references to it.
    parts.step_by(2).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::only;
    use std::cell::Cell;

    /// Each of many strings is found with few comparisons, and nothing else is.
    #[test]
    fn one_of_many_strings() {
        let mut strings: Vec<String> = (0..16_000u64).map(|at| format!("\"é{}é\"", 7 * at + (1 << 60))).collect();
        strings.sort_unstable();
        let compared = Cell::new(0);
        for string in &strings {
            let begins = |start: &str| {
                compared.set(compared.get() + 1);
                string.starts_with(start)
            };
            assert_eq!(only(&strings, begins), Some(string.as_str()));
        }
        assert!(compared.get() < 16_000 * 60, "{} comparisons", compared.get());
        for other in ["", "\"é1", "\"é1é\"", "\"é1152921504606846977é\"", "\"é9\""] {
            assert_eq!(only(&strings, |start| other.starts_with(start)), None, "{other}");
        }
        for few in [&[][..], &["a".to_owned()], &["a1".to_owned(), "a22".to_owned()]] {
            few.iter().for_each(|one| assert_eq!(only(few, |start| one.starts_with(start)), Some(one.as_str())));
            assert_eq!(only(few, |start| "b".starts_with(start)), None);
        }
    }
}
