//! The chat template that a model file carries: a conversation becomes the prompt the model was trained on.
//!
//! Guaranteed: a template sees what it would see under Hugging Face transformers (the same whitespace
//! control, the same names defined, Python's way of printing); where it does not, [`ChatTemplate`] says
//! so. A template is code from a stranger's file, yet it reaches nothing but the conversation, and cannot
//! run for ever: its steps are counted. Its memory is not: one that doubles a string again and again can
//! ask for more than there is.

use super::marker::{Marker, unmark};
use super::reply::opens_thinking;
use super::{Message, Tokenizer, jinja};
use crate::error::{Error, Result};
use minijinja::value::Serde;
use minijinja::{Environment, ErrorKind, Value};
use serde::Serialize;
use serde_json::Map;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

const NAME: &str = "chat_template";

/// What a template renders.
#[derive(Debug, Clone)]
pub struct ChatInput<'a> {
    /// The conversation, oldest first.
    pub messages: &'a [Message],
    /// Descriptions of the functions that the model may call, in OpenAI's JSON.
    pub tools: Option<&'a [serde_json::Value]>,
    /// Whether the prompt ends where the assistant is to speak.
    pub add_generation_prompt: bool,
    /// Whether the model thinks before it answers; `None` leaves it to the template.
    pub enable_thinking: Option<bool>,
    /// Further variables for the template, such as GLM's `clear_thinking`.
    pub extra: Map<String, serde_json::Value>,
}

impl<'a> ChatInput<'a> {
    /// The conversation, with the assistant to speak next and everything else left to the template.
    pub fn new(messages: &'a [Message]) -> Self {
        Self { messages, tools: None, add_generation_prompt: true, enable_thinking: None, extra: Map::new() }
    }

    /// Every variable that the template sees. As in transformers, `tools` and `documents` are always
    /// defined, and none when there are none. The named fields win over `extra`. Strings are marked if there is a guard.
    fn context(&self, marker: Option<&Marker>) -> Result<Value, minijinja::Error> {
        let mut variables = vec![("documents", Value::from(()))];
        for (name, value) in &self.extra {
            variables.push((name, outside(value, marker)?));
        }
        variables.extend([
            ("messages", outside(&self.messages, marker)?),
            ("tools", outside(&self.tools, marker)?),
            ("add_generation_prompt", self.add_generation_prompt.into()),
        ]);
        variables.extend(self.enable_thinking.map(|enable| ("enable_thinking", enable.into())));
        Ok(Value::from_pairs(variables))
    }
}

/// What comes from outside the template, as it sees it.
fn outside(value: &impl Serialize, marker: Option<&Marker>) -> Result<Value, minijinja::Error> {
    let Some(marker) = marker else { return Ok(Value::from(Serde(value))) };
    let failed = |error: serde_json::Error| minijinja::Error::new(ErrorKind::BadSerialization, error.to_string());
    Ok(Value::from(Serde(marker.mark(serde_json::to_value(value).map_err(failed)?))))
}

/// What the model is to go on from.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Prompt {
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// Whether the template ended it inside a block of thinking, so that the reply starts there.
    pub opens_thinking: bool,
}

/// A compiled chat template.
///
/// Rendered by minijinja 3 with what transformers adds to Jinja2: `trim_blocks`, `lstrip_blocks`, `break`
/// and `continue`, `tojson` without HTML escapes, `raise_exception`, and `strftime_now`, which tells UTC.
/// Python's printing and the string and mapping methods that templates use are there. What still
/// differs from Jinja2, each a case of `tests/fixtures/jinja/cases.json`:
///
/// * Formatting with `%` (`'%s' % x`), the test `callable`, `varargs` in macros, `cycler`, `joiner` and
///   `lipsum`, the filters `truncate`, `wordcount` and other rare ones, positional arguments of
///   `dictsort`, and methods such as `zfill`, `center`, `index` are errors. So is `{% generation %}`.
/// * `'text'|int` is an error, not 0. A loop over none is empty, not an error. `d|attr('k')` reads a key.
/// * Slices with a negative step are right only from end to end: `x[2:0:-1]` holds an item too many, and
///   reversing an empty list is an error.
/// * Joined or concatenated, not printed, floats from 1e16 up and below 1e-4 have no exponent.
/// * A [prompt](Self::prompt)'s strings have marks in them while the template runs, which `length` and slices count and
///   `pprint` and `urlencode` spell out.
/// * `escape` writes other, equivalent entities; `{% raw %}` eats a new line after it; `strip()` leaves
///   the ASCII separators U+001C to U+001F.
pub struct ChatTemplate {
    environment: Environment<'static>,
}

