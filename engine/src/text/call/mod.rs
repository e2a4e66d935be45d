//! A function call while the model writes it, in the form of its family.
//!
//! Text after the opening tag is certain to be a call once it has a name that the form allows. An error after that
//! makes it a failed call, which extends to its closing tag or to the beginning of the next call.
//!
//! The arguments are reported as JSON while they are read, whatever the form. What was reported of a call that fails is
//! the beginning of an object and never complete: the last brace comes only with the complete call.

mod arguments;
mod json;
mod keyed;
mod scan;
mod syntax;

use super::ToolCall;
use super::family::{CallForm, Family};
use super::tag::{ReplyPart, Tag};
use json::JsonCall;
use keyed::KeyedCall;
use serde_json::Value;
use std::sync::Arc;

/// A call that may still be incomplete.
#[derive(Debug, Clone)]
pub(super) struct Call {
    /// All text of the call, and the whitespace before it.
    raw: String,
    /// The length of that whitespace in bytes.
    blanks: usize,
    /// Whether something other than whitespace was read after the call's opening.
    goes_on: bool,
    pub in_thinking: bool,
    /// The closing tag in a string, after which everything is read again if the call fails.
    doubt: Option<Doubt>,
    body: CallBody,
}

/// A place at which a call may have ended.
#[derive(Debug, Clone)]
struct Doubt {
    /// The length of the raw text.
    at: usize,
    /// What was read since.
    parts: Vec<OwnedPart>,
}

/// A tag or a text.
pub(super) type OwnedPart = (Option<Tag>, String);

#[derive(Debug, Clone)]
enum CallBody {
    Keyed(KeyedCall),
    Json(JsonCall),
}

/// What a part of the reply means to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallProgress {
    /// The call continues with this part.
    More,
    /// This is not a call after all. The part is not consumed.
    NoCall,
    /// This many bytes of the part complete the call.
    Whole(usize),
    /// A failed call ends after this many bytes of the part.
    Failed(usize),
    /// A complete call ends before the part, which is not consumed.
    WholeBefore,
    /// A failed call ends before the part, which is not consumed.
    FailedBefore,
}

/// A word that arrives in pieces, with whitespace around it that is not part of it.
#[derive(Debug, Clone, Default)]
struct Word {
    text: String,
    /// Whether whitespace came after the word.
    ended: bool,
}

impl Word {
    /// Adds a piece. Returns whether it is still one word, without the beginning of a tag.
    fn add(&mut self, piece: &str) -> bool {
        let word = piece.trim();
        if word.is_empty() {
            self.ended |= !piece.is_empty() && !self.text.is_empty();
            return true;
        }
        let begins = piece.starts_with(word);
        let apart = !self.text.is_empty() && (self.ended || !begins);
        self.text += word;
        self.ended = !piece.ends_with(word);
        !apart && !word.contains(|c: char| c.is_whitespace() || c == '<')
    }
}

impl Call {
    /// A call of which only the opening was read, after `blanks`, by a model that knows these functions. The tags
    /// `tokens` are recognized by their tokens.
    pub(super) fn new(
        family: &Family,
        (blanks, opening): (&str, &str),
        in_thinking: bool,
        tokens: Vec<Tag>,
        tools: &Arc<[Value]>,
    ) -> Self {
        let (raw, blanks) = (format!("{blanks}{opening}"), blanks.len());
        let closes = !family.text(Tag::CallEnd).is_empty();
        let body = match family.calls {
            CallForm::Keyed => CallBody::Keyed(KeyedCall::new(in_thinking, &tokens, tools.clone())),
            CallForm::Object => CallBody::Json(JsonCall::object(in_thinking, closes, tokens)),
            CallForm::Named => CallBody::Json(JsonCall::named(in_thinking, tokens)),
            CallForm::Identified => CallBody::Json(JsonCall::identified(in_thinking, tokens)),
        };
        Self { raw, blanks, goes_on: false, in_thinking, doubt: None, body }
    }

    /// The function's name, as far as it is known.
    pub(super) fn name(&self) -> &str {
        match &self.body {
            CallBody::Keyed(call) => call.name(),
            CallBody::Json(call) => call.name(),
        }
    }

    /// The id that the model gave the call.
    pub(super) fn id(&self) -> Option<&str> {
        match &self.body {
            CallBody::Keyed(_) => None,
            CallBody::Json(call) => call.id(),
        }
    }

    /// Whether this is certain to be a call.
    pub(super) fn is_certain(&self) -> bool {
        match &self.body {
            CallBody::Keyed(call) => call.is_certain(),
            CallBody::Json(call) => call.is_certain(),
        }
    }

    /// Whether only whitespace was read after the opening; the token that ends the opening tag may contain some.
    pub(super) fn is_empty(&self) -> bool {
        !self.goes_on
    }

    /// The text of the call.
    pub(super) fn raw(&self) -> &str {
        &self.raw[self.blanks..]
    }

    /// The text of the call with the whitespace before it.
    pub(super) fn with_blanks(self) -> String {
        self.raw
    }

    /// The blanks before the call.
    pub(super) fn blanks(&self) -> &str {
        &self.raw[..self.blanks]
    }

