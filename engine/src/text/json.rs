//! The `tojson` filter as transformers defines it: Python's `json.dumps`, with nothing escaped for HTML.

use super::marker::{ESCAPE, MARK};
use super::{jinja, python};
use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, Value};

/// The deepest nesting of containers that is written.
const DEPTH: usize = 200;

/// `json.dumps(value, ensure_ascii, indent, separators, sort_keys)`. All options can be given by name, and the first
/// three also by position.
pub(super) fn tojson(
    value: &Value,
    ensure_ascii: Option<Value>,
    indent: Option<Value>,
    separators: Option<Value>,
    options: Kwargs,
) -> Result<String, Error> {
    let option = |placed: Option<Value>, name: &str| match placed {
        Some(value) => Ok(Some(value)),
        None => options.get::<Option<Value>>(name),
    };
    let [ensure_ascii, sort_keys] = [option(ensure_ascii, "ensure_ascii")?, option(None, "sort_keys")?]
        .map(|option| option.is_some_and(|value| value.is_true()));
    let [indent, separators] = [option(indent, "indent")?, option(separators, "separators")?]
        .map(|option| option.filter(|value| !value.is_none()));
    options.assert_all_used()?;
    let (item, key) = match separators {
        Some(separators) => two_strings(&separators)?,
        None => (if indent.is_some() { "," } else { ", " }.into(), ": ".into()),
    };
    let indent = indent.map(|indent| indentation(&indent)).transpose()?;
    let limit = usize::try_from(jinja::left()).unwrap_or(usize::MAX);
    let mut writer = JsonWriter { out: String::new(), limit, depth: 0, ensure_ascii, sort_keys, indent, item, key };
    writer.value(value)?;
    Ok(writer.out)
}

fn two_strings(separators: &Value) -> Result<(String, String), Error> {
    let both = [separators.get_item_by_index(0)?, separators.get_item_by_index(1)?];
    match both.each_ref().map(Value::as_str) {
        [Some(item), Some(key)] => Ok((item.into(), key.into())),
        _ => Err(Error::new(ErrorKind::InvalidOperation, "tojson: `separators` must be two strings")),
    }
}

/// The indentation of one level: a string, or a number of spaces. A negative number counts as 0: new lines without
/// spaces.
fn indentation(indent: &Value) -> Result<String, Error> {
    match (indent.as_str(), indent.as_i64()) {
        (Some(text), _) => Ok(text.into()),
        (None, Some(width)) if width <= 64 => Ok(" ".repeat(width.max(0) as usize)),
        _ => Err(Error::new(ErrorKind::InvalidOperation, "tojson: `indent` must be at most 64 spaces")),
    }
}

struct JsonWriter {
    out: String,
    /// The most bytes that may be written.
    limit: usize,
    depth: usize,
    ensure_ascii: bool,
    sort_keys: bool,
    indent: Option<String>,
    /// The separator between items.
    item: String,
    /// The separator between a key and its value.
    key: String,
}

impl JsonWriter {
    fn value(&mut self, value: &Value) -> Result<(), Error> {
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.out.push_str(&number(value)),
            ValueKind::String => return self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => return self.list(value),
            ValueKind::Map => return self.map(value),
            kind => {
                return Err(Error::new(ErrorKind::InvalidOperation, format!("tojson: JSON cannot represent {kind}")));
            }
        }
        Ok(())
    }

    fn list(&mut self, value: &Value) -> Result<(), Error> {
        self.open('[')?;
        let mut empty = true;
        for item in value.try_iter()?.checked() {
            self.next(empty)?;
            empty = false;
            self.value(&item?)?;
        }
        self.close(']', empty)
    }

    fn map(&mut self, value: &Value) -> Result<(), Error> {
        let mut keys = value.try_iter()?.checked().collect::<Result<Vec<_>, _>>()?;
        if self.sort_keys {
            keys.sort();
        }
        self.open('{')?;
        for (index, key) in keys.iter().enumerate() {
            self.next(index == 0)?;
            match key.kind() {
                ValueKind::String => self.string(key.as_str().unwrap_or_default())?,
                ValueKind::None => self.out.push_str("\"null\""),
                ValueKind::Bool => self.out.push_str(if key.is_true() { "\"true\"" } else { "\"false\"" }),
                ValueKind::Number => self.out.push_str(&format!("\"{}\"", number(key))),
                kind => return Err(Error::new(ErrorKind::InvalidOperation, format!("tojson: {kind} cannot be a key"))),
            }
            self.out.push_str(&self.key);
            self.value(&value.get_item(key)?)?;
        }
        self.close('}', keys.is_empty())
    }

    fn open(&mut self, bracket: char) -> Result<(), Error> {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(Error::new(ErrorKind::InvalidOperation, format!("tojson: more than {DEPTH} levels deep")));
        }
        self.out.push(bracket);
        Ok(())
    }

    fn next(&mut self, first: bool) -> Result<(), Error> {
        if !first {
            self.out.push_str(&self.item);
        }
        self.new_line()
    }

    fn close(&mut self, bracket: char, empty: bool) -> Result<(), Error> {
        self.depth -= 1;
        if !empty {
            self.new_line()?;
        }
        self.out.push(bracket);
        Ok(())
    }

    /// Begins the line of an item, if each has one.
    fn new_line(&mut self) -> Result<(), Error> {
        let indent = self.indent.as_deref().unwrap_or_default();
        if self.out.len().saturating_add(self.depth.saturating_mul(indent.len())) > self.limit {
            return Err(jinja::exceeded());
        }
        if self.indent.is_some() {
            self.out.push('\n');
            self.out.push_str(&indent.repeat(self.depth));
        }
        Ok(())
    }

    fn string(&mut self, text: &str) -> Result<(), Error> {
        self.out.push('"');
        for char in text.chars() {
            if self.out.len() > self.limit {
                return Err(jinja::exceeded());
            }
            match char {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                '\0'..'\u{20}' => self.escape(char),
                // If the marks of [`Marker`](super::marker::Marker) were escaped, they could not be removed from the
                // prompt.
                MARK | ESCAPE => self.out.push(char),
                '\u{7f}'.. if self.ensure_ascii => self.escape(char),
                _ => self.out.push(char),
            }
        }
        self.out.push('"');
        Ok(())
    }

    /// Writes `\u` and four digits for each UTF-16 unit.
    fn escape(&mut self, char: char) {
        for unit in char.encode_utf16(&mut [0; 2]) {
            self.out.push_str(&format!("\\u{unit:04x}"));
        }
    }
}

/// A number. Python's `json` writes infinities and NaN by name.
fn number(value: &Value) -> String {
    match f64::try_from(value.clone()) {
        Ok(float) if !value.is_integer() && float.is_nan() => "NaN".into(),
        Ok(float) if !value.is_integer() && float.is_infinite() => {
            if float > 0.0 { "Infinity" } else { "-Infinity" }.into()
        }
        _ => python::text(value).into_owned(),
    }
}
