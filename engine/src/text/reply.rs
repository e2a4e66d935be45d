//! Separates the model's thinking from its answer and from its function calls.
//!
//! A reply is an optional block of thinking, which `</think>` closes, followed by the answer. The tags are those of the
//! template's [`Family`]; this text writes GLM's. The result does not depend on how the text was cut into pieces. No
//! part of a tag is ever returned as text, and nothing else is lost except whitespace at the beginning of the answer
//! that stands next to a tag or belongs to the template. Tags count only before the first letter of the answer, so that
//! an answer can mention them.
//!
//! If the vocabulary has a token for a tag, only that token counts as the tag, and the same letters in other tokens are
//! text. Otherwise the letters are the tag.
//!
//! With tools, `<tool_call>` begins a call anywhere in the reply; [`call`](super::call) describes its form. Whitespace
//! around a call belongs to the call, except between two texts of the answer. A call is reported in pieces from its
//! name on, and at the end as a whole or as a failure. A call inside thinking ends the thinking, since models forget to
//! close it, unless the call fails. If the text after `<tool_call>` turns out not to be a call before it has a name, it
//! is text, tags included, or thinking if it began inside thinking. After a call the reply continues as it does after
//! `</think>`.
//!
//! In some families tags enclose all calls of a reply. Text between those tags and the calls is dropped.
//!
//! In some families a call is a message of its own. With tools, the end of the answer's message is then a tag: a call
//! follows if the next message has the role of calls, and otherwise the reply has ended.

use super::call::{Call, CallProgress, OwnedPart};
use super::family::Family;
use super::tag::{self, ReplyPart, Tag};
use super::{Tokenizer, ToolCall};
use serde_json::Value;
use std::sync::Arc;

/// How many bytes are read at a time. After each tag the remaining ones are searched for all tags again.
const STEP: usize = 128;

/// How many times in one reply the text after a failed call is parsed again; after that it is text. Each time, the
/// whole rest of the reply may be parsed.
const MAX_REREADS: usize = 8;

/// A piece of a reply. Pieces of text are never empty.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ReplyPiece {
    /// Thinking, as the model wrote it.
    Thinking(String),
    /// Text of the answer.
    Text(String),
    /// The beginning of a function call.
    ToolCallStart {
        /// The call's id, if the model wrote one.
        id: Option<String>,
        /// The function's name.
        name: String,
    },
    /// A piece of the arguments of the call that has begun, as JSON. All pieces of a complete call add up to its
    /// arguments; those of a call that fails, to the beginning of an object without its end.
    ToolCallPiece(String),
    /// The complete call. It has an id only if the model wrote one. It comes after its start and its pieces.
    ToolCall(ToolCall),
    /// The end of a call that is not valid. A [`ToolCallStart`](Self::ToolCallStart) came before, unless the reply
    /// ended before the function's name was complete.
    ToolCallFailed {
        /// The whole text of the call, as the model wrote it.
        text: String,
        /// Whether the reply ended inside the call; otherwise the call is malformed.
        cut: bool,
    },
}

/// Whether a rendered prompt ends inside a block of thinking, so that the reply starts there.
pub(super) fn opens_thinking(prompt: &str, family: &Family) -> bool {
    let tag = family.text(Tag::Think);
    !tag.is_empty() && prompt.trim_end().ends_with(tag)
}

/// The position of the parser in the reply.
#[derive(Debug, Clone)]
enum ParserState {
    /// Inside thinking, before its first letter. Some models open the block a second time here.
    ThinkingStart,
    Thinking,
    /// Outside thinking, before the first letter of the answer. With `after_tag`, whitespace read so far belongs to a
    /// tag.
    TextStart {
        after_tag: bool,
    },
    Text,
    /// Inside text that may be a call.
    Call(Box<Call>),
    /// After a message, with the part of the next one's role that was read.
    Role(String),
    /// After the last message of the reply.
    Ended,
}

