//! Checks constraints without a model, as far as that is possible: over single bytes in the place of tokens.
//!
//! llguidance says what is wrong with a schema, but mostly not where. So the parts of a schema that does not compile are
//! compiled by themselves, and the path leads into the part that has the same error.

use super::depth;
use super::expression::ways;
use super::matcher::{Matcher, failed};
use super::schema::with_definitions;
use super::source::{alone, json_grammar, lenient, with_options};
use super::stack::with_stack;
use super::together::Excess;
use super::vocabulary::{Grammar, factory_of};
use crate::error::{Error, Result};
use llguidance::api::{GrammarInit, GrammarWithLexer, ParserLimits, TopLevelGrammar};
use llguidance::toktrie::ApproximateTokEnv;
use llguidance::{ParserFactory, panic_utils};
use serde_json::Value;
use std::panic::AssertUnwindSafe;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// What messages call the kinds of constraints.
pub(super) const SCHEMA: &str = "JSON schema";
pub(super) const REGEX: &str = "regular expression";
pub(super) const LARK: &str = "grammar";

/// How long the part of a schema is looked for that is wrong.
const SEARCH: Duration = Duration::from_millis(500);

pub(super) fn json_schema(schema: &Value) -> Result<()> {
    if !schema.is_object() && !schema.is_boolean() {
        return Err(failed(SCHEMA, "#", "expected an object or a boolean"));
    }
    with_stack(SCHEMA, || schema_on_stack(schema))
}

/// Refuses a schema that is too large, too deep or too complex.
fn bounded(schema: &Value) -> Result<()> {
    let refused = depth::of_schema(schema).map(|Excess { place, message }| failed(SCHEMA, &place, message));
    refused.map_or(Ok(()), Err)
}

fn schema_on_stack(schema: &Value) -> Result<()> {
    bounded(schema)?;
    let compiled = |schema: &Value| text(json_grammar(schema.clone()), SCHEMA);
    let Err(error) = compiled(schema) else { return Ok(()) };
    let (mut path, mut part, mut message) = ("#".to_owned(), schema.clone(), message_of(&error));
    // What is too large is so as a whole.
    let until = Instant::now() + if is_of_size(&message) { Duration::ZERO } else { SEARCH };
    'deeper: while Instant::now() < until {
        for (key, child) in parts(&part) {
            let child = with_definitions(&child, schema);
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
    Err(Error::Constraint { kind: SCHEMA, place: path, message })
}

pub(super) fn regex(expression: &str) -> Result<()> {
    let compiled = match ways(expression) {
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

/// A grammar may name tokens of the vocabulary, so only its syntax is checked, and its size.
pub(super) fn lark(grammar: &str) -> Result<()> {
    with_stack(LARK, || match depth::of_lark(grammar) {
        Some(why) => Err(failed(LARK, "", why)),
        None => Ok(()),
    })?;
    let init = GrammarInit::Serialized(TopLevelGrammar::from_lark(grammar.to_owned()));
    let compile = || init.to_internal(None, ParserLimits::default()).map(drop);
    let compile = || panic_utils::catch_unwind(AssertUnwindSafe(compile)).map_err(|error| failed(LARK, "", error));
    with_stack(LARK, compile)
}

/// Whether a schema is small enough to be looked at.
pub(super) fn is_small(schema: &Value) -> bool {
    with_stack(SCHEMA, || bounded(schema)).is_ok()
}

/// Whether arguments can be written by the schema of a function, of which not everything has to be supported. A schema that
/// is too deep for llguidance is not shown to it.
pub(super) fn arguments(schema: &Value) -> Result<()> {
    with_stack(SCHEMA, || {
        bounded(schema)?;
        text(GrammarWithLexer::from_json_schema(with_options(schema.clone(), lenient())), SCHEMA)
    })
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

/// What compiles grammars over single bytes.
fn bytes() -> Result<&'static ParserFactory> {
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

/// Whether a message says that a schema is too large: by its own words, and not by those that it cites.
fn is_of_size(message: &str) -> bool {
    message.split(['\'', '"']).step_by(2).any(|words| words.contains("too ") || words.contains("limits."))
}

/// Whether the error of a part is why the whole has its error: the whole cites it, or says of both that no value is valid.
fn explains(whole: &str, part: &str) -> bool {
    let unmet = |message: &str| message.contains("nsatisfiable");
    let reason = part.rsplit(": ").next().unwrap_or(part);
    whole.contains(part) || whole.contains(reason) || unmet(whole) && unmet(part)
}

/// The schemas that a schema is made of, and where in it they stand, those that have to be met first.
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

/// A key as a step of a JSON pointer.
pub(super) fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}
