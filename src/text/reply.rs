//! Separates what the model thinks from what it answers, and from the functions it calls.
//!
//! A reply is at most a block of thinking, closed by `</think>`, and then the answer. Guaranteed: the
//! pieces do not depend on how the text was cut on its way here; no part of a tag is ever handed out as
//! text; nothing else is lost but blanks next to a tag at the answer's start. Tags count only up to the
//! answer's first letter, so that an answer may write about them.
//!
//! Where the vocabulary has a token for a tag, the token is the tag, and the same letters in other tokens are text; where
//! it has none, letters are the tag.
//!
//! Where there are tools, `<tool_call>` begins a call anywhere in the reply, as [`call`](super::call) reads it, and the
//! blanks around a call in the answer belong to it. It is told from its name on, piece by piece, and in the end whole, or
//! as one that failed. A call in the middle of thinking ends the thinking, for models forget to, but for one that failed.
//! What turns out to be no call before there is a name is text with its tags, or thinking if it stood there. After a call
//! the reply goes on as after `</think>`.

use super::call::{Call, CallProgress};
use super::tag::{self, ReplyPart, Tag};
use super::{Tokenizer, ToolCall};
use serde_json::Value;

/// A piece of a reply; never empty.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ReplyPiece {
    /// Thinking, as the model wrote it.
    Thinking(String),
    /// The answer.
    Text(String),
    /// A call of a function begins.
    ToolCallStart {
        /// The function's name.
        name: String,
    },
    /// A piece of what stands between the name and the end of the call that began, as the model wrote it.
    ToolCallPiece(String),
    /// The call, whole. It has no id yet.
    ToolCall(ToolCall),
    /// The call is none. It has begun, unless the reply ended within its name.
    ToolCallFailed {
        /// All of it, as the model wrote it.
        text: String,
        /// Whether the reply ended before it did; otherwise it has not the form of a call.
        cut: bool,
    },
}

/// Whether a rendered prompt ends inside a thinking block, so that the reply starts there.
pub(super) fn opens_thinking(prompt: &str) -> bool {
    prompt.trim_end().ends_with(Tag::Think.text())
}

#[derive(Debug, Clone)]
enum ParserState {
    /// Inside thinking, before its first letter: some models open the block a second time.
    ThinkingStart,
    Thinking,
    /// Outside thinking, before the answer's first letter. `after_tag`: blanks so far belong to a tag.
    TextStart {
        after_tag: bool,
    },
    Text,
    /// Inside of what may be a call.
    Call(Box<Call>),
}

/// Takes a reply as text arrives and hands out pieces as soon as their kind is certain.
#[derive(Debug, Clone)]
pub struct ReplyParser {
    state: ParserState,
    /// Blanks whose meaning is still open: those at a start, or before what may be a call.
    blanks: String,
    /// Text that may be the start of a tag.
    open: String,
    /// The tokens that are tags.
    tokens: Vec<(u32, Tag)>,
    /// The functions that may be called; calls are looked for if there are any.
    tools: Vec<Value>,
    ready: Vec<ReplyPiece>,
}

impl ReplyParser {
    /// A parser for a reply to a prompt that ended inside thinking or not: see
    /// [`Prompt::opens_thinking`](super::Prompt::opens_thinking). Tags are told by their letters.
    pub fn new(starts_in_thinking: bool) -> Self {
        let state =
            if starts_in_thinking { ParserState::ThinkingStart } else { ParserState::TextStart { after_tag: false } };
        let (blanks, open, tokens, tools, ready) = Default::default();
        Self { state, blanks, open, tokens, tools, ready }
    }

    /// The same parser with an eye to calls of functions, described in OpenAI's JSON; of none if there are none.
    pub fn with_tools(self, tools: &[Value]) -> Self {
        Self { tools: tools.to_vec(), ..self }
    }

    /// The same parser for replies in a vocabulary's tokens: a tag that has one there is told by it, and no longer by its
    /// letters. [`Generation`](crate::generate::Generation) sees to that itself.
    pub fn with_tokenizer(self, tokenizer: &Tokenizer) -> Self {
        let token = |&tag: &Tag| Some((tokenizer.special(tag.text())?, tag));
        Self { tokens: Tag::ALL.iter().filter_map(token).collect(), ..self }
    }

