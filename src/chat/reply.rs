//! A reply on its way, and the message that it becomes.

use super::draft::Draft;
use crate::error::Result;
use crate::generate::{Cancel, Chooser, Event, Generation};
use crate::text::Message;

/// A reply on its way: an iterator of events.
pub struct Reply<'a> {
    generation: Generation<'a>,
    messages: &'a mut Vec<Message>,
    draft: Draft,
    /// Whether the last message is the reply's beginning.
    resumed: bool,
    /// Whether anything has come.
    begun: bool,
}

impl<'a> Reply<'a> {
    pub(super) fn new(generation: Generation<'a>, messages: &'a mut Vec<Message>) -> Self {
        Self { generation, messages, draft: Draft::default(), resumed: false, begun: false }
    }

    /// The rest of a reply, which joins the last message or becomes one.
    pub(super) fn resumed(
        generation: Generation<'a>,
        messages: &'a mut Vec<Message>,
        draft: Draft,
        resumed: bool,
    ) -> Self {
        Self { generation, messages, draft, resumed, begun: false }
    }

    /// The same reply, which `cancel` stops: also if that was asked before. Whoever asks the question makes it, before
    /// the question goes on its way to the thread that generates.
    pub fn with_cancel(mut self, cancel: &Cancel) -> Self {
        self.generation.set_cancel(cancel);
        self
    }

    /// The same reply, whose tokens `chooser` has a say in. What it leaves to the usual sampling is drawn on the host:
    /// with the same seed other tokens than on the GPU.
    pub fn with_chooser(mut self, chooser: impl Chooser + Send + 'a) -> Self {
        self.generation.set_chooser(Box::new(chooser));
        self
    }

    /// The conversation's messages, without this reply; one that is resumed is there as it was.
    pub fn messages(&self) -> &[Message] {
        self.messages
    }

    /// What stops this reply, from any thread.
    pub fn cancel(&self) -> Cancel {
        self.generation.cancel()
    }

    /// An id that no call of the conversation has.
    fn new_id(&self) -> String {
        let calls = self.messages.iter().flat_map(|message| &message.tool_calls).chain(&self.draft.calls);
        let taken: Vec<&str> = calls.filter_map(|call| call.id.as_deref()).collect();
        let mut ids = (taken.len()..).map(|number| format!("call_{number}"));
        ids.find(|id| !taken.contains(&id.as_str())).unwrap_or_default()
    }

    fn note(&mut self, event: &mut Event) {
        if let Event::ToolCall(call) = event {
            call.id = Some(self.new_id());
        }
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
