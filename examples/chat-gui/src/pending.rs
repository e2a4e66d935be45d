//! A reply that is being generated.

use crate::conversation::{Asked, Said};
use std::time::Instant;
use wglm::{Event, Message, Stats, ToolCall};

/// The part of a reply that has been generated.
pub struct Pending {
    /// The id of the conversation.
    pub conversation: String,
    /// The messages before it, and how the user asked for it: both are brought back if there is no reply.
    pub said: Said,
    pub asked: Asked,
    pub thinking: String,
    pub text: String,
    pub calls: Vec<ToolCall>,
    /// A call that is not valid, or was cut off, as the model wrote it.
    pub failed_call: Option<String>,
    /// While the prompt is being computed: the number of its tokens that are done, and of all.
    pub prompt: Option<(usize, usize)>,
    /// The number of tokens of the prompt, once it is known.
    sent: Option<usize>,
    /// The statistics, known once the reply has ended.
    pub stats: Option<Stats>,
    pieces: usize,
    /// The time of the first piece.
    since: Option<Instant>,
}

impl Pending {
    /// A reply of which nothing has arrived yet, or the rest of one that begins with `begun`.
    pub fn new(conversation: String, said: Said, asked: Asked, begun: Option<Message>) -> Self {
        let begun = begun.unwrap_or_default();
        Self {
            conversation,
            said,
            asked,
            thinking: begun.reasoning_content.clone().unwrap_or_default(),
            text: begun.text().into_owned(),
            calls: Vec::new(),
            failed_call: None,
            prompt: None,
            sent: None,
            stats: None,
            pieces: 0,
            since: None,
        }
    }

    /// Adds an event.
    pub fn take(&mut self, event: Event) {
        match event {
            Event::Prompt { done, total } => (self.prompt, self.sent) = (Some((done, total)), Some(total)),
            Event::Thinking(piece) => self.piece(&piece, |reply| &mut reply.thinking),
            Event::Text(piece) => self.piece(&piece, |reply| &mut reply.text),
            Event::ToolCall(call) => self.calls.push(call),
            Event::ToolCallFailed { text, .. } => self.failed_call = Some(text),
            Event::Done(stats) => self.stats = Some(stats),
            _ => {}
        }
    }

    fn piece(&mut self, piece: &str, place: fn(&mut Self) -> &mut String) {
        place(self).push_str(piece);
        self.prompt = None;
        self.pieces += 1;
        self.since.get_or_insert_with(Instant::now);
    }

    /// About the number of tokens that the conversation takes so far, once it is known.
    pub fn tokens(&self) -> Option<usize> {
        Some(self.sent? + self.pieces)
    }

    /// Pieces per second. That is about the number of tokens, since nearly every token makes one piece.
    pub fn speed(&self) -> Option<f64> {
        let seconds = self.since?.elapsed().as_secs_f64();
        (self.pieces > 1).then(|| (self.pieces - 1) as f64 / seconds.max(1e-9))
    }
}

#[cfg(test)]
mod tests {
    use super::{Asked, Event, Message, Pending};
    use crate::conversation::Conversation;
    use crate::settings::Settings;

    #[test]
    fn pieces_come_together() {
        let said = Conversation::new(Settings::default()).said();
        let mut reply = Pending::new("id".into(), said.clone(), Asked::Again(1), None);
        assert_eq!(reply.tokens(), None);
        reply.take(Event::Prompt { done: 1, total: 2 });
        assert_eq!((reply.prompt, reply.tokens(), reply.speed()), (Some((1, 2)), Some(2), None));
        for event in [Event::Thinking("Hm".into()), Event::Text("An ".into()), Event::Text("owl".into())] {
            reply.take(event);
        }
        assert_eq!((reply.thinking.as_str(), reply.text.as_str(), reply.prompt), ("Hm", "An owl", None));
        assert!(reply.speed().is_some() && reply.tokens() == Some(5));
        let begun = Message::assistant("An owl").with_reasoning("Hm");
        let mut rest = Pending::new("id".into(), said, Asked::Rest, Some(begun));
        rest.take(Event::Text(" is".into()));
        assert_eq!((rest.thinking.as_str(), rest.text.as_str()), ("Hm", "An owl is"));
    }
}
