//! Tests replies of the demonstration model: sampling, ends, streams, and functions that they call.

mod adjusting;
mod calling;
mod cancelling;
#[cfg(feature = "constrain")]
mod constraining;
mod echoing;
mod losing;
mod messages;
mod resuming;
mod script;
mod steering;
mod stopping;
#[cfg(feature = "stream")]
mod streaming;

use crate::common::models::fable_file;
use crate::common::{chats, gpu::gpu};
use std::sync::OnceLock;
use wglm::{Arithmetic, Chat, Event, Gguf, LoadOptions, Message, Model, Result, Stats, Stop};

/// A context that suffices for every conversation here.
const CONTEXT: usize = 768;
/// A question whose answer is long.
const OWL: &str = "Tell me a story about an owl.";

/// The demonstration model with f32 arithmetic, loaded once.
fn model() -> &'static Model {
    static MODEL: OnceLock<Model> = OnceLock::new();
    MODEL.get_or_init(|| {
        let arithmetic = Some(Arithmetic::Float);
        let options = LoadOptions { context: Some(CONTEXT), arithmetic, ..LoadOptions::default() };
        Model::load(&Gguf::open(fable_file("q4_0")).unwrap(), gpu(), &options).unwrap()
    })
}

/// A greedy conversation without thinking.
fn chat() -> Chat {
    chats::greedy(model())
}

/// The question [`OWL`] and its whole answer in a [`chat`], generated once.
fn story() -> &'static [Message] {
    static STORY: OnceLock<Vec<Message>> = OnceLock::new();
    STORY.get_or_init(|| {
        let mut chat = chat();
        assert_eq!(told(chat.send(OWL).unwrap()).1.stop, Stop::End);
        chat.take_messages()
    })
}

/// All events of a reply except those of the prompt and the end, and the statistics.
fn told(events: impl Iterator<Item = Result<Event>>) -> (Vec<Event>, Stats) {
    let mut events: Vec<Event> = events.map(Result::unwrap).collect();
    let Some(Event::Done(stats)) = events.pop() else { panic!("no `Done`: {events:?}") };
    events.retain(|event| !matches!(event, Event::Prompt { .. }));
    (events, stats)
}

/// The text of the answer.
fn text(events: &[Event]) -> String {
    events.iter().filter_map(|event| if let Event::Text(text) = event { Some(text.as_str()) } else { None }).collect()
}
