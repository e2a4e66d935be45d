//! Parses GLM's form of a function call while the model writes it:
//! `<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>…</tool_call>`, with or without blanks between the
//! tags. A name is one word, a key contains no tags, and a value is anything up to its closing tag.
//!
//! Text after `<tool_call>` is certain to be a call once a tag that can follow a name appears. An error after that
//! makes it a failed call, which extends to its closing tag or to the beginning of the next call.

use super::tag::{ReplyPart, Tag};

/// A call that may still be incomplete.
#[derive(Debug, Clone)]
pub(super) struct Call {
    /// All text of the call, and the blanks before it.
    raw: String,
    /// The length of those blanks in bytes.
    blanks: usize,
    pub in_thinking: bool,
    name: String,
    /// The keys and values, in order.
    pub arguments: Vec<(String, String)>,
    key: String,
    value: String,
    state: CallState,
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

/// What a part of the reply means to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallProgress {
    /// The call continues with this part.
    More,
    /// This is not a call after all. The part is not consumed.
    NoCall,
    /// The part completes the call.
    Whole,
    /// The part ends a failed call.
    Failed,
    /// A failed call ends before the part, which is not consumed.
    FailedBefore,
}

impl Call {
    /// A call of which only the opening tag was read.
    pub(super) fn new(blanks: String, in_thinking: bool) -> Self {
        let (raw, blanks) = (format!("{blanks}{}", Tag::Call.text()), blanks.len());
        let (name, key, value) = Default::default();
        Self { raw, blanks, in_thinking, name, arguments: Vec::new(), key, value, state: CallState::Name }
    }

    /// The function's name.
    pub(super) fn name(&self) -> &str {
        self.name.trim()
    }

    /// Whether this is certain to be a call.
    pub(super) fn is_certain(&self) -> bool {
        self.state != CallState::Name
    }

    /// The text of the call.
    pub(super) fn raw(&self) -> &str {
        &self.raw[self.blanks..]
    }

    /// The text of the call with the blanks before it.
    pub(super) fn with_blanks(self) -> String {
        self.raw
    }

    /// Reads the next part of the reply.
    pub(super) fn read(&mut self, part: ReplyPart<'_>) -> CallProgress {
        let progress = match part {
            ReplyPart::Text(text) => self.read_text(text),
            ReplyPart::Tag(tag) => self.read_tag(tag),
        };
        if !matches!(progress, CallProgress::NoCall | CallProgress::FailedBefore) {
            self.raw += part.as_str();
        }
        progress
    }

    /// Adds the last text of a reply that ends inside the call.
    pub(super) fn cut(&mut self, text: &str) {
        self.raw += text;
    }

    fn read_text(&mut self, text: &str) -> CallProgress {
        match self.state {
            CallState::Name => {
                self.name += text;
                if self.name().contains(|c: char| c.is_whitespace() || c == '<') {
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

    fn read_tag(&mut self, tag: Tag) -> CallProgress {
        self.state = match (self.state, tag) {
            (CallState::Name, Tag::Key | Tag::CallEnd) if self.name().is_empty() => return CallProgress::NoCall,
            (CallState::Name | CallState::Arguments, Tag::CallEnd) => {
                self.state = CallState::Arguments;
                return CallProgress::Whole;
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
                self.value += tag.text();
                CallState::Value
            }
            (_, Tag::CallEnd) => return CallProgress::Failed,
            (_, Tag::Call) => return CallProgress::FailedBefore,
            (_, Tag::ThinkEnd) if self.in_thinking => return CallProgress::FailedBefore,
            _ => CallState::Wrong,
        };
        CallProgress::More
    }
}
