//! Finds words in all conversations: in their titles, and in their messages of all versions.

use crate::conversation::Conversation;
use wglm::Message;

/// The most messages that are listed of a conversation.
const MOST: usize = 3;
/// The letters that are shown around what was found.
const AROUND: usize = 28;

/// A conversation in which something was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The id of the conversation: its position may change while this is shown.
    pub conversation: String,
    /// The first messages with the words, by their numbers in the tree, each with what surrounds the words.
    pub messages: Vec<(usize, String)>,
    /// The number of further messages.
    pub more: usize,
}

/// The conversations in which a text stands, however it is capitalised.
pub fn search(conversations: &[Conversation], text: &str) -> Vec<Found> {
    let sought: Vec<char> = text.trim().chars().flat_map(char::to_lowercase).collect();
    if sought.is_empty() {
        return Vec::new();
    }
    let found = conversations.iter().map(|conversation| {
        let turns = conversation.tree.all();
        let mut all = turns.filter_map(|(turn, it)| Some((turn, in_message(&it.message, &sought)?)));
        let messages: Vec<_> = all.by_ref().take(MOST).collect();
        let in_title = find(conversation.name(), &sought).is_some();
        (in_title, Found { conversation: conversation.id.clone(), messages, more: all.count() })
    });
    found.filter(|(in_title, found)| *in_title || !found.messages.is_empty()).map(|(_, found)| found).collect()
}

/// What surrounds the text in a message: in what is shown of it, and in what the model thought.
fn in_message(message: &Message, sought: &[char]) -> Option<String> {
    let text = message.text();
    let thinking = message.reasoning_content.as_deref().unwrap_or_default();
    [&*text, thinking].into_iter().find_map(|text| Some(excerpt(text, find(text, sought)?)))
}

/// The bytes of the first occurrence. Lower-case letters may be longer than capital ones, so that no lower-case copy of
/// the text would do.
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
mod tests {
    use super::{Conversation, Found, Message, search};
    use crate::settings::Settings;

    fn conversation(title: &str, texts: &[&str]) -> Conversation {
        let mut conversation = Conversation::new(Settings::default());
        texts.iter().for_each(|text| conversation.ask(text));
        conversation.title = title.into();
        conversation
    }

    #[test]
    fn words_are_found_in_titles_messages_thinking_and_versions() {
        let mut owls = conversation("Birds", &["An OWL\nsleeps.", "and a mouse", "owls", "owl", "owl"]);
        owls.tree.end_at(1);
        owls.ask("İstanbul");
        let thought =
            Message::assistant("Yes.").with_reasoning("They mean owls, I suppose, or they would not have asked.");
        owls.tree.push(thought, None);
        let all = [owls, conversation("Mice", &["none"]), conversation("The owl house", &["a series"])];
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
