//! Checks constraints without a model, as far as possible, with single bytes as tokens.
//!
//! llguidance reports what is wrong with a schema, but mostly not where. So the parts of a schema that does not compile
//! are compiled separately, and the path is extended to the part with the same error.

use super::depth;
use super::exact::{MARK, unsupported};
use super::expression::ways;
use super::matcher::{Matcher, failed};
use super::schema::{Fault, escaped, with_definitions};
use super::source::{How, SchemaOptions, alone, is_closed, json_grammar, prepared};
use super::stack::with_stack;
use super::vocabulary::{Grammar, factory_of};
use crate::error::{Error, Result};
use llguidance::api::{GrammarInit, GrammarWithLexer, ParserLimits, TopLevelGrammar};
use llguidance::toktrie::ApproximateTokEnv;
use llguidance::{ParserFactory, panic_utils};
use serde_json::Value;
use std::panic::AssertUnwindSafe;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The names of the kinds of constraints in messages.
pub(super) const SCHEMA: &str = "JSON schema";
pub(super) const REGEX: &str = "regular expression";
pub(super) const LARK: &str = "grammar";

/// The time limit for finding the wrong part of a schema.
const SEARCH: Duration = Duration::from_millis(500);

pub(super) fn json_schema(schema: &Value) -> Result<()> {
    if !schema.is_object() && !schema.is_boolean() {
        return Err(failed(SCHEMA, "#", "expected an object or a boolean"));
    }
    with_stack(SCHEMA, || schema_on_stack(schema)).map_err(in_our_words)
}

/// The error of a part of a schema.
pub(super) fn fault(place: &str, message: &str) -> Error {
    failed(SCHEMA, &shortened(place), message)
}

/// The maximum number of characters of a path that are shown.
const LONGEST_PLACE: usize = 120;

/// A path, with its middle cut out if it is long.
fn shortened(place: &str) -> String {
    let count = place.chars().count();
    if count <= LONGEST_PLACE {
        return place.to_owned();
    }
    let half = LONGEST_PLACE / 2;
    place.chars().take(half).chain("…".chars()).chain(place.chars().skip(count - half)).collect()
}

/// Refuses a schema that is too large, too deep or too complex.
fn bounded(schema: &Value) -> Result<()> {
    match prepared(schema.clone(), How::NEW_FUNCTION) {
        Err(Fault { place, message }) if is_of_size(&message) => Err(fault(&place, &message)),
        _ => Ok(()),
    }
}

fn schema_on_stack(schema: &Value) -> Result<()> {
    let grammar = json_grammar(schema.clone(), How::NEW)?;
    let Err(error) = text(grammar, SCHEMA) else { return Ok(()) };
    let compiled = |schema: &Value| text(json_grammar(schema.clone(), How::NEW)?, SCHEMA);
    let (mut path, mut part, mut message) = ("#".to_owned(), schema.clone(), message_of(&error));
    // An error about size concerns the whole schema.
    let until = Instant::now() + if is_of_size(&message) { Duration::ZERO } else { SEARCH };
    'deeper: while Instant::now() < until {
        for (key, child) in parts(&part) {
            let options = SchemaOptions::default().with_closed(is_closed(schema));
            let child = options.put_into(with_definitions(&child, schema));
            if let Err(of_child) = compiled(&child) {
                let of_child = message_of(&of_child);
                if explains(&message, &of_child) {
                    (path, part, message) = (format!("{path}{key}"), child, of_child);
                    continue 'deeper;
                }
            }
            if Instant::now() > until {
                break;
            }
        }
        break;
    }
    Err(Error::Constraint { kind: SCHEMA, place: shortened(&path), message })
}

