//! A conversation, as it is shown and saved.

use crate::settings::Settings;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use wglm::Message;

/// The most letters of a title that is taken from the first message.
const TITLE: usize = 40;

/// A conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Conversation {
    /// The id, which is the stem of the names of its files.
    #[serde(skip)]
    pub id: String,
    /// The version of the file's format.
    pub version: u32,
    /// The title, blank until there is a first message.
    pub title: String,
    pub settings: Settings,
    /// The messages. The system prompt is not among them, but one of the settings.
    pub messages: Vec<Message>,
}

impl Conversation {
    /// The version of the format that is written and read.
    pub const VERSION: u32 = 1;

    /// An empty conversation. Ids increase with time, which is also the order of the list.
    pub fn new(settings: Settings) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64;
        let next = NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| Some(next.max(now) + 1));
        let number = next.map_or(now, |next| next.max(now));
        let id = format!("{number:016}");
        Self { id, version: Self::VERSION, title: String::new(), settings, messages: Vec::new() }
    }

    /// The title in the list.
    pub fn name(&self) -> &str {
        if self.title.is_empty() { "New conversation" } else { &self.title }
    }

    /// Appends a message of the user. The first one becomes the title.
    pub fn ask(&mut self, text: &str) {
        if self.title.is_empty() {
            self.title = title(text);
        }
        self.messages.push(Message::user(text));
    }

    /// The position of the user's last message.
    pub fn last_own(&self) -> Option<usize> {
        self.messages.iter().rposition(|message| message.role == "user")
    }

    /// Removes what was replied to the user's last message, so that it is replied to again. False if there is none.
    pub fn reply_again(&mut self) -> bool {
        let own = self.last_own();
        self.messages.truncate(own.map_or(0, |own| own + 1));
        own.is_some()
    }

    /// Replaces the user's last message, and removes what followed it. A title that was taken from it changes too.
    pub fn ask_instead(&mut self, text: &str) {
        if let Some(own) = self.last_own() {
            if own == 0 && self.title == title(&self.messages[own].text()) {
                self.title.clear();
            }
            self.messages.truncate(own);
        }
        self.ask(text);
    }

    /// What [`bring_back`](Self::bring_back) needs.
    pub fn said(&self) -> Said {
        Said { title: self.title.clone(), messages: self.messages.clone() }
    }

    /// Brings back what was said, because nothing came of what was asked since.
    pub fn bring_back(&mut self, said: Said) {
        (self.title, self.messages) = (said.title, said.messages);
    }
}

/// What was said in a conversation at some time.
#[derive(Debug, Clone, PartialEq)]
pub struct Said {
    title: String,
    messages: Vec<Message>,
}

/// The beginning of a text, cut at the end of a word if possible.
fn title(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    let Some((end, _)) = line.char_indices().nth(TITLE) else { return line.to_owned() };
    let start = &line[..end];
    let cut = start.rfind(char::is_whitespace).unwrap_or(end);
    format!("{}…", start[..cut].trim_end())
}

#[cfg(test)]
mod tests {
    use super::{Conversation, Message, Settings, title};

    #[test]
    fn titles_end_between_words() {
        for (text, expected) in [
            ("Why?", "Why?"),
            ("\n  two\nlines", "two"),
            ("Tell me a story about an owl and a mouse in a mill.", "Tell me a story about an owl and a…"),
            (&"ä".repeat(50), &format!("{}…", "ä".repeat(40))),
        ] {
            assert_eq!(title(text), expected);
        }
    }

    #[test]
    fn ids_rise() {
        let ids: Vec<String> = (0..1000).map(|_| Conversation::new(Settings::default()).id).collect();
        assert!(ids.windows(2).all(|two| two[0] < two[1]));
    }

    #[test]
    fn only_the_first_message_gives_the_title() {
        let mut conversation = Conversation::new(Settings::default());
        assert_eq!(conversation.name(), "New conversation");
        conversation.ask("first");
        conversation.ask("second");
        assert_eq!((conversation.name(), conversation.messages.len()), ("first", 2));
    }

    #[test]
    fn the_last_question_is_asked_again_and_otherwise() {
        let texts = |of: &Conversation| of.messages.iter().map(|it| it.text().into_owned()).collect::<Vec<_>>();
        let mut conversation = Conversation::new(Settings::default());
        assert!(!conversation.reply_again());
        conversation.ask("first");
        conversation.messages.push(Message::assistant("An answer."));
        let said = conversation.said();
        assert!(conversation.reply_again());
        assert_eq!(texts(&conversation), ["first"]);
        conversation.bring_back(said);
        conversation.ask_instead("other");
        assert_eq!((conversation.name(), texts(&conversation)), ("other", vec!["other".to_owned()]));
        let said = conversation.said();
        conversation.messages.push(Message::assistant("Another."));
        conversation.ask("second");
        conversation.ask_instead("third");
        assert_eq!(texts(&conversation), ["other", "Another.", "third"]);
        assert_eq!(conversation.name(), "other", "only the first message gives the title");
        conversation.bring_back(said);
        conversation.title = "mine".into();
        conversation.ask_instead("last");
        assert_eq!(conversation.name(), "mine", "a title that the user gave stays");
    }
}
