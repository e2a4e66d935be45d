//! How wglm treats each keyword of JSON Schema: it is enforced, ignored as an annotation, or refused.
//!
//! A keyword whose value has the wrong type is an error and never ignored. A keyword that cannot be enforced during
//! generation is refused, unless it has no effect. In a lenient schema both are ignored instead. The guide,
//! `docs/embedding.md`, has a table.

use super::decimal::Decimal;
use super::exact;
use super::format;
use super::schema::{Fault, add_pattern, for_each, has_keyword, try_for_each};
use llguidance::regex_to_lark;
use regex_syntax::hir::Look;
use serde_json::{Map, Value, json};

/// The required form of a keyword's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Schema,
    SchemaOrList,
    /// A list of schemas, at least one.
    List,
    /// Named schemas.
    Named,
    Number,
    /// A number, or a boolean as in draft 4.
    Limit,
    /// A number above zero.
    Factor,
    /// An integer that is not negative.
    Count,
    Flag,
    Text,
    Pattern,
    Names,
    NamesByName,
    Values,
    Types,
}

impl Kind {
    fn of(keyword: &str) -> Option<Self> {
        Some(match keyword {
            "additionalItems"
            | "additionalProperties"
            | "contains"
            | "else"
            | "if"
            | "not"
            | "propertyNames"
            | "then"
            | "unevaluatedItems"
            | "unevaluatedProperties" => Self::Schema,
            "items" => Self::SchemaOrList,
            "allOf" | "anyOf" | "oneOf" | "prefixItems" => Self::List,
            "$defs" | "definitions" | "dependentSchemas" | "patternProperties" | "properties" => Self::Named,
            "minimum" | "maximum" => Self::Number,
            "exclusiveMinimum" | "exclusiveMaximum" => Self::Limit,
            "multipleOf" => Self::Factor,
            "minContains" | "maxContains" | "minItems" | "maxItems" | "minLength" | "maxLength" | "minProperties"
            | "maxProperties" => Self::Count,
            "uniqueItems" => Self::Flag,
            "$anchor" | "$dynamicAnchor" | "$dynamicRef" | "$id" | "$recursiveRef" | "$ref" | "$schema" | "format" => {
                Self::Text
            }
            "pattern" => Self::Pattern,
            "required" => Self::Names,
            "dependentRequired" => Self::NamesByName,
            "enum" => Self::Values,
            "type" => Self::Types,
            _ => return None,
        })
    }

    fn expected(self) -> &'static str {
        match self {
            Self::Schema => "a schema, which is an object or a boolean",
            Self::SchemaOrList => "a schema, or a list of schemas",
            Self::List => "a list of one or more schemas",
            Self::Named => "an object of schemas",
            Self::Number | Self::Limit => "a number",
            Self::Factor => "a number above 0",
            Self::Count => "an integer, 0 or more",
            Self::Flag => "true or false",
            Self::Text | Self::Pattern => "a string",
            Self::Names => "a list of strings",
            Self::NamesByName => "an object of lists of strings",
            Self::Values => "a list of values",
            Self::Types => "one or more of null, boolean, integer, number, string, array and object",
        }
    }

    fn has(self, value: &Value) -> bool {
        let is_schema = |value: &Value| value.is_object() || value.is_boolean();
        let are_names = |value: &Value| value.as_array().is_some_and(|list| list.iter().all(Value::is_string));
        let number = || exact::number(value);
        match self {
            Self::Schema => is_schema(value),
            Self::SchemaOrList => is_schema(value) || value.as_array().is_some_and(|list| list.iter().all(is_schema)),
            Self::List => value.as_array().is_some_and(|list| !list.is_empty() && list.iter().all(is_schema)),
            Self::Named => value.as_object().is_some_and(|named| named.values().all(is_schema)),
            Self::Number => number().is_some(),
            Self::Limit => number().is_some() || value.is_boolean(),
            Self::Factor => number().is_some_and(|number| number.sign() > 0),
            Self::Count => number().is_some_and(|number| number.is_integer() && number.sign() >= 0),
            Self::Flag => value.is_boolean(),
            Self::Text | Self::Pattern => value.is_string(),
            Self::Names => are_names(value),
            Self::NamesByName => value.as_object().is_some_and(|named| named.values().all(are_names)),
            Self::Values => value.is_array(),
            Self::Types => match value {
                Value::Array(list) => !list.is_empty() && list.iter().all(is_type),
                value => is_type(value),
            },
        }
    }
}

