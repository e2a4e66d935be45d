//! How many tokens a conversation takes, before it is sent: with its system prompt, all its messages and the typed
//! text, in the form of the chat template.
//!
//! This takes the model's tokenizer, so the worker does it, a moment after the last change and only while it has
//! nothing else to do.

use crate::protocol::Request;
use crate::settings::Settings;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};
use wglm::{Chat, Message};

/// How long nothing has to change before the tokens are counted.
pub const REST: Duration = Duration::from_millis(300);

/// The number of tokens that was counted last, and the request for the next count.
#[derive(Default)]
pub struct Counter {
    /// A hash of the messages and settings that are or will be counted.
    of: u64,
    /// When it is due to be counted, if it was not counted yet.
    due: Option<Instant>,
    /// Whether the worker is counting. It gets one text at a time, since each takes a while.
    counting: bool,
    tokens: Option<usize>,
}

impl Counter {
    /// Notes what is to be counted, as a hash. True if it is time to count it; if not, it will be after at most
    /// [`REST`].
    pub fn is_due(&mut self, of: u64, now: Instant) -> bool {
        if self.of != of {
            (self.of, self.due) = (of, Some(now + REST));
        }
        let due = !self.counting && self.due.take_if(|due| *due <= now).is_some();
        self.counting |= due;
        due
    }

    /// Whether something is still to be counted.
    pub fn waits(&self) -> bool {
        self.due.is_some()
    }

    /// Takes a result.
    pub fn take(&mut self, tokens: Option<usize>) {
        (self.tokens, self.counting) = (tokens, false);
    }

    /// Notes a number of tokens that is known without counting.
    pub fn note(&mut self, tokens: usize) {
        self.tokens = Some(tokens);
    }

    /// The number of tokens, if it is known.
    pub fn tokens(&self) -> Option<usize> {
        self.tokens
    }
}

/// A hash of everything on which the number of tokens depends.
pub fn hash<'a>(model: &str, settings: &Settings, messages: impl Iterator<Item = &'a Message>, typed: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (model, &settings.system, settings.thinking.wanted(), &settings.tools, typed.trim()).hash(&mut hasher);
    for message in messages {
        (&message.role, message.text(), &message.reasoning_content, &message.tool_call_id).hash(&mut hasher);
        for call in &message.tool_calls {
            (&call.id, &call.function.name, call.function.arguments.to_string()).hash(&mut hasher);
        }
    }
    hasher.finish()
}

/// The number of tokens of a request; `None` if its messages cannot become a prompt, which a reply would report.
pub fn tokens(chat: &mut Chat, request: Request) -> Option<usize> {
    let Request { messages, settings, .. } = request;
    let system = Some(settings.system.trim()).filter(|text| !text.is_empty()).map(Message::system);
    chat.set_messages(system.into_iter().chain(messages).collect());
    chat.reasoning = settings.thinking.wanted();
    chat.tools = settings.tools().ok()?;
    if chat.messages().is_empty() {
        return Some(0);
    }
    chat.prompt().ok().map(|tokens| tokens.len())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Chat, Counter, Instant, Message, REST, hash, tokens};
    use crate::protocol::{Place, Request};
    use crate::settings::{Settings, Thinking};
    use std::time::Duration;
    use wglm::{Gguf, Gpu, GpuOptions, LoadOptions, Model, ToolCall};

    fn of(system: &str, message: &str, typed: &str) -> u64 {
        let settings = Settings { system: system.into(), ..Settings::default() };
        hash("model", &settings, [Message::user(message)].iter(), typed)
    }

    #[test]
    fn changes_are_counted_once_they_rest() {
        let (mut counter, start) = (Counter::default(), Instant::now());
        let typed = |typed| of("", "owl", typed);
        assert!(!counter.is_due(typed("a"), start) && counter.waits());
        assert!(!counter.is_due(typed("ab"), start + REST), "it has changed again");
        assert!(counter.is_due(typed("ab"), start + 2 * REST));
        assert!(!counter.waits() && !counter.is_due(typed("ab "), start + 9 * REST), "spaces at the end are not sent");
        assert!(!counter.is_due(typed("abc"), start + 9 * REST));
        assert!(!counter.is_due(typed("abc"), start + 11 * REST) && counter.waits(), "one is being counted");
        counter.take(Some(2));
        assert!(counter.is_due(typed("abc"), start + 11 * REST));
        counter.note(7);
        assert_eq!(counter.tokens(), Some(7), "it is shown until the result arrives");
        counter.take(Some(3));
        assert_eq!(counter.tokens(), Some(3));
        assert_ne!(typed("ab"), of("be brief", "owl", "ab"));
        assert_ne!(typed("ab"), of("", "fox", "ab"));
        assert!(!counter.is_due(typed("c"), start + 12 * REST + Duration::from_millis(1)));
    }

    #[test]
    fn everything_that_is_sent_is_hashed() {
        let of = |thinking, message: Message| {
            let settings = Settings { thinking, ..Settings::default() };
            hash("model", &settings, [message].iter(), "")
        };
        let said = || Message::assistant("owl");
        let call = |name: &str| said().with_tool_calls(vec![ToolCall::new(name, Default::default())]);
        let (usual, off) = (Thinking::Template, Thinking::Off);
        let all = [
            of(usual, said()),
            of(off, said()),
            of(usual, said().with_reasoning("hm")),
            of(usual, call("owls")),
            of(usual, call("mice")),
        ];
        assert!((0..all.len()).all(|at| !all[..at].contains(&all[at])), "{all:?}");
    }

    #[test]
    fn the_count_is_that_of_the_prompt() {
        let gpu = Gpu::open(&GpuOptions::default()).unwrap();
        let file = Gguf::from_static(wglm::DEMO_MODEL).unwrap();
        let mut chat = Chat::new(&Model::load(&file, &gpu, &LoadOptions::default()).unwrap()).unwrap();
        let mut count = |system: &str, texts: &[&str]| {
            let place = Place { id: "a".into(), snapshot: "a.session".into() };
            let settings = Settings { system: system.into(), ..Settings::default() };
            let messages = texts.iter().map(|text| Message::user(*text)).collect();
            tokens(&mut chat, Request { place, messages, settings, rest: false }).unwrap()
        };
        assert_eq!(count("", &[]), 0);
        let (short, long) = (count("", &["An owl."]), count("", &["An owl and a fox."]));
        assert!(short > 3 && long > short && count("Be brief.", &["An owl."]) > short);
        chat.clear();
        let sent = chat.send("An owl.").unwrap().filter_map(Result::ok).find_map(|event| match event {
            wglm::Event::Prompt { total, .. } => Some(total),
            _ => None,
        });
        assert_eq!(sent, Some(short));
    }
}
