//! A reply that has begun and is to be continued.

use super::Event;
use super::event_builder::EventBuilder;
use crate::error::Result;
use crate::model::Model;
use crate::text::{ReplyParser, ReplyPosition};

/// The state of an [`EventBuilder`] after the first tokens of a reply, and the events of these tokens.
pub(crate) struct PartialReply {
    /// The builder of the events that follow.
    pub(super) events: EventBuilder,
    made: Vec<Event>,
    /// The tokens, and where the reply was before each.
    pub(super) tokens: Vec<(u32, ReplyPosition)>,
}

impl PartialReply {
    /// Replays the first tokens of a reply. Stop strings are not looked for in them.
    ///
    /// # Errors
    /// [`Error::TokenOutOfRange`](crate::error::Error::TokenOutOfRange) if a token is not in the vocabulary.
    pub(crate) fn replay(model: &Model, parser: ReplyParser, tokens: &[u32]) -> Result<Self> {
        let mut events = EventBuilder::new(model, Some(parser), Vec::new());
        let tokenizer = model.tokenizer()?;
        let mut read = Vec::with_capacity(tokens.len());
        for token in tokens {
            read.push((*token, events.position()));
            events.token(tokenizer, *token)?;
        }
        let made = std::iter::from_fn(|| events.pop()).collect();
        Ok(Self { events, made, tokens: read })
    }

    /// The events that do not depend on what follows.
    pub(crate) fn events(&self) -> &[Event] {
        &self.made
    }

    /// All events of the reply if it ends here, those of text that was held back included.
    pub(crate) fn events_at_end(&self) -> Vec<Event> {
        let mut events = self.events.clone();
        events.finish(true);
        self.made.iter().cloned().chain(std::iter::from_fn(|| events.pop())).collect()
    }
}
