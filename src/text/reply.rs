//! Separates what the model thinks from what it answers, and from the functions it calls.
//!
//! A reply is at most a block of thinking, closed by `</think>`, and then the answer. Guaranteed: the
//! pieces do not depend on how the text was cut on its way here; no part of a tag is ever handed out as
//! text; nothing else is lost but blanks next to a tag at the answer's start. Tags count only up to the
//! answer's first letter, so that an answer may write about them.
//!
//! Where there are tools, `<tool_call>` begins a call anywhere in the reply, as [`call`](super::call) reads it, and the
//! blanks around a call in the answer belong to it. A call in the middle of thinking ends the thinking, for models
//! forget to. What turns out to be no call, or ends before it is one, is text with its tags, or thinking if it stood
//! there: a caller sees what went wrong, and nothing is lost. After a call the reply goes on as after `</think>`.

use super::ToolCall;
use super::call::{self, NoCall};
use serde_json::Value;

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// A piece of a reply; never empty.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Piece {
    /// Thinking, as the model wrote it.
    Thinking(String),
    /// The answer.
    Text(String),
    /// A call of a function, whole. It has no id yet.
    ToolCall(ToolCall),
}

/// Whether a rendered prompt ends inside a thinking block, so that the reply starts there.
pub(super) fn opens_thinking(prompt: &str) -> bool {
    prompt.trim_end().ends_with(OPEN)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Inside thinking, before its first letter: some models open the block a second time.
    ThinkingStart,
    Thinking,
    /// Outside thinking, before the answer's first letter. `after_tag`: blanks so far belong to a tag.
    TextStart {
        after_tag: bool,
    },
    Text,
}

/// Takes a reply as text arrives and hands out pieces as soon as their kind is certain.
#[derive(Debug, Clone)]
pub struct ReplyParser {
    state: State,
    /// Text whose meaning is still open: blanks at a start, or the start of what may be a tag or a call.
    held: String,
    /// The functions that may be called; calls are looked for if there are any.
    tools: Vec<Value>,
}

impl ReplyParser {
    /// A parser for a reply to a prompt that ended inside thinking or not: see
    /// [`Prompt::opens_thinking`](super::Prompt::opens_thinking).
    pub fn new(starts_in_thinking: bool) -> Self {
        let state = if starts_in_thinking { State::ThinkingStart } else { State::TextStart { after_tag: false } };
        Self { state, held: String::new(), tools: Vec::new() }
    }

    /// The same parser with an eye to calls of functions, described in OpenAI's JSON; of none if there are none.
    pub fn with_tools(self, tools: &[Value]) -> Self {
        Self { tools: tools.to_vec(), ..self }
    }

