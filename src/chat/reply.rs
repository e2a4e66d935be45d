//! A reply on its way, and the message that it becomes.

use crate::error::Result;
use crate::generate::{Cancel, Event, Generation};
use crate::text::{Message, ToolCall};

/// A reply on its way: an iterator of events.
pub struct Reply<'a> {
    generation: Generation<'a>,
    messages: &'a mut Vec<Message>,
    thinking: String,
    text: String,
    calls: Vec<ToolCall>,
}

impl<'a> Reply<'a> {
    pub(super) fn new(generation: Generation<'a>, messages: &'a mut Vec<Message>) -> Self {
        Self { generation, messages, thinking: String::new(), text: String::new(), calls: Vec::new() }
    }

    /// The same reply, which `cancel` stops: also if that was asked before. Whoever asks the question makes it, before
    /// the question goes on its way to the thread that generates.
    pub fn with_cancel(mut self, cancel: &Cancel) -> Self {
        self.generation.set_cancel(cancel);
        self
    }

    /// The conversation's messages, without this reply.
    pub fn messages(&self) -> &[Message] {
        self.messages
    }

    /// What stops this reply, from any thread.
    pub fn cancel(&self) -> Cancel {
        self.generation.cancel()
    }

    /// An id that no call of the conversation has.
    fn new_id(&self) -> String {
        let calls = self.messages.iter().flat_map(|message| &message.tool_calls).chain(&self.calls);
        let taken: Vec<&str> = calls.filter_map(|call| call.id.as_deref()).collect();
        let mut ids = (taken.len()..).map(|number| format!("call_{number}"));
        ids.find(|id| !taken.contains(&id.as_str())).unwrap_or_default()
    }

    fn note(&mut self, event: &mut Event) {
        match event {
            Event::Thinking(piece) => self.thinking.push_str(piece),
            Event::Text(piece) => self.text.push_str(piece),
            Event::ToolCall(call) => {
                call.id = Some(self.new_id());
                self.calls.push(call.clone());
            }
            _ => {}
        }
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
        f.debug_struct("Reply")
            .field("thinking", &self.thinking)
            .field("text", &self.text)
            .field("calls", &self.calls)
            .finish_non_exhaustive()
    }
}

impl Drop for Reply<'_> {
    fn drop(&mut self) {
        let (thinking, text) = (std::mem::take(&mut self.thinking), std::mem::take(&mut self.text));
        let calls = std::mem::take(&mut self.calls);
        if thinking.is_empty() && text.is_empty() && calls.is_empty() {
            return;
        }
        let message = Message::assistant(text).with_tool_calls(calls);
        self.messages.push(if thinking.is_empty() { message } else { message.with_reasoning(thinking) });
    }
}
