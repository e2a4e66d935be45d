//! GLM's form of a call: `<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>…</tool_call>`, with or
//! without whitespace between the tags. A name is one word, a key contains no tags, and a value is anything up to its
//! closing tag. It is certain to be a call once a tag that can follow a name appears. If a key is repeated, its first
//! value counts, which may have been reported already.
//!
//! A value may contain the tags of calls. Models sometimes forget the value's own closing tag, so if the first of those
//! tags is a call's closing tag, it closes the value and the call in two cases: the reply ends there, and the model
//! ended it; or the next call begins there, and both tags are tokens. A call whose own closing tag is missing has
//! failed, since further arguments might have followed.

use super::arguments::{Guess, json, meaning, types_of};
use super::{CallProgress, Word};
use crate::text::ToolCall;
use crate::text::tag::{ReplyPart, Tag};
use serde_json::{Map, Value};
use std::sync::Arc;

/// A call that may still be incomplete.
#[derive(Debug, Clone)]
pub(super) struct KeyedCall {
    in_thinking: bool,
    /// Whether the tags around calls are recognized by their tokens.
    by_tokens: bool,
    tools: Arc<[Value]>,
    name: Word,
    arguments: Map<String, Value>,
    key: String,
    value: ArgumentValue,
    state: CallState,
    /// The unreported part of the arguments as JSON.
    pub piece: String,
}

/// An argument's value while it is read.
#[derive(Debug, Clone, Default)]
struct ArgumentValue {
    text: String,
    /// The types that the schema names.
    types: Vec<String>,
    /// The closing tag of the call and blanks, if nothing came after them and no tag before them.
    end: String,
    /// Whether there are tags in it.
    has_tags: bool,
    /// What it may be. A text is reported as it is read.
    guess: Guess,
    /// Whether its key has a value already.
    is_repeated: bool,
}

/// The part of a call that comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallState {
    Name,
    /// Before a key, or before the closing tag.
    Arguments,
    Key,
    BeforeValue,
    Value,
    /// After an error.
    Wrong,
}

impl KeyedCall {
    /// The tags `tokens` are recognized by their tokens.
    pub(super) fn new(in_thinking: bool, tokens: &[Tag], tools: Arc<[Value]>) -> Self {
        let by_tokens = [Tag::Call, Tag::CallEnd].iter().all(|tag| tokens.contains(tag));
        let (name, arguments, key, value) = Default::default();
        Self { in_thinking, by_tokens, tools, name, arguments, key, value, state: CallState::Name, piece: "{".into() }
    }

    /// The function's name.
    pub(super) fn name(&self) -> &str {
        &self.name.text
    }

    /// Whether this is certain to be a call.
    pub(super) fn is_certain(&self) -> bool {
        self.state != CallState::Name
    }

    pub(super) fn read(&mut self, part: ReplyPart<'_>) -> CallProgress {
        match part {
            ReplyPart::Text(text) => self.read_text(text),
            ReplyPart::Tag(tag, text) => self.read_tag(tag, text),
        }
    }

    /// The reply ends with this text, because the model ended it unless it is `cut`. Returns whether the call is
    /// complete.
    pub(super) fn end(&mut self, text: &str, cut: bool) -> bool {
        if self.state != CallState::Value {
            return false;
        }
        let is_closed = !cut && !self.value.end.is_empty() && text.trim().is_empty();
        if is_closed {
            self.end_value();
            self.close();
        } else {
            self.read_value(text);
        }
        is_closed
    }

    /// The complete call.
    pub(super) fn understood(&self) -> ToolCall {
        ToolCall::new(self.name(), self.arguments.clone())
    }

    fn read_text(&mut self, text: &str) -> CallProgress {
        match self.state {
            CallState::Name => {
                if !self.name.add(text) {
                    return CallProgress::NoCall;
                }
            }
            CallState::Key => self.key += text,
            CallState::Value => self.read_value(text),
            CallState::Arguments | CallState::BeforeValue if !text.trim().is_empty() => self.state = CallState::Wrong,
            CallState::Arguments | CallState::BeforeValue | CallState::Wrong => {}
        }
        CallProgress::More
    }

