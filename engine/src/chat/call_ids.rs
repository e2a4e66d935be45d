//! Ids of calls, unique within a conversation.

use crate::generate::Event;
use crate::text::{Message, ToolCall};

/// Gives ids to the calls of a reply.
#[derive(Debug, Clone, Default)]
pub(crate) struct CallIds {
    taken: Vec<String>,
    /// The id of the call that has begun.
    begun: Option<String>,
}

impl CallIds {
    /// For a reply that follows these messages, or continues one that has these calls.
    pub fn after(messages: &[Message], begun: &[ToolCall]) -> Self {
        let calls = messages.iter().flat_map(|message| &message.tool_calls).chain(begun);
        Self { taken: calls.filter_map(|call| call.id.clone()).collect(), begun: None }
    }

    /// Gives the call of an event an id that no other one has: the one that the model wrote, or a number. All events of
    /// a call get the same.
    pub fn give(&mut self, event: &mut Event) {
        match event {
            Event::ToolCallStart { id, .. } => {
                *id = self.unused(id.take());
                self.begun.clone_from(id);
            }
            Event::ToolCall(call) => {
                // A reply that is resumed within a call does not repeat the beginning.
                call.id = self.begun.take().or_else(|| self.unused(call.id.take()));
                self.taken.extend(call.id.clone());
            }
            Event::ToolCallFailed { .. } => self.taken.extend(self.begun.take()),
            _ => {}
        }
    }

    fn unused(&self, written: Option<String>) -> Option<String> {
        let is_taken = |id: &String| self.taken.contains(id);
        let mut numbers = (self.taken.len()..).map(|number| format!("call_{number}"));
        written.filter(|id| !is_taken(id)).or_else(|| numbers.find(|id| !is_taken(id)))
    }
}