/// The position in a reply, between two tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyPosition {
    Thinking,
    /// Outside thinking, before anything of the reply.
    Start,
    /// In the answer, or before it.
    Answer,
    /// After the opening of a call.
    CallBegun,
    /// Within a call, or between messages.
    Within,
}

/// Parses a reply as its text arrives, and returns pieces as soon as their kind is certain.
#[derive(Debug, Clone)]
pub struct ReplyParser {
    family: &'static Family,
    state: ParserState,
    /// Whitespace that is not yet assigned: that at a beginning, and that before what may be a call.
    blanks: String,
    /// The blanks around the calls since the last text of the answer, if there was one.
    gap: Option<String>,
    /// Whether any text of the answer was returned.
    answered: bool,
    /// Within the tags around all calls, the text since the last of them.
    section: Option<String>,
    /// Text that may be the beginning of a tag.
    open: String,
    /// The tokens that stand for tags.
    tokens: Vec<(u32, Tag)>,
    /// The functions that the model may call. Calls are parsed only if there are any.
    tools: Arc<[Value]>,
    /// How often what follows a failed call was read again.
    rereads: usize,
    /// Pieces that the next call returns.
    ready: Vec<ReplyPiece>,
}

impl ReplyParser {
    /// Creates a parser for a reply whose prompt ended inside thinking or outside: see
    /// [`Prompt::opens_thinking`](super::Prompt::opens_thinking). Tags are recognized by their letters, and are GLM's.
    pub fn new(starts_in_thinking: bool) -> Self {
        let state =
            if starts_in_thinking { ParserState::ThinkingStart } else { ParserState::TextStart { after_tag: false } };
        let (blanks, gap, section, open, tokens, tools, ready) = Default::default();
        let (family, answered, rereads) = (Default::default(), false, 0);
        Self { family, state, blanks, gap, answered, section, open, tokens, tools, rereads, ready }
    }

    /// The same parser for replies in the form of a family: see [`Prompt::family`](super::Prompt::family).
    pub fn with_family(self, family: &'static Family) -> Self {
        Self { family, ..self }
    }

    /// The same parser, which also finds calls of these functions, described in OpenAI's JSON. Without functions no
    /// calls are found.
    pub fn with_tools(self, tools: &[Value]) -> Self {
        Self { tools: tools.into(), ..self }
    }

    /// The same parser for replies in the tokens of a vocabulary: a tag that has a token there is recognized by that
    /// token only, and not by its letters. [`Generation`](crate::generate::Generation) does this by itself.
    pub fn with_tokenizer(self, tokenizer: &Tokenizer) -> Self {
        let token = |&(tag, text): &(Tag, &str)| Some((tokenizer.special(text)?, tag));
        Self { tokens: self.family.tags.iter().filter_map(token).collect(), ..self }
    }

    /// The same parser for the rest of a reply whose answer has begun in the prompt: see
    /// [`beginning`](Self::beginning). Whitespace at the start of the rest is part of the answer.
    pub fn in_answer(self) -> Self {
        Self { state: ParserState::Text, answered: true, ..self }
    }

    /// Whether the reply is now inside thinking.
    pub fn is_thinking(&self) -> bool {
        match &self.state {
            ParserState::ThinkingStart | ParserState::Thinking => true,
            ParserState::Call(call) => call.in_thinking && !call.is_certain(),
            ParserState::TextStart { .. } | ParserState::Text | ParserState::Role(_) | ParserState::Ended => false,
        }
    }

    /// The present position in the reply.
    pub(crate) fn position(&self) -> ReplyPosition {
        match &self.state {
            ParserState::ThinkingStart | ParserState::Thinking => ReplyPosition::Thinking,
            ParserState::TextStart { after_tag: false } if self.blanks.is_empty() && self.open.is_empty() => {
                ReplyPosition::Start
            }
            ParserState::TextStart { .. } | ParserState::Text => ReplyPosition::Answer,
            ParserState::Call(call) if call.is_empty() && self.open.is_empty() => ReplyPosition::CallBegun,
            ParserState::Call(_) | ParserState::Role(_) | ParserState::Ended => ReplyPosition::Within,
        }
    }

