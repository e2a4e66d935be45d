//! Parses the bodies of requests. An error names the field that is wrong, and says what is expected there in the words
//! of JSON instead of those of Rust.

use super::constraints::SCHEMAS;
use super::failure::{Failure, shown};
use axum::body::Bytes;
use serde::de::{DeserializeOwned, Error};
use serde_json::Value;
use serde_path_to_error::{Path, Track};
use std::borrow::Cow;
use wglm_engine::Constraint;

/// What serde calls the types of JSON, and what people call them.
const EXPECTED: [(&str, &str); 9] = [
    ("a boolean", "true or false"),
    ("a map", "an object"),
    ("a sequence", "a list"),
    ("i128", "an integer"),
    ("i64", "a 64-bit integer"),
    ("string or map", "one of the allowed strings"),
    ("u32", "an integer from 0 to 4294967295"),
    ("u64", "an integer of at least 0"),
    ("usize", "an integer of at least 0"),
];
const FOUND: [(&str, &str); 3] = [("map", "an object"), ("sequence", "a list"), ("unit value", "null")];

/// Parses a body. Numbers in schemas keep all of their digits.
pub fn read<T: DeserializeOwned>(body: &Bytes) -> Result<T, Failure> {
    let marked = std::str::from_utf8(body).ok().and_then(|text| Constraint::keep_digits(text, &SCHEMAS));
    let mut from = serde_json::Deserializer::from_slice(marked.as_ref().map_or(&**body, String::as_bytes));
    let read = serde_path_to_error::deserialize(&mut from).map_err(|error| {
        let path = error.path().clone();
        failure("", &path, &error.into_inner())
    })?;
    from.end().map_err(|error| invalid(&error))?;
    Ok(read)
}

/// Parses the value of a field of a body.
pub fn read_field<T: DeserializeOwned>(field: &str, value: Value) -> Result<T, Failure> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().clone();
        failure(field, &path, &error.into_inner())
    })
}

/// An error about fields that are flattened into a body. serde knows where the error is only while it reads these
/// fields, so the path is written into the error, where [`read`] finds it.
pub fn located<E: Error>(error: &E, track: Track) -> E {
    let message = error.to_string();
    let (inner, wrong) = split(&message);
    E::custom(format!("`{}`: {wrong}", joined(&track.path().to_string(), inner)))
}

fn invalid(error: &serde_json::Error) -> Failure {
    Failure::invalid(format!("the body is not valid JSON: {error}"))
}

/// The failure for an error at a path within a field, or within the body for an empty one.
fn failure(field: &str, path: &Path, error: &serde_json::Error) -> Failure {
    if !error.is_data() {
        return invalid(error);
    }
    // The position in the text, which is that of the end for many errors, says less than the path.
    let (message, position) = (error.to_string(), format!(" at line {} column {}", error.line(), error.column()));
    let (inner, wrong) = split(message.strip_suffix(&position).unwrap_or(&message));
    let path = joined(&joined(field, &path.to_string()), inner);
    let missing = wrong.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`'));
    match (path.as_str(), missing) {
        (path, Some(missing)) => Failure::of_field(&joined(path, missing), "this field is missing"),
        ("", None) => Failure::invalid(format!("the body: {}", in_words(wrong))),
        (path, None) => Failure::of_field(path, in_words(wrong)),
    }
}

/// The path that [`located`] wrote into an error, and the rest of the error.
fn split(error: &str) -> (&str, &str) {
    error.strip_prefix('`').and_then(|rest| rest.split_once("`: ")).unwrap_or(("", error))
}

/// A path and one within what is there. The path of a whole value is `.` or nothing.
pub fn joined(outer: &str, inner: &str) -> String {
    match (outer, inner) {
        ("" | ".", "" | ".") => String::new(),
        ("" | ".", path) | (path, "" | ".") => path.to_owned(),
        (outer, inner) if inner.starts_with('[') => format!("{outer}{inner}"),
        (outer, inner) => format!("{outer}.{inner}"),
    }
}

/// An error of serde about a type, with what was expected first.
fn in_words(error: &str) -> Cow<'_, str> {
    let mismatch = ["invalid type: ", "invalid value: "].iter().find_map(|kind| error.strip_prefix(kind));
    let Some((found, expected)) = mismatch.and_then(|rest| rest.rsplit_once(", expected ")) else {
        return error.into();
    };
    let is_float = expected.strip_prefix('f').is_some_and(|bits| bits.parse::<u8>().is_ok());
    let expected = match expected {
        _ if is_float => "a number",
        _ if expected.starts_with("struct ") => "an object",
        _ => word(expected, &EXPECTED),
    };
    let kinds = ["boolean ", "floating point ", "integer ", "string "];
    let value = kinds.iter().find_map(|kind| found.strip_prefix(kind)).unwrap_or(found).trim_matches('`');
    format!("expected {expected}, found {}", shown(word(value, &FOUND))).into()
}

