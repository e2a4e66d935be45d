//! Finds a text in all conversations: in their titles, and in all versions of their messages. Conversations can be many
//! and long, so this is done on a thread.

use crate::chats::Chats;
use crate::conversation::Conversation;
use crate::task::Task;
use eframe::egui::Context;
use std::sync::Arc;
use wglm::{Cancel, Message};

/// The most messages of a conversation that are listed.
const MOST: usize = 3;
/// The number of letters that are shown on each side of what was found.
const AROUND: usize = 28;

/// The search.
#[derive(Default)]
pub struct Search {
    /// The text that the user typed.
    pub text: String,
    /// The text that was searched for last, and after how many changes of the conversations.
    begun: (String, usize),
    task: Option<Task<Vec<Found>>>,
    found: Vec<Found>,
}

impl Search {
    /// Takes the results that have arrived, and searches again if the text or a conversation has changed.
    pub fn update(&mut self, window: &Context, chats: &Chats) {
        if let Some(found) = self.task.as_ref().and_then(Task::result) {
            self.task = None;
            self.found = found.unwrap_or_default();
        }
        if !self.is_wanted() {
            *self = Self { text: std::mem::take(&mut self.text), ..Self::default() };
        } else if (&self.begun.0, self.begun.1) != (&self.text, chats.changes()) {
            self.begun = (self.text.clone(), chats.changes());
            let (conversations, text) = (chats.list().to_vec(), self.text.clone());
            self.task = Some(Task::start(window, move |stop| search(&conversations, &text, stop)));
        }
    }

    /// Whether a text was typed.
    pub fn is_wanted(&self) -> bool {
        !self.text.trim().is_empty()
    }

    /// Whether the results are not those of the text yet.
    pub fn is_running(&self) -> bool {
        self.task.is_some()
    }

    /// The results. While a search is running, they are those of the one before it.
    pub fn found(&self) -> &[Found] {
        &self.found
    }
}

/// A conversation in which something was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The id of the conversation: its position may change while this is shown.
    pub conversation: String,
    /// The first messages that contain the text, by their numbers in the tree, each with an excerpt.
    pub messages: Vec<(usize, String)>,
    /// The number of further messages.
    pub more: usize,
}

/// The conversations that contain a text, in upper or lower case. A search that is stopped ends early.
fn search(conversations: &[Arc<Conversation>], text: &str, stop: &Cancel) -> Vec<Found> {
    let sought: Vec<char> = text.trim().chars().flat_map(char::to_lowercase).collect();
    if sought.is_empty() {
        return Vec::new();
    }
    let found = conversations.iter().take_while(|_| !stop.is_cancelled()).map(|conversation| {
        let turns = conversation.tree.all();
        let mut all = turns.filter_map(|(turn, it)| Some((turn, in_message(&it.message, &sought)?)));
        let messages: Vec<_> = all.by_ref().take(MOST).collect();
        let in_title = find(conversation.name(), &sought).is_some();
        (in_title, Found { conversation: conversation.id.clone(), messages, more: all.count() })
    });
    found.filter(|(in_title, found)| *in_title || !found.messages.is_empty()).map(|(_, found)| found).collect()
}

/// The surroundings of the text in a message: in the answer or in the thinking.
fn in_message(message: &Message, sought: &[char]) -> Option<String> {
    let text = message.text();
    let thinking = message.reasoning_content.as_deref().unwrap_or_default();
    [&*text, thinking].into_iter().find_map(|text| Some(excerpt(text, find(text, sought)?)))
}

/// The bytes of the first occurrence. A lower-case letter may be longer than its capital, so positions in a lower-case
/// copy of the text would not do.
fn find(text: &str, sought: &[char]) -> Option<(usize, usize)> {
    text.char_indices().map(|(start, _)| start).find_map(|start| {
        let mut rest = sought;
        for (at, letter) in text[start..].char_indices() {
            for lower in letter.to_lowercase() {
                rest = rest.strip_prefix(&[lower])?;
                if rest.is_empty() {
                    return Some((start, start + at + letter.len_utf8()));
                }
            }
        }
        None
    })
}

