//! A reply that is being generated, and how it becomes a message of the conversation.

use super::call_ids::CallIds;
use super::draft::Draft;
use crate::cancel::Cancel;
use crate::error::Result;
use crate::generate::{Chooser, Event, Generation};
use crate::model::Model;
use crate::text::Message;

/// A reply that is being generated: an iterator of events. When it is dropped, whatever was generated is appended to
/// the conversation's messages. If the device is lost, it can continue on another one: [`Reply::move_to`].
pub struct Reply<'a> {
    generation: Generation<'a>,
    messages: &'a mut Vec<Message>,
    draft: Draft,
    ids: CallIds,
    /// Whether the last message of the conversation is the beginning of this reply.
    resumed: bool,
    /// Whether any part of the message was generated.
    begun: bool,
}

impl<'a> Reply<'a> {
    /// A reply whose calls get these ids.
    pub(super) fn new(generation: Generation<'a>, messages: &'a mut Vec<Message>, ids: CallIds) -> Self {
        Self { generation, messages, draft: Draft::default(), ids, resumed: false, begun: false }
    }

    /// The rest of a reply whose beginning is `draft`. It replaces the last message if `resumed`, and otherwise becomes
    /// a new one.
    pub(super) fn resumed(
        generation: Generation<'a>,
        messages: &'a mut Vec<Message>,
        draft: Draft,
        resumed: bool,
    ) -> Self {
        let ids = CallIds::after(messages, &draft.calls);
        Self { generation, messages, draft, ids, resumed, begun: false }
    }

    /// Lets `cancel` stop this reply, even if it was cancelled before this call. The thread that asks for the reply can
    /// therefore create the [`Cancel`] before it hands the request to the thread that generates.
    pub fn with_cancel(mut self, cancel: &Cancel) -> Self {
        self.generation.set_cancel(cancel);
        self
    }

    /// Lets `chooser` take part in the choice of this reply's tokens. Tokens that it leaves to the sampler are then
    /// drawn on the host, so a seed gives different tokens than without a chooser, when they are drawn on the GPU.
    pub fn with_chooser(mut self, chooser: impl Chooser + Send + 'a) -> Self {
        self.generation.set_chooser(Box::new(chooser));
        self
    }

    /// Continues the reply, and the conversation, on another device after
    /// [`Error::DeviceLost`](crate::Error::DeviceLost): see [`Generation::move_to`].
    ///
    /// # Errors
    /// See [`Generation::move_to`].
    pub fn move_to(&mut self, model: &Model) -> Result<()> {
        self.generation.move_to(model)
    }

    /// The messages of the conversation without this reply. If the reply is resumed, they include its beginning,
    /// unchanged.
    pub fn messages(&self) -> &[Message] {
        self.messages
    }

    /// A handle that stops this reply from any thread.
    pub fn cancel(&self) -> Cancel {
        self.generation.cancel()
    }

    /// Adds an event to the draft, and gives a call its id.
    fn note(&mut self, event: &mut Event) {
        self.ids.give(event);
        self.begun |= self.draft.add(event);
    }
}

impl Iterator for Reply<'_> {
    type Item = Result<Event>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut event = self.generation.next();
        if let Some(Ok(event)) = &mut event {
            self.note(event);
        }
        event
    }
}

impl std::fmt::Debug for Reply<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reply").field("draft", &self.draft).finish_non_exhaustive()
    }
}

impl Drop for Reply<'_> {
    fn drop(&mut self) {
        if !self.begun {
            return;
        }
        let draft = std::mem::take(&mut self.draft);
        match self.messages.last_mut().filter(|_| self.resumed) {
            Some(message) => draft.write_to(message),
            None => self.messages.push(draft.into_message()),
        }
    }
}
