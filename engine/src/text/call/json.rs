//! Calls with arguments in JSON: an object with a name and arguments, `{"name": "…", "arguments": {…}}`; or a name, or
//! an id that holds it, `functions.NAME:0`, then a tag and the object of arguments.
//!
//! An object is certain to be a call once its name is read, or else at its end; a name or an id is, once the tag after
//! it appears. The end of the JSON ends a call if the family has no closing tag. A closing tag may be missing at the
//! end of a reply or before the next call. If a key is repeated, its last value counts.
//!
//! A string may contain the letters of any tag, and the closing tag of a call even if that is a token, since tokenizers
//! do not distinguish the two. Once such a call turns out not to be JSON, the string lacked its end: the call failed
//! there, and what follows is read again. Other closing tags that are tokens end a call within a string as well.

use super::scan::CallScan;
use super::{CallProgress, Word};
use crate::text::ToolCall;
use crate::text::tag::{ReplyPart, Tag};

/// A call that may still be incomplete.
#[derive(Debug, Clone)]
pub(super) struct JsonCall {
    in_thinking: bool,
    /// Whether a tag closes the call.
    closes: bool,
    /// The tags that are recognized by their tokens.
    tokens: Vec<Tag>,
    /// What comes before the arguments, if anything does.
    head: Option<Head>,
    state: JsonState,
    scan: CallScan,
}

#[derive(Debug, Clone)]
enum Head {
    Name(Word),
    /// An id that has the name in it.
    Id(Word),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JsonState {
    /// Within the name or the id before the arguments.
    Head,
    /// Within the JSON, or after it.
    Json,
    /// After an error.
    Wrong,
}

impl JsonCall {
    /// A call that is an object of JSON.
    pub(super) fn object(in_thinking: bool, closes: bool, tokens: Vec<Tag>) -> Self {
        let (state, scan) = (JsonState::Json, CallScan::new(false));
        Self { in_thinking, closes, tokens, head: None, state, scan }
    }

    /// A call that begins with the name.
    pub(super) fn named(in_thinking: bool, tokens: Vec<Tag>) -> Self {
        Self::headed(Head::Name(Word::default()), in_thinking, tokens)
    }

    /// A call that begins with an id.
    pub(super) fn identified(in_thinking: bool, tokens: Vec<Tag>) -> Self {
        Self::headed(Head::Id(Word::default()), in_thinking, tokens)
    }

    fn headed(head: Head, in_thinking: bool, tokens: Vec<Tag>) -> Self {
        let (head, scan) = (Some(head), CallScan::new(true));
        Self { head, state: JsonState::Head, scan, ..Self::object(in_thinking, true, tokens) }
    }

    /// The id that the model gave the call.
    pub(super) fn id(&self) -> Option<&str> {
        match &self.head {
            Some(Head::Id(id)) => Some(&id.text),
            _ => None,
        }
    }

    pub(super) fn name(&self) -> &str {
        match &self.head {
            Some(Head::Id(id)) => name_in(&id.text),
            Some(Head::Name(name)) => &name.text,
            None => self.scan.name().unwrap_or_default(),
        }
    }

    pub(super) fn is_certain(&self) -> bool {
        self.state != JsonState::Head && !self.name().is_empty()
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
        self.is_in_string() && (!ends || tag == Tag::CallEnd)
    }

    fn is_in_string(&self) -> bool {
        self.state == JsonState::Json && self.scan.in_string
    }

    /// Whether a tag would close the call if it were not in a string.
    pub(super) fn may_be_closed_by(&self, tag: Tag) -> bool {
        tag == Tag::CallEnd && self.tokens.contains(&tag) && self.is_in_string()
    }

    /// Whether the JSON has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.scan.complete
    }

    /// Whether what was read cannot become a call with arguments any more.
    pub(super) fn is_broken(&self) -> bool {
        self.scan.broken || self.state == JsonState::Wrong
    }

    /// The reply ends with this text. Returns whether the call is complete; it then has a name.
    pub(super) fn end(&mut self, text: &str) -> bool {
        if self.state == JsonState::Json && !self.scan.complete {
            self.scan.read(text);
        }
        matches!(self.complete(0), CallProgress::Whole(_))
    }

    fn read_text(&mut self, text: &str) -> CallProgress {
        match (self.state, &mut self.head) {
            (JsonState::Head, Some(Head::Name(head) | Head::Id(head))) => {
                let is_word = head.add(text);
                if !is_word {
                    return CallProgress::NoCall;
                }
            }
            (JsonState::Json, _) if !self.scan.complete => {
                let bytes = self.scan.read(text);
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
            (JsonState::Head, Tag::Arguments) if !self.name().is_empty() => {
                self.state = JsonState::Json;
                CallProgress::More
            }
            (JsonState::Head, _) => CallProgress::NoCall,
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
        let arguments = self.scan.arguments().filter(|_| self.state == JsonState::Json);
        match arguments {
            Some(arguments) if self.is_certain() => {
                self.scan.close(arguments);
                CallProgress::Whole(bytes)
            }
            _ if self.is_certain() => CallProgress::Failed(bytes),
            _ => CallProgress::NoCall,
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

    /// Takes the part of the arguments that was not reported.
    pub(super) fn take_piece(&mut self) -> String {
        std::mem::take(&mut self.scan.piece)
    }

    /// The complete call.
    pub(super) fn understood(&self) -> ToolCall {
        let arguments = self.scan.arguments().unwrap_or_default();
        ToolCall { id: self.id().map(str::to_owned), ..ToolCall::new(self.name(), arguments) }
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
