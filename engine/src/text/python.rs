//! Behaviour of Python that the template engine lacks: how values are printed, and some methods.

use minijinja::value::{Tuple, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat::unknown_method_callback;
use std::borrow::Cow;
use std::fmt::Write;

/// The deepest nesting of containers that is printed. Deeper ones are printed as `...`.
const DEPTH: usize = 200;

/// The text of a value, as Python's `str(value)`.
pub(super) fn text(value: &Value) -> Cow<'_, str> {
    match (value.kind(), value.as_str()) {
        (_, Some(text)) => Cow::Borrowed(text),
        (ValueKind::Number, _) if !value.is_integer() => Cow::Owned(float(value)),
        (ValueKind::Seq | ValueKind::Map, _) => {
            let mut out = String::new();
            repr(value, 0, &mut out);
            Cow::Owned(out)
        }
        _ => Cow::Owned(value.to_string()),
    }
}

/// Appends Python's `repr(value)` to `out`.
fn repr(value: &Value, depth: usize, out: &mut String) {
    match value.kind() {
        _ if depth > DEPTH => out.push_str("..."),
        ValueKind::Seq => {
            let (open, close) = if value.is_tuple() { ('(', ')') } else { ('[', ']') };
            out.push(open);
            let items = value.try_iter().into_iter().flatten();
            list(items, out, |item, out| repr(&item, depth + 1, out));
            if value.is_tuple() && value.len() == Some(1) {
                out.push(',');
            }
            out.push(close);
        }
        ValueKind::Map => {
            out.push('{');
            list(value.try_iter().into_iter().flatten(), out, |key, out| {
                repr(&key, depth + 1, out);
                out.push_str(": ");
                repr(&value.get_item(&key).unwrap_or_default(), depth + 1, out);
            });
            out.push('}');
        }
        ValueKind::Number if !value.is_integer() => out.push_str(&float(value)),
        ValueKind::String => quote(value.as_str().unwrap_or_default(), out),
        ValueKind::Undefined => out.push_str("Undefined"),
        _ => out.push_str(&value.to_string()),
    }
}

fn list(items: impl Iterator<Item = Value>, out: &mut String, mut write: impl FnMut(Value, &mut String)) {
    for (index, item) in items.enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        write(item, out);
    }
}

/// Appends a string in quotes. As in Python the quotes are single, unless the text contains single quotes and no double
/// ones.
fn quote(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for char in text.chars() {
        match char {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            _ if char == quote => out.extend(['\\', char]),
            '\0'..' ' | '\u{7f}'..='\u{a0}' | '\u{ad}' => {
                let _ = write!(out, "\\x{:02x}", char as u32);
            }
            // Separators, marks of direction and private use characters, which Python does not count as printable.
            '\u{1680}'
            | '\u{2000}'..='\u{200f}'
            | '\u{2028}'..='\u{202f}'
            | '\u{205f}'..='\u{206f}'
            | '\u{3000}'
            | '\u{e000}'..='\u{f8ff}'
            | '\u{feff}' => {
                let _ = write!(out, "\\u{:04x}", char as u32);
            }
            _ => out.push(char),
        }
    }
    out.push(quote);
}

/// A float as Python prints it: the shortest digits that give the same number when parsed, with an exponent from 1e16
/// up and below 1e-4.
fn float(value: &Value) -> String {
    let Ok(float) = f64::try_from(value.clone()) else { return value.to_string() };
    if !float.is_finite() {
        return if float.is_nan() {
            "nan"
        } else if float > 0.0 {
            "inf"
        } else {
            "-inf"
        }
        .into();
    }
    let scientific = format!("{float:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>() {
        Ok(exponent) if float != 0.0 && !(-4..16).contains(&exponent) => {
            format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
        }
        _ => format!("{float:?}"),
    }
}

/// Calls a method of a Python type: one of the engine's own collection, or one that it lacks.
pub(super) fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    match value.as_str().map(|text| string_method(text, name, args)) {
        Some(Some(result)) => result,
        _ => unknown_method_callback(state, value, name, args),
    }
}

fn string_method(text: &str, name: &str, args: &[Value]) -> Option<Result<Value, Error>> {
    Some(match name {
        "removeprefix" => one(args).map(|part| text.strip_prefix(part).unwrap_or(text).into()),
        "removesuffix" => one(args).map(|part| text.strip_suffix(part).unwrap_or(text).into()),
        "partition" => one(args).map(|part| match text.split_once(part) {
            Some((before, after)) => tuple([before, part, after]),
            None => tuple([text, "", ""]),
        }),
        "rpartition" => one(args).map(|part| match text.rsplit_once(part) {
            Some((before, after)) => tuple([before, part, after]),
            None => tuple(["", "", text]),
        }),
        "rsplit" if !args.is_empty() => rsplit(text, args),
        _ => return None,
    })
}

fn one(args: &[Value]) -> Result<&str, Error> {
    match from_args::<(&str,)>(args)? {
        ("",) => Err(Error::new(ErrorKind::InvalidOperation, "empty separator")),
        (part,) => Ok(part),
    }
}

fn tuple(parts: [&str; 3]) -> Value {
    Tuple::from(parts.map(Value::from)).into()
}

/// Python's `rsplit`: splits from the right, at most as often as requested.
fn rsplit(text: &str, args: &[Value]) -> Result<Value, Error> {
    let (_, most): (&str, Option<i64>) = from_args(args)?;
    let most = most.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX - 1);
    let mut parts: Vec<_> = text.rsplitn(most + 1, one(&args[..1])?).map(Value::from).collect();
    parts.reverse();
    Ok(parts.into())
}

/// The test `is iterable`. Unlike the engine's own test it is false for none, because templates use it to distinguish
/// absent content from a list of parts.
pub(super) fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

/// The test `is sequence`: true for everything that has a length and items, strings and mappings included.
pub(super) fn is_sequence(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Undefined | ValueKind::String | ValueKind::Seq | ValueKind::Map)
}

/// The filter `string`.
pub(super) fn string(value: &Value) -> String {
    text(value).into_owned()
}

/// The filter `length`. Unlike the engine's own filter it returns 0 for an undefined value.
pub(super) fn length(value: &Value) -> Result<usize, Error> {
    match value.len() {
        Some(length) => Ok(length),
        None if value.is_undefined() => Ok(0),
        None => Err(Error::new(ErrorKind::InvalidOperation, format!("{} has no length", value.kind()))),
    }
}
