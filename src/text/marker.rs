//! What comes from outside a template, kept from being read as the template's own tokens.
//!
//! A template writes control tokens and tags around what people, functions and the model say. Names of such tokens in
//! what they say are text. So while the template renders, [`MARK`] stands on both sides of every character with which
//! such a name may begin or end, wherever that character is: a name is found neither in a text nor where texts are
//! joined, nor in what is left of one that was shortened or turned around. What is cut into words afterwards has the
//! marks taken out again. Names that are words are marked behind their first letter alone, and a template that drops
//! single characters may drop marks.
//!
//! A template that writes the first and the last character itself, as `<|{{ role }}|>` does, makes the token that it
//! names.

use serde_json::Value;
use std::borrow::Cow;

/// A character that Unicode gives to no text.
pub(super) const MARK: char = '\u{FDD0}';

/// Another one: between two of these stands the number of a character that cannot stand there itself.
pub(super) const ESCAPE: char = '\u{FDD1}';

/// Marks texts, as a vocabulary asks for it.
#[derive(Debug)]
pub(super) struct Marker {
    /// Characters that names begin or end with, but for those of words.
    signs: Vec<char>,
    /// Names that begin and end like words: for these, marking every such character would mark most of a text.
    words: Vec<String>,
    escaped: Vec<char>,
}

impl Marker {
    /// Against these names of tokens, beside the tags that replies are read by.
    pub(super) fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut marker = Self { signs: vec!['<', '>'], words: Vec::new(), escaped: vec![MARK, ESCAPE] };
        names.into_iter().for_each(|name| marker.add(name));
        for list in [&mut marker.signs, &mut marker.escaped] {
            list.sort_unstable();
            list.dedup();
        }
        marker
    }

    fn add(&mut self, name: &str) {
        let mut chars = name.chars();
        let (first, last) = (chars.next(), chars.next_back());
        let sign = |char: &char| !char.is_alphanumeric() && !char.is_whitespace();
        match (first, last) {
            (Some(only), None) => self.escaped.push(only),
            (Some(first), Some(last)) if sign(&first) || sign(&last) => {
                self.signs.extend([first, last].into_iter().filter(sign));
            }
            (Some(_), Some(_)) => self.words.push(name.to_owned()),
            (None, _) => {}
        }
    }

    /// A value with all of its strings marked, keys too.
    pub(super) fn mark(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.mark_text(&text)),
            Value::Array(items) => items.into_iter().map(|item| self.mark(item)).collect(),
            Value::Object(entries) => {
                entries.into_iter().map(|(key, value)| (self.mark_text(&key), self.mark(value))).collect()
            }
            other => other,
        }
    }

    fn mark_text(&self, text: &str) -> String {
        let mut marked = String::with_capacity(text.len() + 8);
        for (at, char) in text.char_indices() {
            if self.escaped.contains(&char) {
                marked += &format!("{ESCAPE}{:x}{ESCAPE}", u32::from(char));
                continue;
            }
            let sign = self.signs.contains(&char);
            if sign {
                marked.push(MARK);
            }
            marked.push(char);
            if sign || self.begins_word(&text[at..]) {
                marked.push(MARK);
            }
        }
        marked
    }

    /// Whether a text begins with one of the words, or with as much of it as there is of the text.
    fn begins_word(&self, text: &str) -> bool {
        let begins = |word: &String| text.starts_with(word) || word.starts_with(text.trim_end());
        !self.words.is_empty() && !text.trim_end().is_empty() && self.words.iter().any(begins)
    }
}

/// A text without its marks.
pub(super) fn unmark(text: &str) -> Cow<'_, str> {
    if !text.contains([MARK, ESCAPE]) {
        return Cow::Borrowed(text);
    }
    let text = text.replace(MARK, "");
    let (mut plain, mut rest) = (String::with_capacity(text.len()), text.as_str());
    while let Some((before, after)) = rest.split_once(ESCAPE) {
        plain += before;
        match after.split_once(ESCAPE).and_then(|(number, after)| Some((numbered(number)?, after))) {
            Some((char, after)) => {
                plain.push(char);
                rest = after;
            }
            None => {
                plain.push(ESCAPE);
                rest = after;
            }
        }
    }
    Cow::Owned(plain + rest)
}

fn numbered(number: &str) -> Option<char> {
    u32::from_str_radix(number, 16).ok().and_then(char::from_u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(text: &str) -> String {
        Marker::new(["<|user|>", "[MASK]", "EOS", "§"]).mark_text(text)
    }

    /// What could be a name is cut up, wherever it stands; everything else is as it was.
    #[test]
    fn marks_are_where_names_begin_and_end() {
        assert_eq!(marked("<|user|>").replace(MARK, "."), ".<.|user|.>.");
        assert_eq!(marked("a[0] > 2").replace(MARK, "."), "a.[.0.]. .>. 2");
        assert_eq!(marked("EOS, THE\n").replace(MARK, "."), "E.OS, THE.\n");
        assert_eq!(marked("user, tool and so on"), "user, tool and so on");
        assert!(!marked("§").contains('§'));
    }

    #[test]
    fn texts_come_back() {
        for text in ["", "<>", "<<[]>>", "EOSEO", "a§b", "\u{fdd0}\u{fdd1}", "<\u{fdd0}|user|\u{fdd1}3c\u{fdd1}>", "é"]
        {
            assert_eq!(unmark(&marked(text)), text);
            assert_eq!(unmark(&marked(&marked(text))), marked(text));
        }
    }

    /// What a template leaves of an escape is text.
    #[test]
    fn half_an_escape_is_text() {
        for text in ["\u{fdd1}", "a\u{fdd1}zz\u{fdd1}b", "\u{fdd1}fdd0", "\u{fdd1}d800\u{fdd1}"] {
            assert_eq!(unmark(text), text);
        }
    }
}
