//! Calls with arguments in JSON: an object with a name and arguments, `{"name": "…", "arguments": {…}}`, or an id that
//! holds the name, `functions.NAME:0`, then a tag and the object of arguments.
//!
//! An object is certain to be a call once its name is read, which models write first, or else at its end; an id is,
//! once the tag after it appears. The end of the JSON ends a call if the family has no closing tag. A closing tag may
//! be missing at the end of a reply or before the next call.
//!
//! A string may contain the letters of any tag. A closing tag that is a token ends a call within a string as well:
//! otherwise an unterminated string would swallow the rest of the reply.

use super::{CallProgress, Word};
use crate::text::ToolCall;
use crate::text::tag::{ReplyPart, Tag};
use serde_json::{Map, Value};

/// A name that ends within this many bytes is known before the object is complete.
const MOST_TO_NAME: usize = 1024;

/// A call that may still be incomplete.
#[derive(Debug, Clone)]
pub(super) struct JsonCall {
    in_thinking: bool,
    /// Whether a tag closes the call.
    closes: bool,
    /// The tags that are recognized by their tokens.
    tokens: Vec<Tag>,
    /// The id before the arguments that names the function, if there is one.
    id: Option<Word>,
    name: String,
    state: JsonState,
    /// The JSON so far.
    body: String,
    scan: Scan,
    /// The unreported text after the name.
    pub piece: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JsonState {
    /// Within the id.
    Id,
    /// Within the JSON, or after it.
    Json,
    /// After an error.
    Wrong,
}

impl JsonCall {
    /// A call that is an object of JSON.
    pub(super) fn object(in_thinking: bool, closes: bool, tokens: Vec<Tag>) -> Self {
        let (name, body, scan, piece) = Default::default();
        Self { in_thinking, closes, tokens, id: None, name, state: JsonState::Json, body, scan, piece }
    }

    /// A call that begins with an id.
    pub(super) fn named(in_thinking: bool, tokens: Vec<Tag>) -> Self {
        Self { id: Some(Word::default()), state: JsonState::Id, ..Self::object(in_thinking, true, tokens) }
    }

    pub(super) fn name(&self) -> &str {
        match &self.id {
            Some(id) => name_in(&id.text),
            None => &self.name,
        }
    }

    pub(super) fn is_certain(&self) -> bool {
        match self.id {
            Some(_) => self.state != JsonState::Id,
            None => !self.name.is_empty(),
        }
    }

    pub(super) fn read(&mut self, part: ReplyPart<'_>) -> CallProgress {
        match part {
            ReplyPart::Text(text) => self.read_text(text),
            ReplyPart::Tag(tag, text) if self.contains(tag) => self.read_text(text),
            ReplyPart::Tag(tag, text) => self.read_tag(tag, text),
        }
    }

    /// Whether a tag is part of a string.
    fn contains(&self, tag: Tag) -> bool {
        let ends = self.tokens.contains(&tag) && tag.ends_call(self.in_thinking);
        self.state == JsonState::Json && self.scan.in_string && !ends
    }

    /// The reply ends with this text. Returns whether the call is complete; it then has a name.
    pub(super) fn end(&mut self, text: &str) -> bool {
        if self.state == JsonState::Json && !self.scan.complete {
            self.add(text);
        } else if self.is_certain() && !self.scan.complete {
            self.piece += text;
        }
        let parsed = self.parsed().filter(|_| self.state == JsonState::Json);
        let whole = parsed.is_some();
        self.name = parsed.map_or_else(|| std::mem::take(&mut self.name), |(name, _)| name);
        whole
    }

    fn read_text(&mut self, text: &str) -> CallProgress {
        match (self.state, &mut self.id) {
            (JsonState::Id, Some(id)) => {
                let is_word = id.add(text);
                if !is_word {
                    return CallProgress::NoCall;
                }
            }
            (JsonState::Json, _) if !self.scan.complete => {
                let bytes = self.add(text);
                if self.scan.wrong {
                    if !self.is_certain() {
                        return CallProgress::NoCall;
                    }
                    self.state = JsonState::Wrong;
                } else if self.scan.complete && !self.closes {
                    return self.complete(bytes);
                } else if !text[bytes..].trim().is_empty() {
                    self.state = JsonState::Wrong;
                }
            }
            (JsonState::Json, _) if !text.trim().is_empty() => self.state = JsonState::Wrong,
            _ => {}
        }
        CallProgress::More
    }

