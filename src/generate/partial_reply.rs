//! A reply that has begun, to be gone on with.

use super::Event;
use super::event_builder::EventBuilder;
use crate::error::Result;
use crate::model::Model;
use crate::text::ReplyParser;

/// What reads a reply, as far as that has come.
pub(crate) struct PartialReply {
    events: EventBuilder,
    told: Vec<Event>,
}

impl PartialReply {
    /// The reply that some tokens are the beginning of. No stop string is looked for in them.
    ///
    /// # Errors
    /// [`Error::TokenOutOfRange`](crate::error::Error::TokenOutOfRange).
    pub(crate) fn replay(model: &Model, parser: ReplyParser, tokens: &[u32]) -> Result<Self> {
        let mut events = EventBuilder::new(model, Some(parser), Vec::new());
        let tokenizer = model.tokenizer()?;
        tokens.iter().try_for_each(|token| events.token(tokenizer, *token))?;
        let told = std::iter::from_fn(|| events.pop()).collect();
        Ok(Self { events, told })
    }

    /// What is told of it for certain.
    pub(crate) fn told(&self) -> &[Event] {
        &self.told
    }

    /// What is told of it if it ends here.
    pub(crate) fn told_at_end(&self) -> Vec<Event> {
        let mut events = self.events.clone();
        events.finish();
        self.told.iter().cloned().chain(std::iter::from_fn(|| events.pop())).collect()
    }

    /// What reads the rest of it, up to a stop string.
    pub(super) fn go_on(self, stop: Vec<String>) -> EventBuilder {
        self.events.with_stop_strings(stop)
    }
}
