//! Turns tokens into text, one at a time.
//!
//! Each result consists of whole characters, and all results joined equal [`String::from_utf8_lossy`] of all the bytes.
//! If a token ends inside a character, its last bytes wait for the next token.

use super::Tokenizer;
use crate::error::Result;

/// Turns tokens into text as they arrive.
#[derive(Debug, Clone, Default)]
pub struct Detokenizer {
    show_special: bool,
    /// The beginning of an incomplete character, at most three bytes between calls.
    waiting: Vec<u8>,
    /// The text that the last call returned.
    text: String,
}

impl Detokenizer {
    /// Creates a detokenizer that omits control tokens unless `show_special`.
    pub fn new(show_special: bool) -> Self {
        Self { show_special, ..Self::default() }
    }

    /// The text that `token` completes; empty if it ends inside a character or is a hidden control token.
    ///
    /// # Errors
    /// [`Error::TokenOutOfRange`](crate::Error::TokenOutOfRange) if the token is not in the vocabulary.
    pub fn push(&mut self, tokenizer: &Tokenizer, token: u32) -> Result<&str> {
        Ok(self.push_bytes(tokenizer.visible_bytes(token, self.show_special)?))
    }

    /// The text that `bytes` complete.
    pub fn push_bytes(&mut self, bytes: &[u8]) -> &str {
        self.text.clear();
        self.waiting.extend_from_slice(bytes);
        let mut done = 0;
        for chunk in self.waiting.utf8_chunks() {
            let invalid = chunk.invalid();
            let at_end = done + chunk.valid().len() + invalid.len() == self.waiting.len();
            self.text.push_str(chunk.valid());
            done += chunk.valid().len();
            if at_end && may_continue(invalid) {
                break;
            }
            if !invalid.is_empty() {
                self.text.push(char::REPLACEMENT_CHARACTER);
                done += invalid.len();
            }
        }
        self.waiting.drain(..done);
        &self.text
    }

    /// The rest of the text: U+FFFD if the last token ended inside a character, and otherwise nothing. The detokenizer
    /// is then ready for another text.
    pub fn finish(&mut self) -> &str {
        self.text.clear();
        if !self.waiting.is_empty() {
            self.text.push(char::REPLACEMENT_CHARACTER);
            self.waiting.clear();
        }
        &self.text
    }
}

/// Whether further bytes could complete a character that `bytes` begin.
fn may_continue(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_waits_for_its_last_byte() {
        let mut text = Detokenizer::default();
        assert_eq!(text.push_bytes(b"a\xf0\x9f"), "a");
        assert_eq!(text.push_bytes(b"\xa6"), "");
        assert_eq!(text.push_bytes(b"\x89b"), "🦉b");
        assert_eq!(text.finish(), "");
    }

    #[test]
    fn broken_bytes_are_replaced_as_soon_as_they_are_known_to_be_broken() {
        let mut text = Detokenizer::default();
        assert_eq!(text.push_bytes(b"\xf0\x9f"), "");
        assert_eq!(text.push_bytes(b"x\xff\xe2\x82"), "\u{fffd}x\u{fffd}");
        assert_eq!(text.finish(), "\u{fffd}");
        assert_eq!(text.push_bytes(b"y"), "y");
    }
}
