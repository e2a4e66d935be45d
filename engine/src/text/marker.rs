//! Marks the strings that come from outside a template, so that they never become the template's own tokens.
//!
//! A template writes control tokens and tags around the messages of people, functions and the model. If a message
//! contains the name of such a token, that name has to stay plain text. Therefore, while the template renders, a
//! [`MARK`] stands on both sides of every character with which such a name can begin or end. A name is then found
//! neither inside a message, nor where two messages are joined, nor in a message that the template shortened or
//! reversed. The marks are removed when the rest of the prompt is cut into words. In names that begin and end with
//! letters, a mark follows only the first letter. A template that drops single characters can drop marks.
//!
//! The keys and values that belong to the form of the input, such as `tool_calls` and the role `user`, get no marks
//! ([`super::fixed`]), because templates look for them by name.
//!
//! If a template itself writes the first and the last character of a name, as in `<|{{ role }}|>`, the result is the
//! token of that name.

use super::fixed::Place;
use super::prefixes::Prefixes;
use serde_json::Value;
use std::borrow::Cow;

/// A character that Unicode reserves for internal use, so that no text contains it.
pub(super) const MARK: char = '\u{FDD0}';

/// Another such character. Two of these enclose the number of a character that has to be escaped.
pub(super) const ESCAPE: char = '\u{FDD1}';

/// Marks strings so that they contain none of a vocabulary's reserved tokens.
#[derive(Debug)]
pub(super) struct Marker {
    /// The punctuation with which names begin or end.
    signs: Vec<char>,
    /// Names that begin and end with letters or digits. Marking all of these characters would mark most of a text.
    words: Prefixes<()>,
    /// Characters that are escaped: the marks themselves, and names of one character.
    escaped: Vec<char>,
}

impl Marker {
    /// Creates a marker against these names of tokens, and against the tags of replies.
    pub(super) fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let (mut signs, mut words, mut escaped) = (vec!['<', '>'], Vec::new(), vec![MARK, ESCAPE]);
        let sign = |char: &char| !char.is_alphanumeric() && !char.is_whitespace();
        for name in names {
            let mut chars = name.chars();
            match (chars.next(), chars.next_back()) {
                (Some(only), None) => escaped.push(only),
                (Some(first), Some(last)) if sign(&first) || sign(&last) => {
                    signs.extend([first, last].into_iter().filter(sign));
                }
                (Some(_), Some(_)) => words.push((name.to_owned(), ())),
                (None, _) => {}
            }
        }
        for list in [&mut signs, &mut escaped] {
            list.sort_unstable();
            list.dedup();
        }
        Self { signs, words: Prefixes::new(words), escaped }
    }

    /// Marks all strings of a value, keys included, except those that belong to the form of a template's input.
    pub(super) fn mark(&self, value: Value) -> Value {
        self.mark_at(Place::Known(""), value)
    }

    fn mark_at(&self, place: Place<'_>, value: Value) -> Value {
        match value {
            Value::String(text) if place.fixes_value(&text) => Value::String(text),
            Value::String(text) => Value::String(self.mark_text(&text)),
            Value::Array(items) => items.into_iter().map(|item| self.mark_at(place, item)).collect(),
            Value::Object(entries) => {
                let mark = |(key, value): (String, Value)| {
                    let value = self.mark_at(place.under(&key), value);
                    (if place.fixes_key(&key) { key } else { self.mark_text(&key) }, value)
                };
                entries.into_iter().map(mark).collect()
            }
            other => other,
        }
    }

    fn mark_text(&self, text: &str) -> String {
        let mut marked = String::with_capacity(text.len() + 8);
        let letters = text.trim_end().len();
        for (at, char) in text.char_indices() {
            if self.escaped.binary_search(&char).is_ok() {
                marked += &format!("{ESCAPE}{:x}{ESCAPE}", u32::from(char));
                continue;
            }
            let sign = self.signs.binary_search(&char).is_ok();
            if sign {
                marked.push(MARK);
            }
            marked.push(char);
            if sign || at < letters && self.begins_word(&text[at..], &text[at..letters]) {
                marked.push(MARK);
            }
        }
        marked
    }

    /// Whether `text` begins with one of the words or, at the end of a text, with the beginning of one. `letters` is
    /// the text without the whitespace at its end, and not empty.
    fn begins_word(&self, text: &str, letters: &str) -> bool {
        self.words.longest(text.as_bytes()).is_some() || self.words.any_begins_with(letters)
    }
}

/// Removes the marks from a text, and resolves the escapes.
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

    /// Marks split everything that could be a name, and all other text is unchanged.
    #[test]
    fn marks_are_where_names_begin_and_end() {
        assert_eq!(marked("<|user|>").replace(MARK, "."), ".<.|user|.>.");
        assert_eq!(marked("a[0] > 2").replace(MARK, "."), "a.[.0.]. .>. 2");
        assert_eq!(marked("EOS, THE\n").replace(MARK, "."), "E.OS, THE.\n");
        assert_eq!(marked("user, tool and so on"), "user, tool and so on");
        assert!(!marked("§").contains('§'));
    }

    /// Templates find what they look for, whatever the names of the tokens, and everything else is marked.
    #[test]
    fn the_form_of_the_input_is_not_marked() {
        let marker = Marker::new(["_eot_", "user", "role", "string", "type"]);
        let at = |json: &str| marker.mark(serde_json::from_str(json).unwrap_or_default()).to_string();
        let form = r#"[{"role":"user","tool_calls":[{"type":"function","tool_call_id":1}],"reasoning_content":2}]"#;
        assert_eq!(at(form), form);
        let schema = r#"{"type":["string","null"],"minLength":1,"properties":{}}"#;
        assert_eq!(at(schema), schema);
        for free in [
            r#"{"content":"user"}"#,
            r#"{"role":"_eot_"}"#,
            r#"{"arguments":{"role":1}}"#,
            r#"{"arguments":{"a":{"type":1}}}"#,
            r#"{"properties":{"type":1}}"#,
            r#"{"_eot_":1}"#,
            r#"{"enum":["string"]}"#,
            r#"{"name":"role"}"#,
        ] {
            assert_ne!(at(free), free);
            assert_eq!(unmark(&at(free)), free);
        }
    }

    #[test]
    fn texts_come_back() {
        for text in ["", "<>", "<<[]>>", "EOSEO", "a§b", "\u{fdd0}\u{fdd1}", "<\u{fdd0}|user|\u{fdd1}3c\u{fdd1}>", "é"]
        {
            assert_eq!(unmark(&marked(text)), text);
            assert_eq!(unmark(&marked(&marked(text))), marked(text));
        }
    }

    /// A text's end is found once, and not again for each of its spaces.
    #[test]
    fn blanks_at_the_end_are_read_once() {
        for text in [
            " ".repeat(1 << 20),
            "EO".to_owned() + &"\n".repeat(1 << 20),
            "E".repeat(1 << 20),
            "\u{fdd1}".repeat(1 << 18),
        ] {
            assert_eq!(unmark(&marked(&text)), text);
        }
    }

    /// An escape that a template cut apart is plain text.
    #[test]
    fn half_an_escape_is_text() {
        for text in ["\u{fdd1}", "a\u{fdd1}zz\u{fdd1}b", "\u{fdd1}fdd0", "\u{fdd1}d800\u{fdd1}"] {
            assert_eq!(unmark(text), text);
        }
    }
}