/// The types of values.
pub(super) const TYPES: [&str; 7] = ["null", "boolean", "integer", "number", "string", "array", "object"];

fn is_type(value: &Value) -> bool {
    value.as_str().is_some_and(|name| TYPES.contains(&name))
}

/// A value in the form for messages.
fn shown(value: &Value) -> String {
    let kind = match value {
        Value::Null => return "null".to_owned(),
        Value::Bool(flag) => return flag.to_string(),
        Value::Number(_) => "the number",
        Value::String(_) => "the string",
        Value::Array(list) if list.is_empty() => return "an empty list".to_owned(),
        Value::Array(_) => "the list",
        Value::Object(_) => "the object",
    };
    let text = exact::plainly(value);
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{kind} {}…", &text[..end]),
        None => format!("{kind} {text}"),
    }
}

/// Converts a schema to the form that is compiled: keywords without effect are removed, and some that are not compiled
/// are expressed by others.
///
/// # Errors
/// For a keyword of the wrong type, or one that cannot be enforced, unless the schema is `lenient`.
pub(super) fn tidy(schema: &mut Value, lenient: bool) -> Result<(), Fault> {
    let whole = if has_keyword(schema, "propertyNames") { schema.clone() } else { Value::Null };
    try_for_each(schema, &mut |keywords| of_one(keywords, &whole, lenient))
}

fn of_one(keywords: &mut Map<String, Value>, whole: &Value, lenient: bool) -> Result<(), String> {
    format::hold_known_pattern(keywords);
    hold_look_ahead(keywords);
    let (mut wrong, mut message) = (Vec::new(), None);
    for (keyword, value) in &*keywords {
        let fault = match Kind::of(keyword) {
            Some(kind) if !kind.has(value) => {
                Some(format!("`{keyword}` is {}; expected {}", shown(value), kind.expected()))
            }
            Some(Kind::Pattern) => unenforceable(value).map(|why| format!("`{keyword}`: {why}")),
            Some(Kind::Named) if keyword == "patternProperties" => {
                let mut names = value.as_object().into_iter().flat_map(Map::keys);
                names.find_map(|name| unenforceable(&json!(name))).map(|why| format!("`{keyword}`: {why}"))
            }
            _ => None,
        };
        if let Some(fault) = fault {
            wrong.push(keyword.clone());
            message.get_or_insert(fault);
        }
    }
    if let (Some(message), false) = (message, lenient) {
        return Err(message);
    }
    wrong.iter().for_each(|keyword| drop(keywords.shift_remove(keyword)));
    count(keywords);
    express_by_others(keywords, whole);
    let unenforced = keywords.keys().find(|keyword| UNENFORCED.contains(&keyword.as_str())).cloned();
    match unenforced {
        Some(keyword) if !lenient => {
            Err(format!("`{keyword}` cannot be enforced during generation; remove it, or make the schema lenient"))
        }
        _ => {
            keywords.retain(|keyword, _| !UNENFORCED.contains(&keyword.as_str()));
            Ok(())
        }
    }
}

/// Keywords that cannot be enforced.
const UNENFORCED: [&str; 14] = [
    "$dynamicRef",
    "$recursiveRef",
    "contains",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "else",
    "if",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uniqueItems",
];

/// The keywords that llguidance implements, and those that it needs to find and to read schemas.
const COMPILED: [&str; 30] = [
    "$defs",
    "$ref",
    "$schema",
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "const",
    "definitions",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "oneOf",
    "pattern",
    "patternProperties",
    "prefixItems",
    "properties",
    "required",
    "type",
];

/// Removes annotations and unknown keywords. llguidance takes most of them for assertions, and merges these with the
/// schemas of adjacent keywords. In a schema that refers to itself it cannot do that, and in others the grammar grows.
pub(super) fn remove_annotations(schema: &mut Value) {
    for_each(schema, &mut |keywords| keywords.retain(|keyword, _| COMPILED.contains(&keyword.as_str())));
}

/// Keywords that apply schemas to the same value.
const APPLIED: [&str; 5] = ["$ref", "allOf", "anyOf", "oneOf", "patternProperties"];