    /// Whether the reply is inside thinking now.
    pub fn is_thinking(&self) -> bool {
        match &self.state {
            ParserState::ThinkingStart | ParserState::Thinking => true,
            ParserState::Call(call) => call.in_thinking && !call.is_certain(),
            ParserState::TextStart { .. } | ParserState::Text => false,
        }
    }

    /// Whether a token is a tag to this reply: then [`push_tag`](Self::push_tag) takes it, even where the vocabulary
    /// hides it from readers, and otherwise [`push`](Self::push) its text.
    pub fn is_tag(&self, token: u32) -> bool {
        self.tag(token).is_some()
    }

    fn tag(&self, token: u32) -> Option<Tag> {
        let known = self.tokens.iter().find(|(known, _)| *known == token);
        known.map(|(_, tag)| *tag).filter(|tag| !tag.is_of_call() || self.looks_for_calls())
    }

    /// The pieces that `text` completes.
    pub fn push(&mut self, text: &str) -> Vec<ReplyPiece> {
        self.open.push_str(text);
        while self.step() {}
        std::mem::take(&mut self.ready)
    }

    /// The pieces that a tag completes, by its token; none if the token is [no tag](Self::is_tag).
    pub fn push_tag(&mut self, token: u32) -> Vec<ReplyPiece> {
        if let Some(tag) = self.tag(token) {
            self.close_text();
            self.read(ReplyPart::Tag(tag));
        }
        std::mem::take(&mut self.ready)
    }

    /// What is still held at the end of the reply: the start of a tag that never came is text after all, and a call that
    /// has not ended failed. Ready for a further part of the same reply afterwards.
    pub fn finish(&mut self) -> Vec<ReplyPiece> {
        self.finish_call();
        self.close_text();
        if let ParserState::Call(_) = self.state {
            self.no_call();
        }
        let blanks = std::mem::take(&mut self.blanks);
        if !matches!(self.state, ParserState::TextStart { after_tag: true }) {
            self.emit(&blanks);
        }
        std::mem::take(&mut self.ready)
    }

    /// Ends a call that has a name, with what might have been the start of its next tag.
    fn finish_call(&mut self) {
        let ParserState::Call(call) = &mut self.state else { return };
        if !call.name().is_empty() {
            let open = std::mem::take(&mut self.open);
            call.cut(&open);
            if call.is_certain() {
                self.emit_piece(&open);
            }
            self.failed(true);
        }
    }

    /// Reads what is there, up to a tag or the start of one; false when more text is needed.
    fn step(&mut self) -> bool {
        let tags = self.spelled();
        let found = tag::first(&self.open, &tags);
        let sure = found.map_or_else(|| self.open.len() - tag::begun(&self.open, &tags), |(place, _)| place);
        let text: String = self.open.drain(..sure).collect();
        self.read(ReplyPart::Text(&text));
        if let Some((_, tag)) = found {
            self.open.drain(..tag.text().len());
            self.read(ReplyPart::Tag(tag));
        }
        sure > 0 || found.is_some()
    }

    /// Reads what might have been the start of a tag as text.
    fn close_text(&mut self) {
        let text = std::mem::take(&mut self.open);
        self.read(ReplyPart::Text(&text));
    }

    /// The tags that letters are now.
    fn spelled(&self) -> Vec<Tag> {
        let counts = |tag: &Tag| match (&self.state, tag) {
            (ParserState::Call(_), _) => *tag != Tag::Think,
            (_, Tag::Call) => self.looks_for_calls(),
            (ParserState::ThinkingStart | ParserState::TextStart { .. }, Tag::Think) => true,
            (state, Tag::ThinkEnd) => !matches!(state, ParserState::Text),
            _ => false,
        };
        let is_token = |tag: &Tag| self.tokens.iter().any(|(_, known)| known == tag);
        Tag::ALL.into_iter().filter(|tag| counts(tag) && !is_token(tag)).collect()
    }

    fn looks_for_calls(&self) -> bool {
        !self.tools.is_empty()
    }

