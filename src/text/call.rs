//! GLM's form of a function call, read as it is written:
//! `<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>…</tool_call>`, with blanks between the tags or
//! none. A name is one word, a key has no tags in it, a value is anything but its closing tag.
//!
//! It is certain to be meant as a call once a tag that may follow a name does. What is wrong after that makes it a call
//! that failed, which reaches to its closing tag, or to where another call begins.

use super::tag::{Part, Tag};

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
    place: Place,
}

/// What is being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
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
pub(super) enum Progress {
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
        Self { raw, blanks, in_thinking, name, arguments: Vec::new(), key, value, place: Place::Name }
    }

    /// The function's name.
    pub(super) fn name(&self) -> &str {
        self.name.trim()
    }

    /// Whether it is certain to be meant as a call.
    pub(super) fn is_certain(&self) -> bool {
        self.place != Place::Name
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
    pub(super) fn read(&mut self, part: Part<'_>) -> Progress {
        let progress = match part {
            Part::Text(text) => self.read_text(text),
            Part::Tag(tag) => self.read_tag(tag),
        };
        if !matches!(progress, Progress::NoCall | Progress::FailedBefore) {
            self.raw += part.as_str();
        }
        progress
    }

    /// Takes the last of what there is.
    pub(super) fn cut(&mut self, text: &str) {
        self.raw += text;
    }

    fn read_text(&mut self, text: &str) -> Progress {
        match self.place {
            Place::Name => {
                self.name += text;
                if self.name().contains(|c: char| c.is_whitespace() || c == '<') {
                    return Progress::NoCall;
                }
            }
            Place::Key => self.key += text,
            Place::Value => self.value += text,
            Place::Arguments | Place::BeforeValue if !text.trim().is_empty() => self.place = Place::Wrong,
            Place::Arguments | Place::BeforeValue | Place::Wrong => {}
        }
        Progress::More
    }

    fn read_tag(&mut self, tag: Tag) -> Progress {
        self.place = match (self.place, tag) {
            (Place::Name, Tag::Key | Tag::CallEnd) if self.name().is_empty() => return Progress::NoCall,
            (Place::Name | Place::Arguments, Tag::CallEnd) => {
                self.place = Place::Arguments;
                return Progress::Whole;
            }
            (Place::Name | Place::Arguments, Tag::Key) => Place::Key,
            (Place::Name, _) => return Progress::NoCall,
            (Place::Key, Tag::KeyEnd) => Place::BeforeValue,
            (Place::BeforeValue, Tag::Value) => Place::Value,
            (Place::Value, Tag::ValueEnd) => {
                let key = std::mem::take(&mut self.key).trim().to_owned();
                self.arguments.push((key, std::mem::take(&mut self.value)));
                Place::Arguments
            }
            (Place::Value, _) => {
                self.value += tag.text();
                Place::Value
            }
            (_, Tag::CallEnd) => return Progress::Failed,
            (_, Tag::Call) => return Progress::FailedBefore,
            (_, Tag::ThinkEnd) if self.in_thinking => return Progress::FailedBefore,
            _ => Place::Wrong,
        };
        Progress::More
    }
}