/// Removes keywords without effect, and expresses others by equivalent keywords.
fn express_by_others(keywords: &mut Map<String, Value>, whole: &Value) {
    let is_anything = |value: Option<&Value>| {
        value.is_some_and(|value| *value == Value::Bool(true) || value.as_object().is_some_and(Map::is_empty))
    };
    let is_empty = |value: Option<&Value>| value.and_then(Value::as_object).is_some_and(Map::is_empty);
    let count = |key: &str| keywords.get(key).and_then(Value::as_u64);
    let mut idle = vec!["minContains", "maxContains"];
    idle.extend((count("minContains") == Some(0) && !keywords.contains_key("maxContains")).then_some("contains"));
    idle.extend(is_anything(keywords.get("unevaluatedItems")).then_some("unevaluatedItems"));
    idle.extend(
        ["dependencies", "dependentRequired", "dependentSchemas"].iter().filter(|key| is_empty(keywords.get(**key))),
    );
    if !keywords.contains_key("if") || !keywords.contains_key("then") && !keywords.contains_key("else") {
        idle.extend(["if", "then", "else"]);
    }
    let few = count("maxItems").is_some_and(|most| most <= 1);
    idle.extend((keywords.get("uniqueItems") == Some(&Value::Bool(false)) || few).then_some("uniqueItems"));
    idle.extend((keywords.get("not") == Some(&Value::Bool(false))).then_some("not"));
    let nothing = is_anything(keywords.get("not"));
    idle.extend(nothing.then_some("not"));
    idle.iter().for_each(|key| drop(keywords.shift_remove(*key)));
    if nothing {
        keywords.insert("enum".to_owned(), json!([]));
    }
    without(keywords);
    if is_anything(keywords.get("unevaluatedProperties")) {
        // It says that the object is open, for a schema whose other objects are closed.
        keywords.shift_remove("unevaluatedProperties");
        keywords.entry("additionalProperties").or_insert(true.into());
    }
    close("unevaluatedProperties", "additionalProperties", keywords);
    // Each schema of a list is for one item, and `additionalItems` is for the items after them.
    let is_list = keywords.get("items").is_some_and(Value::is_array);
    close("unevaluatedItems", if is_list { "additionalItems" } else { "items" }, keywords);
    of_names(keywords, whole);
}

/// A number that differs from another one is below or above it.
fn without(keywords: &mut Map<String, Value>) {
    let not = keywords.get("not").and_then(Value::as_object).filter(|not| not.len() == 1);
    let Some(value) = not.and_then(|not| not.get("const")).filter(|value| exact::number(value).is_some()).cloned()
    else {
        return;
    };
    // These keywords have no effect on other values.
    if !keywords.contains_key("anyOf") {
        keywords.shift_remove("not");
        keywords.insert("anyOf".to_owned(), json!([{"exclusiveMinimum": value}, {"exclusiveMaximum": value}]));
    }
}

/// Replaces `keyword`, for values that no other keyword evaluates, by `other`, if no schema is applied in place.
fn close(keyword: &str, other: &str, keywords: &mut Map<String, Value>) {
    if APPLIED.iter().any(|key| keywords.contains_key(*key)) {
        return;
    }
    if let Some(value) = keywords.shift_remove(keyword) {
        keywords.entry(other).or_insert(value);
    }
}

/// Expresses `propertyNames` that allow any text, listed texts or a pattern, if the schema has no properties of its
/// own.
fn of_names(keywords: &mut Map<String, Value>, whole: &Value) {
    let Some(names) = keywords.get("propertyNames").cloned() else { return };
    let mut names = names;
    for _ in 0..10 {
        let reference = names.get("$ref").and_then(Value::as_str);
        let Some(meant) = reference.and_then(|reference| crate::text::referred(reference, whole)) else { break };
        names = meant.clone();
    }
    let says = |key: &&String| !["type", "title", "description", "$comment"].contains(&key.as_str());
    let is_text = names.get("type").is_none_or(|kind| kind == "string");
    let said: Vec<String> = names.as_object().into_iter().flat_map(Map::keys).filter(says).cloned().collect();
    let any = if names == Value::Bool(true) { json!({}) } else { names };
    if !any.is_object() || !is_text {
        return;
    }
    let others = keywords.get("additionalProperties").cloned().unwrap_or(Value::Bool(true));
    let alone = !["properties", "patternProperties"].iter().any(|key| keywords.contains_key(*key));
    let listed = match said.as_slice() {
        [] => {
            keywords.shift_remove("propertyNames");
            return;
        }
        [only] if alone && only == "enum" => any.get("enum").and_then(Value::as_array).cloned(),
        [only] if alone && only == "const" => any.get("const").cloned().map(|only| vec![only]),
        [only] if alone && only == "pattern" => {
            let Some(pattern) = any.get("pattern").and_then(Value::as_str) else { return };
            if unenforceable(&json!(pattern)).is_none() {
                keywords.insert("patternProperties".to_owned(), json!({pattern: others}));
                keywords.insert("additionalProperties".to_owned(), false.into());
                keywords.shift_remove("propertyNames");
            }
            return;
        }
        _ => None,
    };
    if let Some(listed) = listed {
        let named: Map<String, Value> =
            listed.iter().filter_map(Value::as_str).map(|name| (name.to_owned(), others.clone())).collect();
        keywords.insert("properties".to_owned(), Value::Object(named));
        keywords.insert("additionalProperties".to_owned(), false.into());
        keywords.shift_remove("propertyNames");
    }
}