/// What was found with some letters around it, in one line.
fn excerpt(text: &str, (start, end): (usize, usize)) -> String {
    let before = text[..start].char_indices().rev().nth(AROUND - 1).map_or(0, |(at, _)| at);
    let after = text[end..].char_indices().nth(AROUND).map_or(text.len(), |(at, _)| end + at);
    let line = text[before..after].split_whitespace().collect::<Vec<_>>().join(" ");
    let (left, right) = (if before > 0 { "…" } else { "" }, if after < text.len() { "…" } else { "" });
    format!("{left}{line}{right}")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Arc, Cancel, Chats, Context, Conversation, Found, Message, Search};
    use crate::settings::Settings;
    use crate::store::Store;

    fn conversation(title: &str, texts: &[&str]) -> Arc<Conversation> {
        let mut conversation = Conversation::new(Settings::default());
        texts.iter().for_each(|text| conversation.ask(text));
        conversation.title = title.into();
        Arc::new(conversation)
    }

    fn search(conversations: &[Arc<Conversation>], text: &str) -> Vec<Found> {
        super::search(conversations, text, &Cancel::default())
    }

    #[test]
    fn a_search_runs_on_a_thread() {
        let folder = tempfile::tempdir().unwrap();
        let (window, store) = (Context::default(), Store::open(folder.path().to_owned()).unwrap());
        let (mut chats, _) = Chats::read(store, &window).unwrap();
        chats.open_mut().ask("An owl.");
        let mut search = Search { text: "owl".into(), ..Search::default() };
        search.update(&window, &chats);
        assert!(search.is_running() && search.found().is_empty(), "nobody waits for the results");
        while search.is_running() {
            search.update(&window, &chats);
        }
        assert_eq!(search.found()[0].messages, [(0, "An owl.".to_owned())]);
        chats.open_mut().ask("Two owls.");
        chats.save(&chats.open().id).unwrap();
        search.update(&window, &chats);
        assert!(search.is_running() && search.found()[0].messages.len() == 1, "the old results stay meanwhile");
        search.text.clear();
        search.update(&window, &chats);
        assert!(!search.is_running() && search.found().is_empty());
        let stop = Cancel::default();
        stop.cancel();
        assert!(super::search(chats.list(), "owl", &stop).is_empty());
    }

    #[test]
    fn words_are_found_in_titles_messages_thinking_and_versions() {
        let mut shared = conversation("Birds", &["An OWL\nsleeps.", "and a mouse", "owls", "owl", "owl"]);
        let owls = Arc::make_mut(&mut shared);
        owls.tree.end_at(1);
        owls.ask("İstanbul");
        let thought =
            Message::assistant("Yes.").with_reasoning("They mean owls, I suppose, or they would not have asked.");
        owls.tree.push(thought, None);
        let all = [shared, conversation("Mice", &["none"]), conversation("The owl house", &["a series"])];
        let found = search(&all, " owl ");
        let messages = |of: &Found| of.messages.iter().map(|(_, text)| text.clone()).collect::<Vec<_>>();
        let ids = found.iter().map(|found| (found.conversation.as_str(), found.more)).collect::<Vec<_>>();
        assert_eq!(ids, [(all[0].id.as_str(), 2), (all[2].id.as_str(), 0)]);
        assert_eq!(messages(&found[0]), ["An OWL sleeps.", "owls", "owl"]);
        assert_eq!(search(&all, "a mouse")[0].messages[0].0, 1, "it is in another version");
        assert_eq!(messages(&search(&all, "suppose")[0]), ["They mean owls, I suppose, or they would not have ask…"]);
        assert_eq!(search(&all, "i\u{307}stanbul").len(), 1);
        assert!(search(&all, "  ").is_empty() && search(&all, "fox").is_empty());
    }
}