    /// What was read after the place at which a call that failed probably ended; the call then ends there.
    pub(super) fn take_rest(&mut self) -> Option<Vec<OwnedPart>> {
        let Doubt { at, parts } = self.doubt.take()?;
        self.raw.truncate(at);
        Some(parts)
    }

    /// Whether a call begins right after a closing tag in a string, so that the tag did close this one.
    fn ends_before(&self, part: ReplyPart<'_>) -> bool {
        let is_blank = |(tag, text): &OwnedPart| tag.is_none() && text.trim().is_empty();
        let at_once = |doubt: &Doubt| doubt.parts.iter().all(is_blank);
        matches!(part, ReplyPart::Tag(Tag::Call, _)) && self.is_certain() && self.doubt.as_ref().is_some_and(at_once)
    }

    /// Notes whether the call may have ended with a part that it has read.
    fn note_doubt(&mut self, part: ReplyPart<'_>, may_be_closed: bool) {
        let tag = if let ReplyPart::Tag(tag, _) = part { Some(tag) } else { None };
        match &mut self.doubt {
            Some(doubt) => doubt.parts.push((tag, part.as_str().to_owned())),
            None if may_be_closed => self.doubt = Some(Doubt { at: self.raw.len(), parts: Vec::new() }),
            None => {}
        }
        if matches!(&self.body, CallBody::Json(call) if call.has_ended()) {
            self.doubt = None;
        }
    }

    /// Reads the next part of the reply.
    pub(super) fn read(&mut self, part: ReplyPart<'_>) -> CallProgress {
        if self.ends_before(part) {
            return CallProgress::FailedBefore;
        }
        let may_be_closed = match (&self.body, part) {
            (CallBody::Json(call), ReplyPart::Tag(tag, _)) => call.may_be_closed_by(tag),
            _ => false,
        };
        let progress = match &mut self.body {
            CallBody::Keyed(call) => call.read(part),
            CallBody::Json(call) => call.read(part),
        };
        let progress = match progress {
            CallProgress::More if self.doubt.is_some() && self.is_broken() => self.broken_before(),
            progress => progress,
        };
        let text = part.as_str();
        let read = match progress {
            CallProgress::More => text,
            CallProgress::Whole(bytes) | CallProgress::Failed(bytes) => &text[..bytes],
            CallProgress::NoCall | CallProgress::WholeBefore | CallProgress::FailedBefore => "",
        };
        self.raw += read;
        self.goes_on |= !read.trim_start().is_empty();
        if progress == CallProgress::More {
            self.note_doubt(part, may_be_closed);
        }
        progress
    }

    fn is_broken(&self) -> bool {
        matches!(&self.body, CallBody::Json(call) if call.is_broken())
    }

    /// The outcome of a call that ended at the closing tag that was in doubt.
    fn broken_before(&self) -> CallProgress {
        if self.is_certain() { CallProgress::FailedBefore } else { CallProgress::NoCall }
    }

    /// Adds the last text of a reply that ends inside the call, because the model ended it unless it is `cut`. Returns
    /// whether the call is complete.
    pub(super) fn end(&mut self, text: &str, cut: bool) -> bool {
        self.raw += text;
        if cut {
            self.doubt = None; // the string might have ended later
        }
        if let Some(doubt) = &mut self.doubt {
            doubt.parts.push((None, text.to_owned()));
        }
        match &mut self.body {
            CallBody::Keyed(call) => call.end(text, cut),
            CallBody::Json(call) => call.end(text),
        }
    }

    /// Takes what was read of the arguments since the last call, as JSON.
    pub(super) fn take_piece(&mut self) -> String {
        if !self.is_certain() {
            return String::new();
        }
        match &mut self.body {
            CallBody::Keyed(call) => std::mem::take(&mut call.piece),
            CallBody::Json(call) => call.take_piece(),
        }
    }

    /// The complete call.
    pub(super) fn understood(&self) -> ToolCall {
        match &self.body {
            CallBody::Keyed(call) => call.understood(),
            CallBody::Json(call) => call.understood(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Call, Family, Tag};
    use crate::text::tag::ReplyPart;

    /// A limit that cuts a string with a closing tag leaves one call; if the model ended the reply, the tag closed it.
    #[test]
    fn a_string_that_is_cut_off_may_contain_the_tag() {
        for cut in [true, false] {
            let (open, close) = ("<tool_call>", "</tool_call>");
            let (family, tokens) = (Family::of(open), vec![Tag::Call, Tag::CallEnd]);
            let mut call = Call::new(family, ("", open), false, tokens, &[].into());
            let begun = r#"{"name": "f", "arguments": {"a": "x"#;
            for part in [ReplyPart::Text(begun), ReplyPart::Tag(Tag::CallEnd, close), ReplyPart::Text(" y")] {
                call.read(part);
            }
            assert!(!call.end(" z", cut));
            let rest = [" y", " z"].map(|text| (None, text.to_owned())).to_vec();
            assert_eq!(call.take_rest(), (!cut).then_some(rest));
            assert_eq!(call.raw(), format!("{open}{begun}{close}{}", if cut { " y z" } else { "" }));
        }
    }
}