/// Splits a pattern that begins by excluding texts of only certain characters, such as that of pydantic's `Decimal`,
/// into two patterns: one without that look-ahead, and one that requires another character. So `^(?!^[-+.]*$)[+-]?\d*$`
/// becomes `^[+-]?\d*$` and `[^-+.]`.
fn hold_look_ahead(keywords: &mut Map<String, Value>) {
    let Some((rest, another)) = keywords.get("pattern").and_then(Value::as_str).and_then(without_look_ahead) else {
        return;
    };
    keywords.insert("pattern".to_owned(), rest.into());
    add_pattern(keywords, another);
}

/// The pattern without such a look-ahead, and the one for another character; `None` if it has no such look-ahead.
fn without_look_ahead(pattern: &str) -> Option<(String, String)> {
    let ruled_out = pattern.strip_prefix("^(?!")?;
    let (class, rest) = ruled_out.strip_prefix('^').unwrap_or(ruled_out).strip_prefix('[')?.split_once(']')?;
    // An escape or a nested class could have been cut, and doubled characters have other meanings in some syntaxes.
    let is_plain = !class.is_empty()
        && !class.contains(['[', '\\'])
        && !["&&", "--", "~~"].iter().any(|pair| class.contains(pair));
    let (rest, empty) = match (rest.strip_prefix("*$)"), rest.strip_prefix("+$)")) {
        (Some(rest), _) => (rest, ""),
        (None, Some(rest)) => (rest, "^$|"), // an empty text passes the look-ahead
        (None, None) => return None,
    };
    let rest = format!("^{rest}");
    if !is_plain || has_alternatives(&rest) || unenforceable(&json!(rest)).is_some() {
        return None;
    }
    let another = class.strip_prefix('^').map_or_else(|| format!("[^{class}]"), |others| format!("[{others}]"));
    Some((rest, format!("{empty}{another}")))
}

/// Whether a pattern has several alternatives, since a look-ahead at its beginning applies only to the first.
fn has_alternatives(pattern: &str) -> bool {
    regex_syntax::ast::parse::Parser::new()
        .parse(&regex_to_lark(pattern, "dw"))
        .is_ok_and(|parsed| matches!(parsed, regex_syntax::ast::Ast::Alternation(_)))
}

/// Why a pattern cannot be enforced, if it cannot.
fn unenforceable(pattern: &Value) -> Option<String> {
    let pattern = pattern.as_str()?;
    if pattern.len() > super::expression::LONGEST {
        return None; // refused later because of its size
    }
    match regex_syntax::parse(&regex_to_lark(pattern, "dw")) {
        Ok(parsed) => {
            let anchors = [Look::Start, Look::End];
            let mut looks = parsed.properties().look_set().iter();
            looks.any(|look| !anchors.contains(&look)).then(|| "word boundaries (`\\b`) cannot be enforced".to_owned())
        }
        Err(error) => {
            let error = error.to_string();
            let why = error.lines().last().unwrap_or_default().trim_start_matches("error: ");
            Some(format!("{} is refused: {why}", shown(&json!(pattern))))
        }
    }
}

/// Converts counts to integers: `3.0` is one too. An upper limit that no answer can reach has no effect.
fn count(keywords: &mut Map<String, Value>) {
    let counts = keywords.keys().filter(|key| Kind::of(key) == Some(Kind::Count)).cloned().collect::<Vec<_>>();
    for key in counts {
        let Some(number) = keywords.get(&key).and_then(exact::number) else { continue };
        let largest = Decimal::from(i128::from(u32::MAX));
        match number.to_string().parse::<u64>() {
            Ok(count) if number <= largest => drop(keywords.insert(key, count.into())),
            _ if key.starts_with("max") => drop(keywords.shift_remove(&key)),
            _ => drop(keywords.insert(key, u32::MAX.into())),
        }
    }
}
