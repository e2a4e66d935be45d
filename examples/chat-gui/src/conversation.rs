//! A conversation, as it is shown and saved.

use crate::settings::Settings;
use crate::tree::Tree;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use wglm::{Message, Stop, ToolCall};

/// The most letters of a title that is taken from the first message.
const TITLE: usize = 40;

/// A conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Stored")]
pub struct Conversation {
    /// The id, which is the stem of the names of its files.
    #[serde(skip)]
    pub id: String,
    /// The version of the file's format.
    version: u32,
    /// The title, blank until there is a first message.
    pub title: String,
    pub settings: Settings,
    /// The messages. The system prompt is not among them, but one of the settings.
    pub tree: Tree,
}

/// A conversation as it is read from a file. Files of version 1 have a list of messages, without versions of them.
#[derive(Deserialize)]
struct Stored {
    version: u32,
    #[serde(default)]
    title: String,
    #[serde(default)]
    settings: Settings,
    #[serde(default)]
    messages: Vec<Message>,
    #[serde(default)]
    tree: Tree,
}

impl TryFrom<Stored> for Conversation {
    type Error = String;

    fn try_from(Stored { version, title, settings, messages, tree }: Stored) -> Result<Self, String> {
        let tree = match version {
            1 => messages.into_iter().collect(),
            Self::VERSION => tree,
            _ => return Err(format!("expected version 1 to {}, found {version}", Self::VERSION)),
        };
        Ok(Self { id: String::new(), version: Self::VERSION, title, settings, tree })
    }
}

impl Conversation {
    /// The version of the format that is written.
    const VERSION: u32 = 2;

    /// An empty conversation. Ids increase with time, which is also the order of the list.
    pub fn new(settings: Settings) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64;
        let next = NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| Some(next.max(now) + 1));
        let number = next.map_or(now, |next| next.max(now));
        let id = format!("{number:016}");
        Self { id, version: Self::VERSION, title: String::new(), settings, tree: Tree::default() }
    }

    /// The title in the list.
    pub fn name(&self) -> &str {
        if self.title.is_empty() { "New conversation" } else { &self.title }
    }

    /// Whether there are no messages.
    pub fn is_empty(&self) -> bool {
        self.tree.is_empty()
    }

    /// Appends a user message. The first one becomes the title.
    pub fn ask(&mut self, text: &str) {
        if self.title.is_empty() {
            self.title = title(text);
        }
        self.tree.push(Message::user(text), None);
    }

    /// Changes the shown messages to those before the reply, and returns the messages for the model. `None` if there is
    /// nothing to reply to. The beginning of a reply that is to be continued is not shown meanwhile, but is returned.
    pub fn begin_reply(&mut self, asked: &Asked) -> Option<Vec<Message>> {
        match asked {
            Asked::New(text) => self.ask(text),
            Asked::Edited(position, text) => self.ask_instead(*position, text),
            Asked::Again(position) if self.can_reply(*position) => self.tree.end_at(*position),
            Asked::Again(_) => return None,
            Asked::Rest => {
                let messages = self.tree.messages().cloned().collect();
                self.tree.end_at(self.tree.len().checked_sub(1)?);
                return Some(messages);
            }
            Asked::Results(results) => results.iter().for_each(|result| self.tree.push(result.clone(), None)),
        }
        Some(self.tree.messages().cloned().collect())
    }

    /// Adds a reply, complete or not. `said` has the messages before it was asked for.
    pub fn end_reply(&mut self, asked: &Asked, said: Said, message: Message, stop: Option<Stop>) {
        if *asked != Asked::Rest {
            return self.tree.push(message, stop);
        }
        self.bring_back(said);
        let last = self.tree.len().saturating_sub(1);
        if let Some(turn) = self.tree.get_mut(last).filter(|turn| turn.message.role == "assistant") {
            (turn.message, turn.stop) = (message, stop);
        }
    }

    /// Adds another version of the user's message at a position, which has no answer yet.
    fn ask_instead(&mut self, position: usize, text: &str) {
        self.forget_title(position);
        self.tree.end_at(position);
        self.ask(text);
    }

    /// Changes the text of a message. What followed it stays.
    pub fn rewrite(&mut self, position: usize, text: &str) {
        self.forget_title(position);
        let Some(turn) = self.tree.get_mut(position) else { return };
        turn.message.content = Some(text.into());
        turn.stop = None; // the new text may or may not be complete
        if position == 0 && self.title.is_empty() {
            self.title = title(text);
        }
    }

    /// The position of the user's last message.
    pub fn last_own(&self) -> Option<usize> {
        let own = self.tree.messages().enumerate().filter(|(_, message)| message.role == "user");
        own.map(|(position, _)| position).last()
    }

    /// Whether the model can be asked for a reply at a position: only if there is a user message before it.
    pub fn can_reply(&self, position: usize) -> bool {
        self.tree.messages().take(position).any(|message| message.role == "user")
    }

    /// The calls at the end that have no result yet.
    pub fn open_calls(&self) -> Vec<&ToolCall> {
        let last = self.tree.messages().filter(|message| message.role != "tool").last();
        let calls = last.map(|message| message.tool_calls.iter()).unwrap_or_default();
        let of = |call: &&ToolCall| self.tree.messages().any(|result| answers(result, call));
        calls.filter(|call| call.id.is_some() && !of(call)).collect()
    }

    /// What [`bring_back`](Self::bring_back) needs.
    pub fn said(&self) -> Said {
        Said { title: self.title.clone(), title_after: self.title.clone(), tree: self.tree.clone() }
    }

    /// Brings back earlier messages. A title that the user has given since then stays.
    pub fn bring_back(&mut self, said: Said) {
        self.tree = said.tree;
        if self.title == said.title_after {
            self.title = said.title;
        }
    }

    /// Removes a title that was taken from the message at a position.
    fn forget_title(&mut self, position: usize) {
        let first = self.tree.get(0).filter(|_| position == 0);
        if first.is_some_and(|turn| self.title == title(&turn.message.text())) {
            self.title.clear();
        }
    }
}

