//! Ids of calls, unique within a conversation.

use crate::text::{Message, ToolCall};

/// Gives ids to the calls of a reply.
#[derive(Debug, Clone, Default)]
pub(crate) struct CallIds {
    taken: Vec<String>,
}

impl CallIds {
    /// For a reply that follows these messages, or continues one that has these calls.
    pub fn after(messages: &[Message], begun: &[ToolCall]) -> Self {
        let calls = messages.iter().flat_map(|message| &message.tool_calls).chain(begun);
        Self { taken: calls.filter_map(|call| call.id.clone()).collect() }
    }

    /// Gives a call an id that no other one has: the one that the model wrote, or a number.
    pub fn give(&mut self, call: &mut ToolCall) {
        let is_taken = |id: &String| self.taken.contains(id);
        let mut numbers = (self.taken.len()..).map(|number| format!("call_{number}"));
        let id = call.id.take().filter(|id| !is_taken(id)).or_else(|| numbers.find(|id| !is_taken(id)));
        self.taken.extend(id.clone());
        call.id = id;
    }
}