    /// The tags that mean something in this reply, which are for the parser even where a vocabulary hides them.
    pub fn tags(&self) -> impl Iterator<Item = &'static str> + use<> {
        let calls = if self.tools.is_empty() { &[][..] } else { &call::TAGS };
        [OPEN, CLOSE].into_iter().chain(calls.iter().copied())
    }

    /// Whether the reply is inside thinking now.
    pub fn is_thinking(&self) -> bool {
        matches!(self.state, State::ThinkingStart | State::Thinking)
    }

    /// The pieces that `text` completes.
    pub fn push(&mut self, text: &str) -> Vec<Piece> {
        self.held.push_str(text);
        let mut pieces = Vec::new();
        while self.step(&mut pieces) {}
        pieces
    }

    /// What is still held at the end of the reply: the start of a tag that never came is text after all, and so is a
    /// call that was not closed. Ready for a further part of the same reply afterwards.
    pub fn finish(&mut self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        while self.looks_for_calls() && self.held.trim_start().starts_with(call::OPEN) {
            self.no_call(self.held.len() - self.held.trim_start().len(), &mut pieces);
            while self.step(&mut pieces) {}
        }
        let rest = std::mem::take(&mut self.held);
        if self.state == (State::TextStart { after_tag: true }) {
            self.emit(rest.trim_start().to_owned(), &mut pieces);
        } else {
            self.emit(rest, &mut pieces);
        }
        pieces
    }

    /// Settles the meaning of a part of `held`; false when more text is needed.
    fn step(&mut self, pieces: &mut Vec<Piece>) -> bool {
        match self.state {
            State::ThinkingStart => self.step_start(&[OPEN], State::Thinking, pieces),
            State::TextStart { .. } => self.step_start(&[OPEN, CLOSE], State::Text, pieces),
            State::Thinking => self.step_thinking(pieces),
            State::Text if !self.tools.is_empty() => self.step_calls(pieces),
            State::Text => {
                let text = std::mem::take(&mut self.held);
                self.emit(text, pieces);
                false
            }
        }
    }

    /// Before the first letter: a tag is swallowed with the blanks before it; anything else begins `body`.
    fn step_start(&mut self, tags: &[&str], body: State, pieces: &mut Vec<Piece>) -> bool {
        let letters = self.held.trim_start();
        if let Some(tag) = tags.iter().find(|tag| letters.starts_with(**tag)) {
            let end = self.held.len() - letters.len() + tag.len();
            self.held.drain(..end);
            self.state = if *tag == OPEN { State::Thinking } else { State::TextStart { after_tag: true } };
            return true;
        }
        if tags.iter().any(|tag| tag.starts_with(letters)) {
            return false;
        }
        if self.state == (State::TextStart { after_tag: true }) {
            self.held.drain(..self.held.len() - letters.len());
        }
        self.state = body;
        !self.held.is_empty() && self.step(pieces)
    }

    /// Inside thinking: hands out everything up to the tag, or to what may be its start.
    fn step_thinking(&mut self, pieces: &mut Vec<Piece>) -> bool {
        let closed = self.held.find(CLOSE);
        let call =
            self.held.find(call::OPEN).filter(|call| !self.tools.is_empty() && closed.is_none_or(|end| *call < end));
        if call.is_some() {
            return self.step_calls(pieces);
        }
        let sure = closed.unwrap_or(self.held.len() - tag_start(&self.held, CLOSE).max(self.call_start()));
        let thinking: String = self.held.drain(..sure).collect();
        self.emit(thinking, pieces);
        if closed.is_some() {
            self.held.drain(..CLOSE.len());
            self.state = State::TextStart { after_tag: true };
        }
        closed.is_some()
    }

    /// Inside thinking or the answer: hands out everything up to a call, or to what may be its start, and the call.
    fn step_calls(&mut self, pieces: &mut Vec<Piece>) -> bool {
        let Some(start) = self.held.find(call::OPEN) else {
            self.emit_before(self.held.len() - self.call_start(), pieces);
            return false;
        };
        match call::read(&self.held[start..]) {
            Ok(written) => {
                let (call, bytes) = (written.understood(&self.tools), written.bytes);
                let blanks = self.emit_before(start, pieces);
                self.held.drain(..blanks + bytes);
                pieces.push(Piece::ToolCall(call));
                self.state = State::TextStart { after_tag: true };
                true
            }
            Err(NoCall::Ever) => {
                self.no_call(start, pieces);
                true
            }
            Err(NoCall::Yet) => {
                self.emit_before(start, pieces);
                false
            }
        }
    }

    /// Hands out what stands before a place; of an answer not the blanks at its end, which may belong to a call and
    /// whose bytes are returned.
    fn emit_before(&mut self, place: usize, pieces: &mut Vec<Piece>) -> usize {
        let before = &self.held[..place];
        let sure = if self.is_thinking() { place } else { before.trim_end().len() };
        let text: String = self.held.drain(..sure).collect();
        self.emit(text, pieces);
        place - sure
    }

    /// Hands out the tag at a place, and what stands before it: it begins no call.
    fn no_call(&mut self, start: usize, pieces: &mut Vec<Piece>) {
        let text: String = self.held.drain(..start + call::OPEN.len()).collect();
        self.emit(text, pieces);
    }

    /// Whether a tag that is held may be a call's.
    fn looks_for_calls(&self) -> bool {
        !self.tools.is_empty() && matches!(self.state, State::Text | State::Thinking)
    }

    /// Bytes at the end of what is held that may be the start of a call's tag.
    fn call_start(&self) -> usize {
        if self.tools.is_empty() { 0 } else { tag_start(&self.held, call::OPEN) }
    }

    fn emit(&self, text: String, pieces: &mut Vec<Piece>) {
        if !text.is_empty() {
            pieces.push(if self.is_thinking() { Piece::Thinking(text) } else { Piece::Text(text) });
        }
    }
}

/// Bytes at the end of `text` that may be the start of a tag.
fn tag_start(text: &str, tag: &str) -> usize {
    (1..tag.len()).rev().find(|&len| text.ends_with(&tag[..len])).unwrap_or(0)
}