/// Parts of llguidance's messages about schemas, and their equivalents in terms of JSON Schema.
const WORDS: [(&str, &str); 10] = [
    ("nsatisfiable", "no value is valid"),
    ("Regex is empty", "no string is valid"),
    ("are not disjoint", "`patternProperties`: patterns that match the same names cannot be enforced"),
    ("patternProperty regexes", "`patternProperties`: the patterns are too complex to be compared"),
    (
        "oneOf constraints",
        "`oneOf`: alternatives that allow the same value cannot be enforced; use `anyOf`, or make the schema lenient",
    ),
    ("min/maxProperties", "`minProperties` and `maxProperties` cannot be enforced together with optional properties"),
    ("circular references", "`$ref`: a schema that refers to itself cannot be enforced together with other keywords"),
    ("if regex is empty", "`pattern`: too complex together with adjacent keywords"),
    ("unknown field", "`x-guidance`: an option that does not exist"),
    ("invalid type", "`x-guidance`: an option of the wrong type"),
];

/// The beginnings of wglm's own messages.
const OWN: [&str; 15] = [
    "`",
    "#",
    "a ",
    "compiling it failed",
    "expected",
    "it is not JSON",
    "more than",
    "no ",
    "numbers ",
    "the ",
    "there is",
    "too complex:",
    "too large:",
    "too many",
    "what ",
];

/// Rewrites an error about a schema without the terms of llguidance.
pub(super) fn in_our_words(error: Error) -> Error {
    match error {
        Error::Constraint { kind: SCHEMA, place, message } if !OWN.iter().any(|begin| message.starts_with(begin)) => {
            let known = WORDS.iter().find(|(theirs, _)| message.contains(theirs)).map(|(_, ours)| *ours);
            let other = match is_of_size(&message) || message.contains("imit") || message.contains("fuel") {
                true => "too large or too complex to be compiled",
                false => "it cannot be enforced",
            };
            Error::Constraint { kind: SCHEMA, place, message: known.unwrap_or(other).to_owned() }
        }
        other => other,
    }
}

pub(super) fn regex(expression: &str) -> Result<()> {
    let compiled = match ways(expression) {
        Ok(_) if expression.contains(MARK) => Err(failed(REGEX, "", unsupported())),
        Ok(_) => with_stack(REGEX, || text(GrammarWithLexer::from_regex(expression), REGEX)),
        Err(why) => Err(failed(REGEX, "", why)),
    };
    compiled.map_err(|error| match error {
        Error::Constraint { kind, message, .. } => {
            let place: String = format!("{:?}", expression.chars().take(80).collect::<String>());
            Error::Constraint { kind, place: place.chars().take(80).collect(), message }
        }
        other => other,
    })
}

/// A grammar may name tokens of the vocabulary, so only its syntax and its size are checked.
pub(super) fn lark(grammar: &str) -> Result<()> {
    if grammar.contains(MARK) {
        return Err(failed(LARK, "", unsupported()));
    }
    with_stack(LARK, || match depth::of_lark(grammar) {
        Some(why) => Err(failed(LARK, "", why)),
        None => Ok(()),
    })?;
    let init = GrammarInit::Serialized(TopLevelGrammar::from_lark(grammar.to_owned()));
    let compile = || init.to_internal(None, ParserLimits::default()).map(drop);
    let compile = || panic_utils::catch_unwind(AssertUnwindSafe(compile)).map_err(|error| failed(LARK, "", error));
    with_stack(LARK, compile)
}

/// Whether a schema is small enough to be examined.
pub(super) fn is_small(schema: &Value) -> bool {
    with_stack(SCHEMA, || bounded(schema)).is_ok()
}

/// Whether the schema of a function, which need not be fully supported, can be compiled. A schema that is too deep is
/// not passed to llguidance.
pub(super) fn arguments(schema: &Value) -> Result<()> {
    with_stack(SCHEMA, || text(json_grammar(schema.clone(), How::NEW_FUNCTION)?, SCHEMA))
}

/// Whether any text matches a grammar.
fn text(grammar: GrammarWithLexer, kind: &'static str) -> Result<()> {
    let grammar = Grammar { source: alone(grammar), kind, numbers: None };
    let mut matcher = Matcher::new(bytes()?, &grammar, 16, None)?;
    match matcher.mask() {
        Err(Error::Constraint { kind, place, message }) if message == "NoExtensionBias" => {
            let message = "no text matches it".to_owned();
            Err(Error::Constraint { kind, place, message })
        }
        mask => mask.map(drop),
    }
}