    fn read_tag(&mut self, tag: Tag, text: &str) -> CallProgress {
        match (self.state, tag) {
            (JsonState::Id, Tag::Arguments) if !self.name().is_empty() => {
                self.state = JsonState::Json;
                CallProgress::More
            }
            (JsonState::Id, _) => CallProgress::NoCall,
            (_, Tag::CallEnd) => self.complete(text.len()),
            (_, Tag::Call | Tag::SectionEnd | Tag::MessageEnd) => self.before(),
            (_, Tag::ThinkEnd) if self.in_thinking => self.before(),
            _ if self.is_certain() => {
                self.state = JsonState::Wrong;
                CallProgress::More
            }
            _ => CallProgress::NoCall,
        }
    }

    /// The outcome of a call that ends after `bytes` bytes of a part.
    fn complete(&mut self, bytes: usize) -> CallProgress {
        match self.parsed().filter(|_| self.state == JsonState::Json) {
            Some((name, _)) => {
                self.name = name;
                CallProgress::Whole(bytes)
            }
            None if self.is_certain() => CallProgress::Failed(bytes),
            None => CallProgress::NoCall,
        }
    }

    /// The outcome of a call that ends before a part.
    fn before(&mut self) -> CallProgress {
        match self.complete(0) {
            CallProgress::Whole(_) => CallProgress::WholeBefore,
            CallProgress::Failed(_) => CallProgress::FailedBefore,
            other => other,
        }
    }

    /// Adds text to the JSON, up to its end. Returns the number of bytes added.
    fn add(&mut self, text: &str) -> usize {
        let bytes = self.scan.read(text);
        self.body += &text[..bytes];
        if self.is_certain() {
            self.piece += &text[..bytes];
        } else if self.body.len() - bytes < MOST_TO_NAME
            && let Some((name, end)) = leading_name(&self.body).filter(|(_, end)| *end <= MOST_TO_NAME)
        {
            self.name = name;
            self.piece += &self.body[end..];
        }
        bytes
    }

    /// The name and the arguments, if the JSON is that of a call.
    fn parsed(&self) -> Option<(String, Map<String, Value>)> {
        let Ok(Value::Object(mut object)) = serde_json::from_str(&self.body) else { return None };
        if let Some(id) = &self.id {
            return Some((name_in(&id.text).to_owned(), object));
        }
        let name = object.get("name")?.as_str().filter(|name| !name.is_empty())?.to_owned();
        let arguments = match object.remove("arguments").or_else(|| object.remove("parameters")) {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(arguments)) => arguments,
            // Some models write JSON within JSON.
            Some(Value::String(text)) => serde_json::from_str(&text).ok()?,
            Some(_) => return None,
        };
        Some((name, arguments))
    }

    /// The complete call, with the id that the model gave it.
    pub(super) fn understood(&self) -> ToolCall {
        let (name, arguments) = self.parsed().unwrap_or_default();
        let id = self.id.as_ref().map(|id| id.text.clone());
        ToolCall { id, ..ToolCall::new(name, arguments) }
    }
}

/// The name of the function in an id such as `functions.weather:0`.
fn name_in(id: &str) -> &str {
    let name = id.strip_prefix("functions.").unwrap_or(id);
    match name.rsplit_once(':') {
        Some((name, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => name,
    }
}

/// The name at the beginning of a call that is an object, and where it ends; `None` if it is incomplete or not the
/// first member.
fn leading_name(body: &str) -> Option<(String, usize)> {
    let after = |text: &'_ str, start: &str| text.trim_start().strip_prefix(start).map(str::len);
    let rest = &body[body.len() - after(body, "{")?..];
    let rest = &rest[rest.len() - after(rest, "\"name\"")?..];
    let rest = &rest[rest.len() - after(rest, ":")?..];
    let mut strings = serde_json::Deserializer::from_str(rest).into_iter::<String>();
    let name = strings.next()?.ok().filter(|name| !name.is_empty())?;
    Some((name, body.len() - rest.len() + strings.byte_offset()))
}

/// Finds the end of an object of JSON, without checking that it is valid.
#[derive(Debug, Clone, Default)]
struct Scan {
    depth: usize,
    in_string: bool,
    /// Whether the previous character was a backslash that escapes the next one.
    escaped: bool,
    complete: bool,
    /// Whether it does not begin with a brace.
    wrong: bool,
}

impl Scan {
    /// Reads text up to the end of the object. Returns how many bytes belong to it.
    fn read(&mut self, text: &str) -> usize {
        for (at, char) in text.char_indices() {
            if self.in_string {
                match char {
                    _ if self.escaped => self.escaped = false,
                    '\\' => self.escaped = true,
                    '"' => self.in_string = false,
                    _ => {}
                }
                continue;
            }
            match char {
                '{' => self.depth += 1,
                _ if self.depth == 0 && !char.is_whitespace() => {
                    self.wrong = true;
                    return text.len();
                }
                '}' => self.depth -= 1,
                '"' => self.in_string = true,
                _ => {}
            }
            if self.depth == 0 && char == '}' {
                self.complete = true;
                return at + 1;
            }
        }
        text.len()
    }
}
