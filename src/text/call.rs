//! GLM's form of a function call, read as it is written:
//! `<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>…</tool_call>`, with blanks between the tags or
//! none. A name is one word, a key has no tags in it, a value is anything but its closing tag.
//!
//! It is certain to be meant as a call once a tag that may follow a name does. What is wrong after that makes it a call
//! that failed, which reaches to its closing tag, or to where another call begins.

use super::tag::{ReplyPart, Tag};

/// A call as far as it was written.
#[derive(Debug, Clone)]
pub(super) struct Call {
    /// All of it, and the blanks before it.
    raw: String,
    /// Bytes of those blanks.
    blanks: usize,
    pub in_thinking: bool,
    name: String,
    /// Keys and values in order.
    pub arguments: Vec<(String, String)>,
    key: String,
    value: String,
    state: CallState,
}

/// What is being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallState {
    Name,
    /// Before a key, or the end.
    Arguments,
    Key,
    BeforeValue,
    Value,
    /// What follows an error.
    Wrong,
}

/// What a part was to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallProgress {
    /// A part of it.
    More,
    /// No part of it, for this is no call.
    NoCall,
    /// Its end.
    Whole,
    /// The end of one that failed.
    Failed,
    /// Behind the end of one that failed.
    FailedBefore,
}

impl Call {
    /// A call behind its opening tag.
    pub(super) fn new(blanks: String, in_thinking: bool) -> Self {
        let (raw, blanks) = (format!("{blanks}{}", Tag::Call.text()), blanks.len());
        let (name, key, value) = Default::default();
        Self { raw, blanks, in_thinking, name, arguments: Vec::new(), key, value, state: CallState::Name }
    }

    /// The function's name.
    pub(super) fn name(&self) -> &str {
        self.name.trim()
    }

    /// Whether it is certain to be meant as a call.
    pub(super) fn is_certain(&self) -> bool {
        self.state != CallState::Name
    }

    /// As it was written.
    pub(super) fn raw(&self) -> &str {
        &self.raw[self.blanks..]
    }

    /// As it was written, with the blanks before it.
    pub(super) fn with_blanks(self) -> String {
        self.raw
    }

    /// Takes the next part.
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

    /// Takes the last of what there is.
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
