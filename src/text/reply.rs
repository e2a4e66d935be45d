//! Separates what the model thinks from what it answers.
//!
//! A reply is at most a block of thinking, closed by `</think>`, and then the answer. Guaranteed: the
//! pieces do not depend on how the text was cut on its way here; no part of a tag is ever handed out as
//! text; nothing else is lost but blanks next to a tag at the answer's start. Tags count only up to the
//! answer's first letter, so that an answer may write about them.

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// A piece of a reply; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Thinking, as the model wrote it.
    Thinking(String),
    /// The answer.
    Text(String),
}

/// Whether a rendered prompt ends inside a thinking block, so that the reply starts there.
pub fn opens_thinking(prompt: &str) -> bool {
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
    /// Text whose meaning is still open: blanks at a start, or the start of what may be a tag.
    held: String,
}

impl ReplyParser {
    /// A parser for a reply to a prompt that ended inside thinking or not: see [`opens_thinking`].
    pub fn new(starts_in_thinking: bool) -> Self {
        let state = if starts_in_thinking { State::ThinkingStart } else { State::TextStart { after_tag: false } };
        Self { state, held: String::new() }
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

    /// What is still held at the end of the reply: the start of a tag that never came is text after all.
    /// Ready for a further part of the same reply afterwards.
    pub fn finish(&mut self) -> Vec<Piece> {
        let mut pieces = Vec::new();
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
        let sure = closed.unwrap_or(self.held.len() - tag_start(&self.held));
        let thinking: String = self.held.drain(..sure).collect();
        self.emit(thinking, pieces);
        if closed.is_some() {
            self.held.drain(..CLOSE.len());
            self.state = State::TextStart { after_tag: true };
        }
        closed.is_some()
    }

    fn emit(&self, text: String, pieces: &mut Vec<Piece>) {
        if !text.is_empty() {
            pieces.push(if self.is_thinking() { Piece::Thinking(text) } else { Piece::Text(text) });
        }
    }
}

/// Bytes at the end of `text` that may be the start of the closing tag.
fn tag_start(text: &str) -> usize {
    (1..CLOSE.len()).rev().find(|&len| text.ends_with(&CLOSE[..len])).unwrap_or(0)
}