/// Whether a constraint accepts a text as a complete answer, byte for byte, with the limits on digits of numbers.
pub(super) fn accepts(constraint: &super::Constraint, text: &str) -> Result<bool> {
    let grammar = Grammar { source: alone(constraint.named("answer")?), kind: constraint.kind(), numbers: None };
    let mut matcher = Matcher::new(bytes()?, &grammar, 16, None)?;
    let mut numbers = constraint.numbers();
    for byte in text.bytes() {
        if matcher.is_over() || !matcher.allows(byte.into())? {
            return Ok(false);
        }
        if let Some(numbers) = &mut numbers {
            let mask = matcher.mask()?.to_vec();
            let may_be = |token: usize| mask.get(token / 32).is_some_and(|word| word >> (token % 32) & 1 == 1);
            let allowed = |token: usize| u8::try_from(token).is_ok_and(|byte| numbers.allows(&[byte]));
            // A number that is too long is allowed only if nothing else is.
            if !numbers.allows(&[byte]) && (may_be(256) || (0..256).any(|token| may_be(token) && allowed(token))) {
                return Ok(false);
            }
            numbers.read(byte);
        }
        matcher.accept(byte.into())?;
    }
    Ok(matcher.may_end())
}

/// The compiler of grammars over single bytes.
pub(super) fn bytes() -> Result<&'static ParserFactory> {
    static BYTES: OnceLock<ParserFactory> = OnceLock::new();
    if let Some(known) = BYTES.get() {
        return Ok(known);
    }
    let made = factory_of(&ApproximateTokEnv::single_byte_env(), &[])?;
    Ok(BYTES.get_or_init(|| made))
}

fn message_of(error: &Error) -> String {
    match error {
        Error::Constraint { message, .. } => message.clone(),
        other => other.to_string(),
    }
}

/// Whether a message says that a schema is too large, ignoring quoted texts.
fn is_of_size(message: &str) -> bool {
    message
        .split(['\'', '"'])
        .step_by(2)
        .any(|words| words.contains("too ") || words.contains("limits.") || words.starts_with("more than"))
}

/// Whether the error of a part explains that of the whole: the whole quotes it, or both say that no value is valid.
fn explains(whole: &str, part: &str) -> bool {
    let unmet = |message: &str| message.contains("nsatisfiable");
    let reason = part.rsplit(": ").next().unwrap_or(part);
    whole.contains(part) || whole.contains(reason) || unmet(whole) && unmet(part)
}

/// The schemas within a schema and their paths, required ones first.
fn parts(schema: &Value) -> Vec<(String, Value)> {
    let Some(schema) = schema.as_object() else { return Vec::new() };
    let required = schema.get("required").and_then(Value::as_array);
    let is_required = |name: &str| required.is_some_and(|names| names.iter().any(|known| known == name));
    let (mut first, mut others) = (Vec::new(), Vec::new());
    for (key, value) in schema {
        let place = |name: &str| format!("/{}/{}", escaped(key), escaped(name));
        match (key.as_str(), value) {
            ("properties", Value::Object(named)) => {
                for (name, part) in named {
                    let list = if is_required(name) { &mut first } else { &mut others };
                    list.push((place(name), part.clone()));
                }
            }
            ("$defs" | "definitions" | "patternProperties" | "dependentSchemas", Value::Object(named)) => {
                others.extend(named.iter().map(|(name, part)| (place(name), part.clone())));
            }
            ("allOf" | "anyOf" | "oneOf" | "prefixItems", Value::Array(list)) => {
                first.extend(list.iter().enumerate().map(|(at, part)| (place(&at.to_string()), part.clone())));
            }
            (
                "items" | "additionalProperties" | "contains" | "not" | "if" | "then" | "else" | "propertyNames",
                part,
            ) if part.is_object() => {
                first.push((format!("/{}", escaped(key)), part.clone()));
            }
            _ => {}
        }
    }
    first.extend(others);
    first
}
