//! GLM's form of a call: `<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>…</tool_call>`, with or
//! without whitespace between the tags. A name is one word, a key contains no tags, and a value is anything up to its
//! closing tag. It is certain to be a call once a tag that can follow a name appears.

use super::{CallProgress, Word};
use crate::text::tag::{ReplyPart, Tag};

/// A call that may still be incomplete.
#[derive(Debug, Clone)]
pub(super) struct KeyedCall {
    in_thinking: bool,
    name: Word,
    /// The keys and values, in order.
    pub arguments: Vec<(String, String)>,
    key: String,
    value: String,
    state: CallState,
    /// The unreported text after the name.
    pub piece: String,
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
    pub(super) fn new(in_thinking: bool) -> Self {
        let (name, arguments, key, value, piece) = Default::default();
        Self { in_thinking, name, arguments, key, value, state: CallState::Name, piece }
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
        let progress = match part {
            ReplyPart::Text(text) => self.read_text(text),
            ReplyPart::Tag(tag, text) => self.read_tag(tag, text),
        };
        if progress == CallProgress::More && self.is_certain() {
            self.piece += part.as_str();
        }
        progress
    }

    /// The reply ends with this text. Without its closing tag no call is complete.
    pub(super) fn end(&mut self, text: &str) -> bool {
        if self.is_certain() {
            self.piece += text;
        }
        false
    }

    fn read_text(&mut self, text: &str) -> CallProgress {
        match self.state {
            CallState::Name => {
                if !self.name.add(text) {
                    return CallProgress::NoCall;
                }
            }
            CallState::Key => self.key += text,
            CallState::Value => self.value += text,
            CallState::Arguments | CallState::BeforeValue if !text.trim().is_empty() => self.state = CallState::Wrong,
            CallState::Arguments | CallState::BeforeValue | CallState::Wrong => {}
        }
        CallProgress::More
    }

    fn read_tag(&mut self, tag: Tag, text: &str) -> CallProgress {
        self.state = match (self.state, tag) {
            (CallState::Name, Tag::Key | Tag::CallEnd) if self.name().is_empty() => return CallProgress::NoCall,
            (CallState::Name | CallState::Arguments, Tag::CallEnd) => {
                self.state = CallState::Arguments;
                return CallProgress::Whole(text.len());
            }
            (CallState::Name | CallState::Arguments, Tag::Key) => CallState::Key,
            (CallState::Name, _) => return CallProgress::NoCall,
            (CallState::Key, Tag::KeyEnd) => CallState::BeforeValue,
            (CallState::BeforeValue, Tag::Value) => CallState::Value,
            (CallState::Value, Tag::ValueEnd) => {
                let key = std::mem::take(&mut self.key).trim().to_owned();
                self.arguments.push((key, std::mem::take(&mut self.value)));
                CallState::Arguments
            }
            (CallState::Value, _) => {
                self.value += text;
                CallState::Value
            }
            (_, Tag::CallEnd) => return CallProgress::Failed(text.len()),
            (_, Tag::Call) => return CallProgress::FailedBefore,
            (_, Tag::ThinkEnd) if self.in_thinking => return CallProgress::FailedBefore,
            _ => CallState::Wrong,
        };
        CallProgress::More
    }
}