    fn read(&mut self, part: ReplyPart<'_>) {
        match (&self.state, part) {
            (ParserState::Call(_), _) => self.read_call(part),
            (_, ReplyPart::Text(text)) => self.read_text(text),
            (ParserState::ThinkingStart | ParserState::TextStart { .. }, ReplyPart::Tag(Tag::Think)) => {
                self.blanks.clear();
                self.state = ParserState::Thinking;
            }
            (
                ParserState::ThinkingStart | ParserState::Thinking | ParserState::TextStart { .. },
                ReplyPart::Tag(Tag::ThinkEnd),
            ) => {
                let blanks = std::mem::take(&mut self.blanks);
                if self.is_thinking() {
                    self.emit(&blanks);
                }
                self.state = ParserState::TextStart { after_tag: true };
            }
            (_, ReplyPart::Tag(Tag::Call)) if self.looks_for_calls() => self.begin_call(),
            (_, ReplyPart::Tag(tag)) => self.read_text(tag.text()),
        }
    }

    /// Text outside of calls.
    fn read_text(&mut self, text: &str) {
        self.blanks += text;
        let body = match self.state {
            ParserState::ThinkingStart => ParserState::Thinking,
            ParserState::TextStart { .. } => ParserState::Text,
            _ => return self.emit_body(),
        };
        let letters = self.blanks.trim_start();
        if !letters.is_empty() {
            if matches!(self.state, ParserState::TextStart { after_tag: true }) {
                self.blanks = letters.to_owned();
            }
            self.state = body;
            self.emit_body();
        }
    }

    /// Hands out what came behind the first letter; of an answer not the blanks at its end, which may belong to a call.
    fn emit_body(&mut self) {
        let mut text = std::mem::take(&mut self.blanks);
        if self.looks_for_calls() && !self.is_thinking() {
            self.blanks = text.split_off(text.trim_end().len());
        }
        self.emit(&text);
    }

    fn begin_call(&mut self) {
        let (mut blanks, in_thinking) = (std::mem::take(&mut self.blanks), self.is_thinking());
        if in_thinking {
            self.emit(&blanks);
        }
        if in_thinking || matches!(self.state, ParserState::TextStart { after_tag: true }) {
            blanks.clear();
        }
        self.state = ParserState::Call(Box::new(Call::new(blanks, in_thinking)));
    }

    /// A part of what may be a call.
    fn read_call(&mut self, part: ReplyPart<'_>) {
        let ParserState::Call(call) = &mut self.state else { return };
        let was_certain = call.is_certain();
        let progress = call.read(part);
        if call.is_certain() && !was_certain {
            self.ready.push(ReplyPiece::ToolCallStart { name: call.name().to_owned() });
        }
        match progress {
            CallProgress::More if call.is_certain() => self.emit_piece(part.as_str()),
            CallProgress::More => {}
            CallProgress::Whole => {
                self.ready.push(ReplyPiece::ToolCall(call.understood(&self.tools)));
                self.state = ParserState::TextStart { after_tag: true };
            }
            CallProgress::Failed => self.failed(false),
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

    /// What was read as a call is text, or thinking.
    fn no_call(&mut self) {
        let ParserState::Call(call) = std::mem::replace(&mut self.state, ParserState::Text) else { return };
        if call.in_thinking {
            self.state = ParserState::Thinking;
        }
        self.read_text(&call.with_blanks());
    }

    /// The call has failed, and the reply goes on as before it.
    fn failed(&mut self, cut: bool) {
        let ParserState::Call(call) = std::mem::replace(&mut self.state, ParserState::TextStart { after_tag: true })
        else {
            return;
        };
        if call.in_thinking {
            self.state = ParserState::Thinking;
        }
        self.ready.push(ReplyPiece::ToolCallFailed { text: call.raw().to_owned(), cut });
    }

    /// Hands out thinking or answer.
    fn emit(&mut self, text: &str) {
        match (self.is_thinking(), self.ready.last_mut()) {
            _ if text.is_empty() => {}
            (true, Some(ReplyPiece::Thinking(before))) | (false, Some(ReplyPiece::Text(before))) => {
                before.push_str(text)
            }
            (true, _) => self.ready.push(ReplyPiece::Thinking(text.to_owned())),
            (false, _) => self.ready.push(ReplyPiece::Text(text.to_owned())),
        }
    }

    /// Hands out a part of a call.
    fn emit_piece(&mut self, text: &str) {
        match self.ready.last_mut() {
            _ if text.is_empty() => {}
            Some(ReplyPiece::ToolCallPiece(before)) => before.push_str(text),
            _ => self.ready.push(ReplyPiece::ToolCallPiece(text.to_owned())),
        }
    }
}
