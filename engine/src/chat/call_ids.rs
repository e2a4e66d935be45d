//! Ids of calls, unique within a conversation.

use crate::generate::Event;
use crate::text::{Message, ToolCall};
use std::collections::HashSet;

/// Gives ids to the calls of a reply.
#[derive(Debug, Clone, Default)]
pub(crate) struct CallIds {
    taken: HashSet<String>,
    /// All smaller numbers are taken or skipped. Without it, each new id would try the taken numbers again.
    next: usize,
    /// The id of the call that has begun.
    begun: Option<String>,
    /// Makes ids in place of numbers.
    make: Option<fn() -> String>,
}

impl CallIds {
    /// For a reply that follows these messages, or continues one that has these calls.
    pub fn after(messages: &[Message], begun: &[ToolCall]) -> Self {
        let calls = messages.iter().flat_map(|message| &message.tool_calls).chain(begun);
        Self { taken: calls.filter_map(|call| call.id.clone()).collect(), ..Self::default() }
    }

    /// The same with ids that `make` makes, if there is one, for calls to which the model gives none.
    pub fn made_by(self, make: Option<fn() -> String>) -> Self {
        Self { make, ..self }
    }

    /// Gives the call of an event an id that no other one has: the one that the model wrote, one that was made, or a
    /// number. All events of a call get the same.
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

    fn unused(&mut self, written: Option<String>) -> Option<String> {
        let is_unused = |id: &String| !self.taken.contains(id);
        let made = || self.make.map(|make| make()).filter(is_unused);
        if let Some(id) = written.filter(is_unused).or_else(made) {
            return Some(id);
        }
        self.next = self.next.max(self.taken.len());
        loop {
            let id = format!("call_{}", self.next);
            if !self.taken.contains(&id) {
                return Some(id);
            }
            self.next += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::CallIds;
    use crate::generate::Event;
    use crate::text::{Message, ToolCall};

    fn call(id: Option<&str>) -> ToolCall {
        ToolCall { id: id.map(str::to_owned), ..ToolCall::new("owls", Default::default()) }
    }

    /// The ids that calls get if the model wrote these.
    fn given(ids: &mut CallIds, written: &[Option<&str>]) -> Vec<String> {
        let give = |written: &Option<&str>| {
            let mut event = Event::ToolCall(call(*written));
            ids.give(&mut event);
            if let Event::ToolCall(call) = event { call.id.unwrap_or_default() } else { String::new() }
        };
        written.iter().map(give).collect()
    }

    #[test]
    fn ids_are_unique() {
        let messages = [Message::assistant("").with_tool_calls(vec![call(Some("call_1")), call(None)])];
        let mut ids = CallIds::after(&messages, &[call(Some("call_3"))]);
        let written = [None, None, Some("own"), Some("own"), Some("call_1")];
        assert_eq!(given(&mut ids, &written), ["call_2", "call_4", "own", "call_5", "call_6"]);
    }

    /// Ids that are made take the place of numbers, unless they are taken. What the model wrote is kept.
    #[test]
    fn ids_may_be_made() {
        let messages = [Message::assistant("").with_tool_calls(vec![call(Some("call_1"))])];
        let made = || CallIds::after(&messages, &[]).made_by(Some(|| "made".to_owned()));
        assert_eq!(given(&mut made(), &[Some("own"), None, Some("call_1"), None]), ["own", "made", "call_3", "call_4"]);
        let mut ids = made();
        let mut start = Event::ToolCallStart { id: None, name: "owls".to_owned() };
        ids.give(&mut start);
        assert!(matches!(start, Event::ToolCallStart { id: Some(id), .. } if id == "made"));
        assert_eq!(given(&mut ids, &[None]), ["made"], "all events of a call have the same");
    }

    /// Numbers that are taken are tried once, and not again for each new id.
    #[test]
    fn numbers_are_not_tried_again() {
        let taken = (100..200).map(|number| call(Some(&format!("call_{number}")))).collect();
        let mut ids = CallIds::after(&[Message::assistant("").with_tool_calls(taken)], &[]);
        assert_eq!(given(&mut ids, &[None, None]), ["call_200", "call_201"]);
        assert!(ids.next > 200, "{}", ids.next);
    }
}