/// Whether a message has the result of a call.
fn answers(message: &Message, call: &ToolCall) -> bool {
    message.role == "tool" && message.tool_call_id.is_some() && message.tool_call_id == call.id
}

/// How the user asked for a reply. Numbers are positions in the conversation.
#[derive(Debug, Clone, PartialEq)]
pub enum Asked {
    /// By a new message.
    New(String),
    /// With a new text for this message.
    Edited(usize, String),
    /// For a reply at this position, where there may be one already.
    Again(usize),
    /// For the rest of the last reply.
    Rest,
    /// By the results of the functions that the model called.
    Results(Vec<Message>),
}

/// The messages of a conversation at some time, with its title.
#[derive(Debug, Clone, PartialEq)]
pub struct Said {
    title: String,
    /// The title that a change of the messages gave.
    title_after: String,
    tree: Tree,
}

impl Said {
    /// The same, after the messages of the conversation were changed.
    pub fn before(self, changed: &Conversation) -> Self {
        Self { title_after: changed.title.clone(), ..self }
    }
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
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Asked, Conversation, Message, Settings, Stop, ToolCall, title};

    fn texts(of: &Conversation) -> Vec<String> {
        of.tree.messages().map(|it| it.text().into_owned()).collect()
    }

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
        assert_eq!((conversation.name(), conversation.tree.len()), ("first", 2));
    }

    #[test]
    fn a_message_is_replaced_and_rewritten() {
        let mut conversation = Conversation::new(Settings::default());
        assert!(!conversation.can_reply(0));
        conversation.ask("first");
        conversation.tree.push(Message::assistant("An answer."), None);
        let said = conversation.said();
        assert_eq!((conversation.can_reply(0), conversation.can_reply(1)), (false, true));
        conversation.ask_instead(0, "other");
        assert_eq!((conversation.name(), texts(&conversation)), ("other", vec!["other".to_owned()]));
        let said = said.before(&conversation);
        conversation.bring_back(said.clone());
        assert_eq!((conversation.name(), texts(&conversation)), ("first", vec!["first".into(), "An answer.".into()]));
        conversation.title = "renamed".into();
        conversation.bring_back(said);
        assert_eq!(conversation.name(), "renamed", "a name that was given meanwhile stays");
        conversation.title = "first".into();
        conversation.rewrite(0, "new");
        conversation.rewrite(1, "More.");
        assert_eq!((conversation.name(), texts(&conversation)), ("new", vec!["new".into(), "More.".into()]));
        conversation.title = "mine".into();
        conversation.ask_instead(0, "last");
        assert_eq!(conversation.name(), "mine", "a title that the user gave stays");
    }

    #[test]
    fn replies_are_regenerated_and_continued() {
        let mut conversation = Conversation::new(Settings::default());
        assert_eq!(conversation.begin_reply(&Asked::Again(0)), None);
        let first = conversation.begin_reply(&Asked::New("first".into())).unwrap();
        assert_eq!(first, [Message::user("first")]);
        let (said, reply) = (conversation.said(), Message::assistant("An ans"));
        conversation.end_reply(&Asked::New("first".into()), said, reply.clone(), Some(Stop::Length));

        let said = conversation.said();
        assert_eq!(conversation.begin_reply(&Asked::Rest).unwrap(), [Message::user("first"), reply]);
        assert_eq!(texts(&conversation), ["first"], "the window shows the beginning with the rest");
        conversation.end_reply(&Asked::Rest, said, Message::assistant("An answer."), Some(Stop::End));
        assert_eq!(
            (texts(&conversation), conversation.tree.version(1)),
            (vec!["first".into(), "An answer.".into()], (0, 1))
        );
        assert_eq!(conversation.tree.last().unwrap().stop, Some(Stop::End));

        let said = conversation.said();
        assert_eq!(conversation.begin_reply(&Asked::Again(1)).unwrap(), [Message::user("first")]);
        conversation.end_reply(&Asked::Again(1), said, Message::assistant("Another."), None);
        assert_eq!((texts(&conversation)[1].as_str(), conversation.tree.version(1)), ("Another.", (1, 2)));
        conversation.begin_reply(&Asked::Edited(0, "other".into())).unwrap();
        assert_eq!((texts(&conversation), conversation.tree.version(0)), (vec!["other".into()], (1, 2)));
        let results = Asked::Results(vec![Message::tool("1", "seven")]);
        assert_eq!(conversation.begin_reply(&results).unwrap().len(), 2);
    }

    #[test]
    fn calls_are_open_until_they_have_results() {
        let call = |id: &str| ToolCall { id: Some(id.into()), ..ToolCall::new("owls", Default::default()) };
        let mut conversation = Conversation::new(Settings::default());
        conversation.ask("How many owls?");
        assert!(conversation.open_calls().is_empty());
        conversation.tree.push(Message::assistant("").with_tool_calls(vec![call("1"), call("2")]), None);
        assert_eq!(conversation.open_calls().len(), 2);
        conversation.tree.push(Message::tool("2", "three"), None);
        assert_eq!(conversation.open_calls(), [&call("1")]);
        conversation.tree.push(Message::tool("1", "four"), None);
        assert!(conversation.open_calls().is_empty());
        conversation.ask("And mice?");
        assert!(conversation.open_calls().is_empty());
    }

    /// A file of the program's first version.
    #[test]
    fn a_file_of_version_1_is_read() {
        let json = r#"{
            "version": 1, "title": "owls",
            "settings": {"system": "you are an owl", "thinking": "Off", "temperature": 0.5, "top_k": 3, "seed": 7,
                "max_tokens": 12},
            "messages": [
                {"role": "user", "content": "What is an owl?"},
                {"role": "assistant", "content": "A bird.", "reasoning_content": "Birds …"}
            ]
        }"#;
        let read: Conversation = serde_json::from_str(json).unwrap();
        assert_eq!(texts(&read), ["What is an owl?", "A bird."]);
        let (system, top_k, seed) = (&read.settings.system, read.settings.sampling.top_k, read.settings.sampling.seed);
        assert_eq!((read.name(), system.as_str(), top_k, seed), ("owls", "you are an owl", 3, Some(7)));
        assert_eq!(read.tree.last().unwrap().message.reasoning_content.as_deref(), Some("Birds …"));
        let again: Conversation = serde_json::from_str(&serde_json::to_string(&read).unwrap()).unwrap();
        assert_eq!(again, read);
    }
}