/// What people call something, or the same if there is no other word for it.
fn word<'a>(of: &'a str, words: &[(&str, &'a str)]) -> &'a str {
    words.iter().find(|(word, _)| *word == of).map_or(of, |(_, is)| is)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Value, read, read_field};
    use crate::serve::failure::Failure;
    use crate::serve::fields::Fields;
    use serde::Deserialize;
    use serde_json::json;

    #[derive(Debug, Deserialize)]
    #[allow(dead_code)]
    struct Item {
        role: String,
        count: Option<u64>,
    }

    #[derive(Debug, Deserialize)]
    #[allow(dead_code)]
    struct Options {
        #[serde(flatten)]
        fields: Fields,
    }

    #[derive(Debug, Deserialize)]
    #[allow(dead_code)]
    struct Body {
        messages: Vec<Item>,
        options: Option<Options>,
        #[serde(flatten)]
        fields: Fields,
    }

    fn refused(body: &str) -> Failure {
        read::<Body>(&body.to_owned().into()).unwrap_err()
    }

    #[test]
    fn an_error_names_its_field_and_what_is_expected() {
        for (body, field, wrong) in [
            (r#"{"messages": 3}"#, "messages", "messages: expected a list, found 3"),
            (
                r#"{"messages": [{"role": null}]}"#,
                "messages[0].role",
                "messages[0].role: expected a string, found null",
            ),
            (r#"{"messages": [{}]}"#, "messages[0].role", "messages[0].role: this field is missing"),
            (r#"{}"#, "messages", "messages: this field is missing"),
            (
                r#"{"messages": [{"role": "a", "count": -1}]}"#,
                "messages[0].count",
                "messages[0].count: expected an integer of at least 0, found -1",
            ),
            (
                r#"{"messages": [], "temperature": "hot"}"#,
                "temperature",
                "temperature: expected a number, found \"hot\"",
            ),
            (r#"{"messages": [], "stream": "yes"}"#, "stream", "stream: expected true or false, found \"yes\""),
            (r#"{"messages": [], "seed": 1.5}"#, "seed", "seed: expected an integer, found 1.5"),
            (r#"{"messages": [], "top_k": 1.5}"#, "top_k", "top_k: expected a 64-bit integer, found 1.5"),
            (
                r#"{"messages": [], "repeat_last_n": 9223372036854775808}"#,
                "repeat_last_n",
                "repeat_last_n: expected a 64-bit integer, found 9223372036854775808",
            ),
            (
                r#"{"messages": [], "overflow": 3}"#,
                "overflow",
                "overflow: expected one of the allowed strings, found 3",
            ),
            (r#"{"messages": [], "stop": 3}"#, "stop", "stop: expected a string or a list of strings"),
            (
                r#"{"messages": [], "options": {"top_k": []}}"#,
                "options.top_k",
                "options.top_k: expected a 64-bit integer, found a list",
            ),
        ] {
            let failure = refused(body);
            assert_eq!((failure.param.as_deref(), failure.message.as_str()), (Some(field), wrong), "{body}");
            assert_eq!(failure.status, 400);
        }
        let failure = read_field::<Vec<u32>>("tokens", json!([5_000_000_000_u64])).unwrap_err();
        assert_eq!(failure.message, "tokens[0]: expected an integer from 0 to 4294967295, found 5000000000");
        let failure = read_field::<Vec<Item>>("input_extra", json!([{"role": {}}])).unwrap_err();
        assert_eq!(failure.message, "input_extra[0].role: expected a string, found an object");
    }

    /// The parser of JSON refuses more than 127 levels. As many fit the stack of a thread, with the path beside them.
    #[test]
    fn deep_values_are_read() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        let body = |depth| format!(r#"{{"messages": [], "chat_template_kwargs": {{"a": {}}}}}"#, nested(depth));
        assert!(read::<Body>(&body(120).into()).is_ok());
        assert!(refused(&body(200)).message.contains("recursion limit"));
    }

    #[test]
    fn what_is_no_json_is_refused_with_its_position() {
        let failure = refused("{\"messages\": [");
        assert!(failure.message.starts_with("the body is not valid JSON: EOF"), "{failure:?}");
        assert!(refused("{\"messages\": []} x").message.contains("line 1 column"), "{failure:?}");
        assert!(read::<Value>(&"".into()).is_err());
        assert_eq!(refused("3").message, "the body: expected an object, found 3");
    }
}