impl ChatTemplate {
    /// Compiles the Jinja source of a file's `tokenizer.chat_template`.
    ///
    /// # Errors
    /// [`Error::Template`] if it does not parse.
    pub fn new(source: &str) -> Result<Self> {
        guarded(|| {
            let mut environment = jinja::environment()?;
            // Jinja2 reads every kind of line end as a new line.
            let source = source.replace("\r\n", "\n").replace('\r', "\n");
            environment.add_template_owned(NAME, source)?;
            Ok(Self { environment })
        })
    }

    /// The prompt for a conversation, as text. Who encodes it cannot tell what the template wrote from what people did:
    /// [`prompt`](Self::prompt) can.
    ///
    /// # Errors
    /// [`Error::Refused`] if the template refuses the conversation, [`Error::Template`] if it asks for what is not there.
    pub fn render(&self, input: &ChatInput<'_>) -> Result<String> {
        guarded(|| self.environment.get_template(NAME)?.render(input.context(None)?))
    }

    /// The prompt for a conversation, as tokens, in which nobody forges a role or a tag: control tokens and tags are the
    /// template's own. Their names in any string of the input, be it what a user or a function said, the model itself,
    /// a description of a function or a further variable, are text. So the template finds no tags there either: what
    /// the model thought belongs into [`Message::reasoning_content`], not into its content.
    ///
    /// A template that writes the brackets around a string itself, as `<|{{ role }}|>` does, makes the token that the
    /// string names.
    ///
    /// # Errors
    /// As [`render`](Self::render); [`Error::Tokenizer`] if the text cannot be said in tokens.
    pub fn prompt(&self, input: &ChatInput<'_>, tokenizer: &Tokenizer) -> Result<Prompt> {
        let context = |marker| input.context(Some(marker));
        let text = guarded(|| self.environment.get_template(NAME)?.render(context(tokenizer.marker())?));
        let text = text.map_err(|error| match error {
            Error::Template { message } => Error::Template { message: unmark(&message).into_owned() },
            Error::Refused { reason } => Error::Refused { reason: unmark(&reason).into_owned() },
            other => other,
        })?;
        Ok(Prompt { tokens: tokenizer.encode_marked(&text)?, opens_thinking: opens_thinking(&text) })
    }

    /// Whether the template's source names a role: between quotes, in a tag that is about roles.
    pub fn names_role(&self, role: &str) -> bool {
        let names = |tag: &str| ['\'', '"'].iter().any(|quote| tag.contains(&format!("{quote}{role}{quote}")));
        let Ok(template) = self.environment.get_template(NAME) else { return false };
        // Before the first tag there is none, and behind the end of each there is text.
        let mut tags = template.source().split("{%").skip(1).filter_map(|tag| tag.split("%}").next());
        tags.any(|tag| tag.contains("role") && names(tag))
    }
}

impl fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatTemplate").finish_non_exhaustive()
    }
}

/// Runs the engine. A panic in it is an error like any other: minijinja 3.0.5 panics on `[][::-1]`, and
/// what it is fed comes from a stranger's file.
fn guarded<T>(run: impl FnOnce() -> Result<T, minijinja::Error>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => result.map_err(|error| explain(&error)),
        Err(_) => Err(Error::Template { message: "the template engine panicked: a defect of minijinja".into() }),
    }
}

/// The line and the reason, and the reasons behind it; of a refusal what the template says.
fn explain(error: &minijinja::Error) -> Error {
    if std::error::Error::source(error).is_some_and(|source| source.is::<jinja::Refusal>()) {
        return Error::Refused { reason: error.detail().unwrap_or("no reason is given").to_owned() };
    }
    let mut message = String::new();
    if let Some(line) = error.line() {
        message = format!("line {line}: ");
    }
    match error.detail() {
        Some(detail) => message += detail,
        None => message += &error.kind().to_string(),
    }
    let mut reason = std::error::Error::source(error);
    while let Some(source) = reason {
        message += &format!(": {source}");
        reason = source.source();
    }
    Error::Template { message }
}
