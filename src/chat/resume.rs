//! Going on with a reply that has begun: one that was cut, or whose beginning is the caller's.

use super::draft::Draft;
use super::{Chat, Reply, check};
use crate::error::{Error, Result};
use crate::generate::{Generation, PartialReply};
use crate::text::{Message, ReplyParser, Tokenizer};

/// What ends thinking.
const CLOSE: &str = "</think>";

impl Chat {
    /// Goes on with the last message, the assistant's: one that was cut, by [`Stop::Length`](crate::Stop::Length) or
    /// because it was cancelled, or one that was [pushed](Chat::push) for the model to complete. What comes joins that
    /// message, whose text and calls are whole again; [`max_tokens`](crate::GenerateOptions::max_tokens) counts what is
    /// new. A reply that had ended by itself most likely ends at once.
    ///
    /// If the session still holds the tokens of that message, in this conversation, it goes on with these, and computes
    /// none of them again. Otherwise it reads the message as text: its thinking, and, if it says anything, the end of the
    /// thinking and what it says. Text that was held back at the cut, since a tag might have begun, is told again with
    /// what turns out to follow; a stop string is not found across the cut. A reply that was cut before it said anything,
    /// in its first call say, has no message, and goes on all the same while the session holds it.
    ///
    /// # Errors
    /// [`Error::Argument`] if the last message is not the assistant's, [`Error::Message`] if it calls functions and its
    /// tokens are not in the session any more; otherwise as [`Chat::send`].
    pub fn resume(&mut self) -> Result<Reply<'_>> {
        let beginning = self.beginning(true)?;
        self.go_on(beginning)
    }

    /// The reply to the messages as they are, beginning with a text, which is told in no event and is part of the message
    /// in any case. It is the answer's beginning: there is no thinking before it. (To begin the thinking,
    /// [`push`](Chat::push) a message of the assistant's with nothing but [reasoning](Message::with_reasoning), and
    /// [`resume`](Chat::resume).) A text that ends with a whole word, without a blank, suits how models cut text: blanks at
    /// its ends belong to tags that may stand there, and are dropped or told again with what follows.
    ///
    /// # Errors
    /// As [`Chat::resume`]; the messages are then as they were.
    pub fn prefill(&mut self, text: &str) -> Result<Reply<'_>> {
        self.messages.push(Message::assistant(text));
        match self.beginning(false) {
            Ok(beginning) => self.go_on(beginning),
            Err(error) => {
                self.messages.pop();
                Err(error)
            }
        }
    }

    fn go_on(&mut self, beginning: ResumePoint) -> Result<Reply<'_>> {
        let ResumePoint { prompt, begun, draft, joins } = beginning;
        let generation = Generation::resumed(&mut self.session, prompt, begun, self.options.clone())?;
        Ok(Reply::resumed(generation, &mut self.messages, draft, joins))
    }

    /// What to go on from: what the session holds of the last message, if it may be that, or the message as text.
    fn beginning(&self, held: bool) -> Result<ResumePoint> {
        self.options.check()?;
        check::messages(&self.messages, self.session.model().template()?)?;
        let (last, before) = match self.messages.split_last() {
            Some((last, before)) if last.role == "assistant" => (Some(last), before),
            _ => (None, &self.messages[..]),
        };
        let (prompt, parser) = self.render(before)?;
        if let Some(beginning) = if held { self.held(last, &prompt, &parser)? } else { None } {
            return Ok(beginning);
        }
        let last = last.ok_or_else(|| {
            let found = self.messages.last().map_or("no message".to_owned(), |last| format!("the {}'s", last.role));
            let expected = "the assistant's message at the end".to_owned();
            Error::Argument { argument: "messages", expected, found }
        })?;
        if !last.tool_calls.is_empty() {
            let expected = "none, for their tokens are not in the session any more".to_owned();
            let found = last.tool_calls.len().to_string();
            return Err(Error::Message { index: before.len(), what: "tool calls", expected, found });
        }
        self.read(last, prompt, parser)
    }

    /// The last message as the session holds it, if it does; without one a reply that has said nothing yet.
    fn held(&self, last: Option<&Message>, prompt: &[u32], parser: &ReplyParser) -> Result<Option<ResumePoint>> {
        let held = self.session.tokens();
        let Some(said) = held.strip_prefix(prompt).filter(|said| last.is_some() || !said.is_empty()) else {
            return Ok(None);
        };
        let begun = PartialReply::replay(self.session.model(), parser.clone(), said)?;
        if !Draft::of(&begun.told_at_end()).says(last.unwrap_or(&Message::assistant(""))) {
            return Ok(None);
        }
        let mut draft = Draft::of(begun.told());
        draft.calls = last.map(|last| last.tool_calls.clone()).unwrap_or_default(); // with their ids
        Ok(Some(ResumePoint { prompt: held.to_vec(), begun, draft, joins: last.is_some() }))
    }

    /// The last message as text.
    fn read(&self, last: &Message, mut prompt: Vec<u32>, parser: ReplyParser) -> Result<ResumePoint> {
        let model = self.session.model();
        let said = written(model.tokenizer()?, last, parser.is_thinking())?;
        let begun = PartialReply::replay(model, parser.clone(), &said)?;
        let mut draft = Draft::of(begun.told());
        if !parser.is_thinking() {
            draft.thinking = last.reasoning_content.clone().unwrap_or_default(); // which the prompt has no place for
        }
        prompt.extend(said);
        self.session.check(0, &prompt)?;
        Ok(ResumePoint { prompt, begun, draft, joins: true })
    }
}

/// What a reply goes on from.
struct ResumePoint {
    /// Up to the end of what is said so far.
    prompt: Vec<u32>,
    begun: PartialReply,
    draft: Draft,
    /// Whether the last message is this beginning.
    joins: bool,
}

/// A message as the model would have written it, from inside of thinking or after it.
fn written(tokenizer: &Tokenizer, message: &Message, thinking: bool) -> Result<Vec<u32>> {
    let start = tokenizer.encode("", false)?.len();
    let plain = |text: &str| tokenizer.encode(text, false).map(|tokens| tokens[start..].to_vec());
    let (thought, text) = (message.reasoning_content.as_deref().unwrap_or_default(), message.text());
    let mut tokens = Vec::new();
    if thinking {
        tokens.extend(plain(thought)?);
        if !text.is_empty() {
            tokens.extend(tokenizer.special(CLOSE).map_or_else(|| plain(CLOSE), |token| Ok(vec![token]))?);
        }
    }
    tokens.extend(plain(&text)?);
    Ok(tokens)
}