    /// The tokens that open calls, except those that also end messages.
    #[cfg(feature = "constrain")]
    pub(crate) fn opening_tokens(&self) -> Vec<u32> {
        let opens = |(_, tag): &&(u32, Tag)| matches!(tag, Tag::Call | Tag::Section);
        self.tokens.iter().filter(opens).map(|(token, _)| *token).collect()
    }

    /// The functions that the model may call.
    #[cfg(feature = "constrain")]
    pub(crate) fn tools(&self) -> &[Value] {
        &self.tools
    }

    /// The family of its tags.
    pub(crate) fn family(&self) -> &'static Family {
        self.family
    }

    /// Whether the text read last ended the reply and is not part of it. Otherwise it ends at an [end
    /// token](Tokenizer::is_end) that is not [a tag](Self::is_tag).
    pub fn has_ended(&self) -> bool {
        matches!(self.state, ParserState::Ended)
    }

    /// Whether this parser takes a token as a tag. Pass such a token to [`push_tag`](Self::push_tag), even if the
    /// vocabulary hides it from readers, and the text of any other token to [`push`](Self::push).
    pub fn is_tag(&self, token: u32) -> bool {
        self.tag(token).is_some()
    }

    fn tag(&self, token: u32) -> Option<Tag> {
        let known = self.tokens.iter().find(|(known, _)| *known == token);
        known.map(|(_, tag)| *tag).filter(|tag| !tag.is_of_call() || self.looks_for_calls())
    }

    /// Parses more text, and returns the pieces that it completes.
    pub fn push(&mut self, text: &str) -> Vec<ReplyPiece> {
        let mut rest = text;
        while !rest.is_empty() {
            let end = (STEP.min(rest.len())..).find(|&end| rest.is_char_boundary(end)).unwrap_or(rest.len());
            self.open.push_str(&rest[..end]);
            while self.step() {}
            rest = &rest[end..];
        }
        std::mem::take(&mut self.ready)
    }

    /// Parses a tag given by its token, and returns the pieces that it completes; empty if the token is [not a
    /// tag](Self::is_tag).
    pub fn push_tag(&mut self, token: u32) -> Vec<ReplyPiece> {
        if let Some(tag) = self.tag(token) {
            self.close_text();
            self.read(ReplyPart::Tag(tag, self.family.text(tag)));
        }
        std::mem::take(&mut self.ready)
    }

    /// Ends the reply and returns the pieces that were held back. The beginning of a tag that was never completed is
    /// text. A call that has not ended is complete if only its closing tag is missing, and has failed otherwise. The
    /// parser is then ready for another part of the same reply.
    pub fn finish(&mut self) -> Vec<ReplyPiece> {
        self.finish_as(false)
    }

    /// The same for a reply that the model did not end itself if it is `cut`.
    pub(crate) fn finish_as(&mut self, cut: bool) -> Vec<ReplyPiece> {
        while matches!(self.state, ParserState::Call(_)) {
            self.finish_call(cut); // after a failed call, there may be another one
        }
        self.close_text();
        self.leave_section();
        let blanks = std::mem::take(&mut self.blanks);
        if !matches!(self.state, ParserState::TextStart { after_tag: true }) {
            self.emit(&blanks);
        }
        std::mem::take(&mut self.ready)
    }

    /// Ends a call: complete if only its closing tag is missing, text if it has no name and its opening was no token,
    /// and otherwise failed. Text that might have begun its next tag belongs to it.
    fn finish_call(&mut self, cut: bool) {
        let ParserState::Call(call) = &mut self.state else { return };
        let was_certain = call.is_certain();
        let whole = call.end(&std::mem::take(&mut self.open), cut);
        // A token that opens calls has no other meaning, but its letters may be text.
        if call.name().is_empty() && !self.tokens.iter().any(|(_, tag)| matches!(tag, Tag::Call | Tag::RoleEnd)) {
            return self.no_call();
        }
        self.report_name(was_certain);
        if whole { self.whole() } else { self.failed(true) }
    }

    /// Parses the text up to the next tag or the beginning of one, and the tag. Returns false once more text is needed.
    fn step(&mut self) -> bool {
        let tags = self.spelled();
        let found = tag::first(&self.open, &tags);
        let certain = found.map_or_else(|| self.open.len() - tag::begun(&self.open, &tags), |(place, _)| place);
        let text: String = self.open.drain(..certain).collect();
        self.read(ReplyPart::Text(&text));
        if let Some((_, (tag, text))) = found {
            self.open.drain(..text.len());
            self.read(ReplyPart::Tag(tag, text));
        }
        certain > 0 || found.is_some()
    }

    /// Parses text that might have been the beginning of a tag as text.
    fn close_text(&mut self) {
        let text = std::mem::take(&mut self.open);
        self.read(ReplyPart::Text(&text));
    }

    /// The tags that are recognized by their letters in the present state.
    fn spelled(&self) -> Vec<(Tag, &'static str)> {
        let counts = |tag: Tag| match (&self.state, tag) {
            (ParserState::Call(_), _) => tag != Tag::Think,
            (ParserState::Role(_), _) => tag == Tag::RoleEnd,
            (ParserState::Ended, _) => false,
            (_, Tag::Call | Tag::Section | Tag::SectionEnd | Tag::MessageEnd) => self.looks_for_calls(),
            (ParserState::ThinkingStart | ParserState::TextStart { .. }, Tag::Think) => true,
            (state, Tag::ThinkEnd) => !matches!(state, ParserState::Text),
            _ => false,
        };
        let is_token = |tag: Tag| self.tokens.iter().any(|(_, known)| *known == tag);
        self.family.tags.iter().copied().filter(|(tag, _)| counts(*tag) && !is_token(*tag)).collect()
    }

    /// Whether there are functions that the model may call.
    pub(crate) fn looks_for_calls(&self) -> bool {
        !self.tools.is_empty()
    }

    fn read(&mut self, part: ReplyPart<'_>) {
        match (&self.state, part) {
            (ParserState::Call(_), _) => self.read_call(part),
            (ParserState::Role(_), _) => self.read_role(part),
            (ParserState::Ended, _) => {}
            (_, ReplyPart::Text(text)) => match &mut self.section {
                Some(held) => held.push_str(text),
                None => self.read_text(text),
            },
            (ParserState::ThinkingStart | ParserState::TextStart { .. }, ReplyPart::Tag(Tag::Think, _)) => {
                self.gap = None;
                self.blanks.clear();
                self.state = ParserState::Thinking;
            }
            (
                ParserState::ThinkingStart | ParserState::Thinking | ParserState::TextStart { .. },
                ReplyPart::Tag(Tag::ThinkEnd, _),
            ) => {
                self.leave_section();
                self.gap = None;
                let blanks = std::mem::take(&mut self.blanks);
                if self.is_thinking() {
                    self.emit(&blanks);
                }
                self.state = ParserState::TextStart { after_tag: true };
            }
            (_, ReplyPart::Tag(Tag::Call, text)) if self.looks_for_calls() => self.begin_call(text),
            (_, ReplyPart::Tag(Tag::MessageEnd, _)) if self.looks_for_calls() => {
                if matches!(self.state, ParserState::TextStart { after_tag: true }) {
                    self.blanks.clear();
                }
                self.state = ParserState::Role(String::new());
            }
            (_, ReplyPart::Tag(Tag::Section, _)) if self.looks_for_calls() => {
                self.section.get_or_insert_default();
            }
            (_, ReplyPart::Tag(Tag::SectionEnd, _)) if self.looks_for_calls() => self.section = None,
            (_, ReplyPart::Tag(_, text)) => self.read_text(text),
        }
    }

    /// Parses the text that was held back in a section that does not end, or has no more calls.
    fn leave_section(&mut self) {
        if let Some(held) = self.section.take() {
            self.read_text(&held);
        }
    }

    /// Parses text outside calls. Further whitespace is held back with the previous one.
    fn read_text(&mut self, text: &str) {
        self.blanks += text;
        let body = match self.state {
            ParserState::ThinkingStart => ParserState::Thinking,
            ParserState::TextStart { .. } => ParserState::Text,
            _ if self.holds_blanks() && text.trim_start().is_empty() => return,
            _ => return self.emit_body(),
        };
        if !text.trim_start().is_empty() {
            match (self.gap.take(), &self.state) {
                (Some(gap), _) => self.blanks.insert_str(0, &gap),
                (None, ParserState::TextStart { after_tag }) => self.blanks = self.without_lead(*after_tag).to_owned(),
                (None, _) => {}
            }
            self.state = body;
            self.emit_body();
        }
    }

    /// The text without the whitespace at its beginning that belongs to a tag or to the template.
    fn without_lead(&self, after_tag: bool) -> &str {
        if after_tag {
            self.blanks.trim_start()
        } else {
            self.blanks.strip_prefix(self.family.lead).unwrap_or(&self.blanks)
        }
    }

    /// Whether whitespace after the first letter of the answer is held back, since it may belong to a call.
    fn holds_blanks(&self) -> bool {
        self.looks_for_calls() && !self.is_thinking()
    }

    /// Returns text after the first letter, except whitespace at its end that is held back.
    fn emit_body(&mut self) {
        let mut text = std::mem::take(&mut self.blanks);
        if self.holds_blanks() {
            self.blanks = text.split_off(text.trim_end().len());
        }
        self.emit(&text);
    }

    /// Parses a part of the role of the next message.
    fn read_role(&mut self, part: ReplyPart<'_>) {
        let ParserState::Role(role) = &mut self.state else { return };
        let caller = self.family.caller.unwrap_or_default();
        match part {
            ReplyPart::Text(text) => {
                *role += text;
                if !caller.starts_with(role.as_str()) {
                    self.state = ParserState::Ended;
                }
            }
            ReplyPart::Tag(Tag::RoleEnd, end) if *role == caller => {
                let opening = format!("{}{caller}{end}", self.family.text(Tag::MessageEnd));
                self.begin_call(&opening);
            }
            ReplyPart::Tag(..) => self.state = ParserState::Ended,
        }
    }

    fn begin_call(&mut self, opening: &str) {
        let (mut blanks, in_thinking) = (std::mem::take(&mut self.blanks), self.is_thinking());
        if in_thinking {
            self.emit(&blanks);
        }
        if in_thinking || matches!(self.state, ParserState::TextStart { after_tag: true }) {
            self.gap.iter_mut().for_each(|gap| gap.push_str(&blanks));
            blanks.clear();
        }
        self.section.iter_mut().for_each(String::clear);
        let tokens = self.tokens.iter().map(|(_, tag)| *tag).collect();
        let call = Call::new(self.family, (&blanks, opening), in_thinking, tokens, &self.tools);
        self.state = ParserState::Call(Box::new(call));
    }

    /// Parses a part of what may be a call.
    fn read_call(&mut self, part: ReplyPart<'_>) {
        let ParserState::Call(call) = &mut self.state else { return };
        let was_certain = call.is_certain();
        let progress = call.read(part);
        self.report_name(was_certain);
        match progress {
            CallProgress::More => {}
            CallProgress::Whole(bytes) => {
                self.whole();
                self.read_rest(part, bytes);
            }
            CallProgress::Failed(bytes) => {
                self.failed(false);
                match self.state {
                    ParserState::Call(_) => self.read(part), // one that was found when the rest was read again
                    _ => self.read_rest(part, bytes),
                }
            }
            CallProgress::WholeBefore => {
                self.whole();
                self.read(part);
            }
            CallProgress::FailedBefore => {
                self.failed(false);
                self.read(part);
            }
            CallProgress::NoCall => {
                self.no_call();
                self.read(part);
            }
        }
    }

    /// Reports the name of a call that has become certain, and what is new of its arguments.
    fn report_name(&mut self, was_certain: bool) {
        let ParserState::Call(call) = &mut self.state else { return };
        if call.is_certain() && !was_certain {
            let (id, name) = (call.id().map(str::to_owned), call.name().to_owned());
            self.ready.push(ReplyPiece::ToolCallStart { id, name });
        }
        let piece = call.take_piece();
        self.emit_piece(&piece);
    }

    /// Parses the rest of a part after `bytes` bytes.
    fn read_rest(&mut self, part: ReplyPart<'_>, bytes: usize) {
        let rest = &part.as_str()[bytes..];
        if !rest.is_empty() {
            self.read(ReplyPart::Text(rest));
        }
    }

    /// Reports the call as complete.
    fn whole(&mut self) {
        let next = ParserState::TextStart { after_tag: true };
        if let ParserState::Call(call) = std::mem::replace(&mut self.state, next) {
            self.widen_gap(&call);
            self.ready.push(ReplyPiece::ToolCall(call.understood()));
        }
    }

    /// Turns what was parsed as a call into text, or into thinking.
    fn no_call(&mut self) {
        let ParserState::Call(mut call) = std::mem::replace(&mut self.state, ParserState::Text) else { return };
        if call.in_thinking {
            self.state = ParserState::Thinking;
        }
        let rest = call.take_rest();
        self.read_text(&call.with_blanks());
        self.reread(rest);
    }

    /// Reads again what came after a call may have ended, once it is known that it had.
    fn reread(&mut self, rest: Option<Vec<OwnedPart>>) {
        self.rereads += usize::from(rest.is_some());
        let finds_tags = self.rereads <= MAX_REREADS;
        for (tag, text) in rest.into_iter().flatten() {
            let tag = tag.filter(|_| finds_tags);
            self.read(tag.map_or(ReplyPart::Text(&text), |tag| ReplyPart::Tag(tag, self.family.text(tag))));
        }
    }

    /// Reports the call as failed. The reply continues in the state before the call.
    fn failed(&mut self, cut: bool) {
        let ParserState::Call(mut call) =
            std::mem::replace(&mut self.state, ParserState::TextStart { after_tag: true })
        else {
            return;
        };
        if call.in_thinking {
            self.state = ParserState::Thinking;
        }
        self.widen_gap(&call);
        let rest = call.take_rest();
        let cut = cut && rest.is_none();
        self.ready.push(ReplyPiece::ToolCallFailed { text: call.raw().to_owned(), cut });
        self.reread(rest);
    }

    /// Keeps the whitespace before a call in case the answer continues after it.
    fn widen_gap(&mut self, call: &Call) {
        if self.answered && !call.in_thinking {
            self.gap.get_or_insert_default().push_str(call.blanks());
        }
    }

    /// Adds a piece of thinking or of the answer.
    fn emit(&mut self, text: &str) {
        self.answered |= !text.is_empty() && !self.is_thinking();
        match (self.is_thinking(), self.ready.last_mut()) {
            _ if text.is_empty() => {}
            (true, Some(ReplyPiece::Thinking(before))) | (false, Some(ReplyPiece::Text(before))) => {
                before.push_str(text)
            }
            (true, _) => self.ready.push(ReplyPiece::Thinking(text.to_owned())),
            (false, _) => self.ready.push(ReplyPiece::Text(text.to_owned())),
        }
    }

    /// Adds a piece of a call.
    fn emit_piece(&mut self, text: &str) {
        match self.ready.last_mut() {
            _ if text.is_empty() => {}
            Some(ReplyPiece::ToolCallPiece(before)) => before.push_str(text),
            _ => self.ready.push(ReplyPiece::ToolCallPiece(text.to_owned())),
        }
    }
}
