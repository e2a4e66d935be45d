//! What others wrote, kept from being read as control tokens.
//!
//! A template writes control tokens around what people and functions say. Where these say the name of one themselves, a
//! mark stands in the middle of it while the template renders: so it is found nowhere, and what is cut into words instead
//! has the mark taken out again.

use super::{Content, Message, Tokenizer};
use serde_json::Value;
use std::borrow::Cow;

/// A character that Unicode gives to no text.
pub(super) const MARK: char = '\u{FDD0}';

impl Tokenizer {
    /// A conversation whose prompt, once [`Tokenizer::encode_guarded`] encodes it, has no control tokens but the
    /// template's own. What the assistant said stays as it is: templates look for tags in it.
    pub fn guard<'a>(&self, messages: &'a [Message]) -> Cow<'a, [Message]> {
        if messages.iter().all(|message| self.is_harmless(message)) {
            return Cow::Borrowed(messages);
        }
        let guarded = |message: &Message| match &message.content {
            Some(content) if message.role != "assistant" => {
                Message { content: Some(self.marked(content)), ..message.clone() }
            }
            _ => message.clone(),
        };
        Cow::Owned(messages.iter().map(guarded).collect())
    }

    fn is_harmless(&self, message: &Message) -> bool {
        let named = |text: &str| self.control_token(text).is_some();
        message.role == "assistant"
            || match &message.content {
                Some(Content::Text(text)) => !named(text),
                Some(Content::Parts(parts)) => !parts.iter().filter_map(|part| part["text"].as_str()).any(named),
                None => true,
            }
    }

    fn marked(&self, content: &Content) -> Content {
        match content {
            Content::Text(text) => Content::Text(self.marked_text(text)),
            Content::Parts(parts) => Content::Parts(parts.iter().map(|part| self.marked_part(part)).collect()),
        }
    }

    fn marked_part(&self, part: &Value) -> Value {
        let mut part = part.clone();
        if let Some(Value::String(text)) = part.get_mut("text") {
            *text = self.marked_text(text);
        }
        part
    }

    fn marked_text(&self, mut text: &str) -> String {
        let mut marked = String::with_capacity(text.len() + 8);
        while let Some((start, name)) = self.control_token(text) {
            let inside = start + name.chars().next().map_or(0, char::len_utf8);
            marked.push_str(&text[..inside]);
            marked.push(MARK);
            text = &text[inside..];
        }
        marked + text
    }
}
