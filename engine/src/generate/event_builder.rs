//! Turns generated tokens into events: tokens become bytes and then characters, a parser separates thinking, answer and
//! calls, and stop strings end the answer.

use super::Event;
use crate::error::Result;
use crate::model::Model;
use crate::text::{Detokenizer, ReplyParser, ReplyPiece, ReplyPosition, StopStrings, Tokenizer};
use std::collections::VecDeque;

/// The queue of a generation's events, and the state of everything that makes them.
#[derive(Clone)]
pub struct EventBuilder {
    detokenizer: Detokenizer,
    parser: Option<ReplyParser>,
    stops: StopStrings,
    ready: VecDeque<Event>,
}

impl EventBuilder {
    pub fn new(model: &Model, parser: Option<ReplyParser>, stop: Vec<String>) -> Self {
        let parser = match model.tokenizer() {
            Ok(tokenizer) => parser.map(|parser| parser.with_tokenizer(tokenizer)),
            Err(_) => parser,
        };
        let (stops, ready) = (StopStrings::new(stop), VecDeque::new());
        Self { detokenizer: Detokenizer::new(false), parser, stops, ready }
    }

    /// The same builder with other stop strings.
    pub fn with_stop_strings(self, stop: Vec<String>) -> Self {
        Self { stops: StopStrings::new(stop), ..self }
    }

    /// Removes the next event.
    pub fn pop(&mut self) -> Option<Event> {
        self.ready.pop_front()
    }

    /// Appends an event.
    pub fn push(&mut self, event: Event) {
        self.ready.push_back(event);
    }

    /// Whether a stop string appeared.
    pub fn stopped(&self) -> bool {
        self.stops.found()
    }

    /// The stop string that appeared, as an index into those of the options.
    pub fn stop_string(&self) -> Option<usize> {
        self.stops.found_index()
    }

    /// The parser.
    #[cfg(feature = "constrain")]
    pub fn parser(&self) -> Option<&ReplyParser> {
        self.parser.as_ref()
    }

    /// Where the reply is now: in the answer if nothing is parsed.
    pub fn position(&self) -> ReplyPosition {
        self.parser.as_ref().map_or(ReplyPosition::Answer, ReplyParser::position)
    }

    /// Whether the reply may have calls.
    pub fn looks_for_calls(&self) -> bool {
        self.parser.as_ref().is_some_and(ReplyParser::looks_for_calls)
    }

    /// Looks for no calls from here on, and bans the tokens that open them.
    #[cfg(feature = "constrain")]
    pub fn forbid_calls(&mut self, biases: &mut Vec<(u32, f32)>) {
        if let Some(parser) = self.parser.take_if(|parser| !parser.tools().is_empty()) {
            let opening = parser.opening_tokens();
            biases.retain(|(token, _)| !opening.contains(token));
            biases.extend(opening.iter().map(|token| (*token, f32::NEG_INFINITY)));
            self.parser = Some(parser.with_tools(&[]));
        }
    }

    /// Whether the parser ended the reply.
    pub fn ended(&self) -> bool {
        self.parser.as_ref().is_some_and(ReplyParser::has_ended)
    }

    /// Whether the parser takes a token as a tag.
    pub fn is_tag(&self, token: u32) -> bool {
        self.parser.as_ref().is_some_and(|parser| parser.is_tag(token))
    }

    /// Appends the events that a token completes.
    pub fn token(&mut self, tokenizer: &Tokenizer, token: u32) -> Result<()> {
        if self.is_tag(token) {
            self.close_text();
            let pieces = self.parser.as_mut().map(|parser| parser.push_tag(token));
            pieces.into_iter().flatten().for_each(|piece| self.piece(piece));
        } else {
            let text = self.detokenizer.push(tokenizer, token)?.to_owned();
            self.text(text);
        }
        Ok(())
    }

    /// Adds an incomplete character at the end of the text as U+FFFD.
    fn close_text(&mut self) {
        let rest = self.detokenizer.finish().to_owned();
        self.text(rest);
    }

    /// Ends the reply: appends the events of all text that was held back. The model did not end a reply that is `cut`.
    pub fn finish(&mut self, cut: bool) {
        self.close_text();
        let pieces = self.parser.as_mut().map(|parser| parser.finish_as(cut));
        pieces.into_iter().flatten().for_each(|piece| self.piece(piece));
        self.flush();
    }

    fn text(&mut self, text: String) {
        match &mut self.parser {
            Some(parser) => parser.push(&text).into_iter().for_each(|piece| self.piece(piece)),
            None => self.piece(ReplyPiece::Text(text)),
        }
    }

    fn piece(&mut self, piece: ReplyPiece) {
        if self.stops.found() {
            return;
        }
        match piece {
            ReplyPiece::Text(text) => {
                let text = self.stops.push(&text);
                self.answer(text);
            }
            ReplyPiece::Thinking(text) => self.aside(Event::Thinking(text)),
            ReplyPiece::ToolCallStart { id, name } => self.aside(Event::ToolCallStart { id, name }),
            ReplyPiece::ToolCallPiece(text) => self.aside(Event::ToolCallPiece(text)),
            ReplyPiece::ToolCall(call) => self.aside(Event::ToolCall(call)),
            ReplyPiece::ToolCallFailed { text, cut } => self.aside(Event::ToolCallFailed { text, cut }),
        }
    }

    /// Appends an event that no stop string spans.
    fn aside(&mut self, event: Event) {
        self.flush();
        self.push(event);
    }

    /// Appends the text that was held back because a stop string might have begun.
    fn flush(&mut self) {
        let text = self.stops.flush();
        self.answer(text);
    }

    fn answer(&mut self, text: String) {
        if !text.is_empty() {
            self.push(Event::Text(text));
        }
    }
}
