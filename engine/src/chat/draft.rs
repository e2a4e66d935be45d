//! The message that a reply becomes, built up event by event.

use crate::generate::Event;
use crate::text::{Message, ToolCall};

/// The part of an assistant's message that has been generated so far.
#[derive(Debug, Default)]
pub struct Draft {
    pub thinking: String,
    pub text: String,
    pub calls: Vec<ToolCall>,
}

impl Draft {
    /// The message that `events` add up to.
    pub fn of(events: &[Event]) -> Self {
        let mut draft = Self::default();
        events.iter().for_each(|event| {
            draft.add(event);
        });
        draft
    }

    /// Adds an event. Returns false if the event is not part of the message.
    pub fn add(&mut self, event: &Event) -> bool {
        match event {
            Event::Thinking(piece) => self.thinking.push_str(piece),
            Event::Text(piece) => self.text.push_str(piece),
            Event::ToolCall(call) => self.calls.push(call.clone()),
            _ => return false,
        }
        true
    }

    /// Whether `message` has this content. The ids of calls are not compared.
    pub fn says(&self, message: &Message) -> bool {
        let thinking = message.reasoning_content.as_deref().unwrap_or_default();
        let calls = self.calls.iter().map(|call| &call.function);
        self.thinking == thinking
            && self.text == message.text()
            && calls.eq(message.tool_calls.iter().map(|call| &call.function))
    }

    /// Turns the draft into a message of the assistant.
    pub fn into_message(self) -> Message {
        let mut message = Message::assistant("");
        self.write_to(&mut message);
        message
    }

    /// Replaces the content of `message` by this.
    pub fn write_to(self, message: &mut Message) {
        message.content = Some(self.text.into());
        message.reasoning_content = Some(self.thinking).filter(|thinking| !thinking.is_empty());
        message.tool_calls = self.calls;
    }
}