    fn read_tag(&mut self, tag: Tag, text: &str) -> CallProgress {
        self.state = match (self.state, tag) {
            (CallState::Name, Tag::Key | Tag::CallEnd) if self.name().is_empty() => return CallProgress::NoCall,
            (CallState::Name | CallState::Arguments, Tag::CallEnd) => {
                self.close();
                return CallProgress::Whole(text.len());
            }
            (CallState::Name | CallState::Arguments, Tag::Key) => CallState::Key,
            (CallState::Name, _) => return CallProgress::NoCall,
            (CallState::Key, Tag::KeyEnd) => CallState::BeforeValue,
            (CallState::BeforeValue, Tag::Value) => {
                self.begin_value();
                CallState::Value
            }
            (CallState::Value, Tag::ValueEnd) => {
                self.release();
                self.end_value();
                CallState::Arguments
            }
            (CallState::Value, Tag::Call) if self.by_tokens && !self.value.end.is_empty() => {
                self.end_value();
                self.close();
                return CallProgress::WholeBefore;
            }
            (CallState::Value, _) => {
                self.release();
                match tag {
                    Tag::CallEnd if !self.value.has_tags => self.value.end.push_str(text),
                    _ => self.add(text),
                }
                self.value.has_tags = true;
                CallState::Value
            }
            (_, Tag::CallEnd) => return CallProgress::Failed(text.len()),
            (_, Tag::Call) => return CallProgress::FailedBefore,
            (_, Tag::ThinkEnd) if self.in_thinking => return CallProgress::FailedBefore,
            _ => CallState::Wrong,
        };
        CallProgress::More
    }

    fn begin_value(&mut self) {
        self.key = self.key.trim().to_owned();
        self.value.is_repeated = self.arguments.contains_key(&self.key);
        if !self.value.is_repeated {
            self.value.types = types_of(&self.tools, self.name(), &self.key);
        }
        self.add("");
    }

    /// Reads text of the value. Blanks after what may be the end of the call are held back with it.
    fn read_value(&mut self, text: &str) {
        if !self.value.end.is_empty() && text.trim().is_empty() {
            self.value.end.push_str(text);
        } else {
            self.release();
            self.add(text);
        }
    }

    /// Adds what was held back to the value.
    fn release(&mut self) {
        let held = std::mem::take(&mut self.value.end);
        self.add(&held);
    }

    fn close(&mut self) {
        self.state = CallState::Arguments;
        self.piece.push('}');
    }

    /// Adds text to the value, and to the reported piece as soon as the value is certain to be a string.
    fn add(&mut self, text: &str) {
        let value = &mut self.value;
        value.text += text;
        if value.is_repeated {
            return;
        }
        if value.guess.is_text() {
            self.piece += inside(&json(text));
            return;
        }
        value.guess.read(text, &value.types);
        if value.guess.is_text() {
            let begun = json(&value.text);
            self.begin_member();
            self.piece += &begun[..begun.len() - 1];
        }
    }

    fn end_value(&mut self) {
        let value = std::mem::take(&mut self.value);
        if !value.is_repeated {
            let meant = meaning(&value.text, &value.types);
            if value.guess.is_text() {
                self.piece.push('"');
            } else {
                self.begin_member();
                self.piece += &match &meant {
                    Value::String(meant) if *meant == value.text => json(meant),
                    _ => value.text.trim().to_owned(), // JSON already, whose numbers keep all of their digits
                };
            }
            self.arguments.insert(std::mem::take(&mut self.key), meant);
        }
        self.key.clear();
    }

    /// Writes what comes before the value of the present key.
    fn begin_member(&mut self) {
        if !self.arguments.is_empty() {
            self.piece.push(',');
        }
        self.piece += &json(&self.key);
        self.piece.push(':');
    }
}

/// A string of JSON without its quotes.
fn inside(string: &str) -> &str {
    &string[1..string.len() - 1]
}
