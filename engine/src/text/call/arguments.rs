//! Interprets the arguments of a call in GLM's form, which writes strings without quotes and everything else as JSON:
//! the function's schema decides whether `5` is a number or a string. A number that is out of range is a string.

use super::Word;
use crate::text::schema::{is_of_type, other_argument, types};
use serde_json::Value;

/// The types that the schema of argument `key` names, of function `name` among `tools`; none if they are not known.
pub(super) fn types_of(tools: &[Value], name: &str, key: &str) -> Vec<String> {
    let whole = parameters(tools, name);
    let named = whole.and_then(|whole| whole.get("properties")?.get(key));
    let part = named.or_else(|| other_argument(whole?));
    let names = part.zip(whole).map(|(part, whole)| types(part, whole)).unwrap_or_default();
    names.into_iter().map(str::to_owned).collect()
}

/// The schema of the parameters of function `name`, described either in OpenAI's form or as only the inner object of
/// that form.
fn parameters<'a>(tools: &'a [Value], name: &str) -> Option<&'a Value> {
    let function = |tool: &'a Value| tool.get("function").unwrap_or(tool);
    let named = tools.iter().map(function).find(|function| function.get("name").is_some_and(|n| n == name))?;
    named.get("parameters")
}

/// The value that an argument's text stands for: a string if the schema says so or the text is not JSON, and otherwise
/// JSON. If the schema allows a string among other types, JSON of one of the other types wins.
pub(super) fn meaning(text: &str, types: &[String]) -> Value {
    let read = serde_json::from_str::<Value>(text).ok();
    let fits = |value: &Value| types.iter().any(|name| name != "string" && is_of_type(value, name));
    let read = if allows_strings(types) { read.filter(fits) } else { read };
    read.unwrap_or_else(|| Value::String(text.to_owned()))
}

/// What the text of an argument may [mean](meaning), by its beginning.
#[derive(Debug, Clone, Default)]
pub(super) enum Guess {
    /// Anything: there are only blanks so far.
    #[default]
    Anything,
    /// An object, a list or a quoted string.
    Json,
    Number,
    /// `true`, `false` or `null`, of which this was read.
    Word(Word),
    /// Certainly that text as a string.
    Text,
}

impl Guess {
    pub(super) fn is_text(&self) -> bool {
        matches!(self, Self::Text)
    }

    /// Reads more of the text of an argument of these types.
    pub(super) fn read(&mut self, more: &str, types: &[String]) {
        let strings = allows_strings(types);
        let allows = |of: &[&str]| !strings || types.iter().any(|name| of.contains(&name.as_str()));
        if matches!(self, Self::Anything) {
            *self = match more.trim_start().bytes().next() {
                None if !strings || types.len() > 1 => Self::Anything,
                Some(b'{') if allows(&["object"]) => Self::Json,
                Some(b'[') if allows(&["array"]) => Self::Json,
                Some(b'"') if !strings => Self::Json,
                Some(b'-' | b'0'..=b'9') if allows(&["number", "integer"]) => Self::Number,
                Some(b't' | b'f' | b'n') => Self::Word(Word::default()),
                _ => Self::Text,
            };
        }
        let goes_on = match self {
            Self::Number => more.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE \n\r\t".contains(&byte)),
            Self::Word(word) => word.add(more) && is_literal_begun(&word.text, allows),
            _ => true,
        };
        if !goes_on {
            *self = Self::Text;
        }
    }
}

/// Whether a literal of one of the types that are allowed begins like this.
fn is_literal_begun(text: &str, allows: impl Fn(&[&str]) -> bool) -> bool {
    let literals = [("true", "boolean"), ("false", "boolean"), ("null", "null")];
    literals.iter().any(|(literal, of)| literal.starts_with(text) && allows(&[of]))
}

/// Text as a string of JSON.
pub(super) fn json(text: &str) -> String {
    Value::from(text).to_string()
}

fn allows_strings(types: &[String]) -> bool {
    types.iter().any(|name| name == "string")
}
