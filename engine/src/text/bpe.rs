//! Byte-pair encoding of words, by the merges of a vocabulary.
//!
//! A vocabulary may have merges whose parts or result are no tokens, and no token for some bytes. As in llama.cpp, such
//! merges take part in the encoding of a word: their results may be parts of further merges. What is left of them at
//! the end is encoded byte by byte. llama.cpp drops a byte without a token; here it is an error, because the model
//! would read another text than it was given.

use super::pretokenizer::VocabFamily;
use super::vocab::{failed, raw_byte};
use super::{TokenType, Vocab, byte_level};
use crate::error::{Error, Result};
use tokenizers::Model;
use tokenizers::models::bpe::{BPE, Vocab as Ids};

/// The encoding of words.
pub(super) struct WordEncoder {
    bpe: BPE,
    /// The number of tokens of the vocabulary. The ids from here on stand for results of merges, and for bytes, that
    /// have no token.
    tokens: u32,
    /// Whether a word that is a token is encoded to it, whatever the merges say.
    ignores_merges: bool,
}

impl WordEncoder {
    /// Moves the tokens and merges out of `vocab` into an encoder, and adds sentences about what is missing. Reserved
    /// tokens, and merges that mention one, are left out, so that no text is ever encoded to a reserved token.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] if a merge is not a pair.
    pub fn new(vocab: &mut Vocab, family: &VocabFamily, notices: &mut Vec<String>) -> Result<Self> {
        let (mut ids, mut reserved) = (Ids::default(), Ids::default());
        for ((text, kind), id) in std::mem::take(&mut vocab.tokens).into_iter().zip(&vocab.types).zip(0..) {
            let table = if kind.is_reserved(&text) { &mut reserved } else { &mut ids };
            table.entry(spelling(text, *kind)).or_insert(id);
        }
        let tokens = vocab.types.len() as u32;
        let mut ids = Spellings { ids, next: tokens };
        notices.extend(ids.add_bytes());
        let merges = ids.add_merges(&std::mem::take(&mut vocab.merges), &reserved, notices)?;
        // The crate's cache keeps up to 8 KB for each of 10,000 words in every thread that encodes, and a text of
        // random words fills it. Most of GLM's words are single tokens, which are looked up before any cache.
        let builder = BPE::builder().cache_capacity(0);
        let bpe = builder.vocab_and_merges(ids.ids, merges).build().map_err(|error| failed(error.to_string()))?;
        Ok(Self { bpe, tokens, ignores_merges: family.ignore_merges })
    }

    /// Appends the tokens of a word.
    ///
    /// # Errors
    /// [`Error::NoToken`] if the word has a byte that has none.
    pub fn encode(&self, word: &str, tokens: &mut Vec<u32>) -> Result<()> {
        let spelt = byte_level::encode(word);
        // Only a token may stand for a whole word, and not the text of a merge that is no token.
        let whole = if self.ignores_merges { self.bpe.token_to_id(&spelt) } else { None };
        if let Some(id) = whole.filter(|id| *id < self.tokens) {
            tokens.push(id);
            return Ok(());
        }
        for token in self.bpe.tokenize(&spelt).map_err(|error| failed(error.to_string()))? {
            if token.id < self.tokens {
                tokens.push(token.id);
            } else {
                self.spell(&token.value, word, tokens)?;
            }
        }
        Ok(())
    }

    /// Appends the tokens of the bytes of a text in the byte-level alphabet.
    fn spell(&self, text: &str, word: &str, tokens: &mut Vec<u32>) -> Result<()> {
        let mut buffer = [0; 4];
        for char in text.chars() {
            let char: &str = char.encode_utf8(&mut buffer);
            let token = self.bpe.token_to_id(char).filter(|id| *id < self.tokens);
            tokens.push(token.ok_or_else(|| no_token(char, word))?);
        }
        Ok(())
    }
}

/// The error for a byte, as a character of the byte-level alphabet, of a word.
fn no_token(char: &str, word: &str) -> Error {
    let mut bytes = Vec::new();
    byte_level::decode(char, &mut bytes);
    let word: String = word.chars().take(16).collect();
    Error::NoToken { byte: bytes.first().copied().unwrap_or_default(), word }
}

/// The ids of all texts that take part in merges, in the byte-level alphabet.
struct Spellings {
    ids: Ids,
    /// The next id for a text that is no token.
    next: u32,
}

impl Spellings {
    /// Adds a text, unless it is there. Returns whether it was added.
    fn add(&mut self, text: &str) -> bool {
        let absent = !self.ids.contains_key(text);
        if absent {
            self.ids.insert(text.to_owned(), self.next);
            self.next += 1;
        }
        absent
    }

    /// Adds the bytes that have no token. Returns a sentence about those that texts may have.
    fn add_bytes(&mut self) -> Option<String> {
        let mut absent = |byte: &u8| self.add(byte_level::char_of(*byte).encode_utf8(&mut [0; 4]));
        let absent: Vec<u8> = (0..=255).filter(|byte| absent(byte)).collect();
        let in_texts: Vec<u8> = absent.into_iter().filter(|byte| is_in_utf8(*byte)).collect();
        let (first, count) = (in_texts.first()?, in_texts.len());
        Some(format!(
            "the vocabulary has no tokens for {count} of the 243 bytes of UTF-8 (the first is {first:#04x}): a text with one of \
             them, outside of longer tokens, is refused"
        ))
    }

    /// Adds the texts of merges that are no tokens, and returns the merges as pairs.
    fn add_merges(
        &mut self,
        merges: &[String],
        reserved: &Ids,
        notices: &mut Vec<String>,
    ) -> Result<Vec<(String, String)>> {
        let mut pairs = Vec::with_capacity(merges.len());
        let (mut joined, mut unknown) = (String::new(), None);
        for (rank, merge) in merges.iter().enumerate() {
            let pair = merge.split_once(' ').filter(|(left, right)| !left.is_empty() && !right.is_empty());
            let Some((left, right)) = pair else {
                return Err(failed(format!("merge {rank} is `{merge}`: expected two tokens separated by a space")));
            };
            joined.clear();
            joined.extend([left, right]);
            let parts = [left, right, joined.as_str()];
            // A part may be the text of a reserved token and of another one.
            if parts.iter().any(|&part| reserved.contains_key(part) && !self.ids.contains_key(part)) {
                continue;
            }
            let added = parts.iter().filter(|part| self.add(part)).count();
            if added > 0 {
                unknown.get_or_insert((rank, merge, 0)).2 += 1;
            }
            pairs.push((left.to_owned(), right.to_owned()));
        }
        notices.extend(unknown.map(|(rank, merge, count)| {
            format!(
                "merges with a part or a result that is no token: {count} (the first is merge {rank}, `{merge}`); what \
                 they make of a text is encoded byte by byte"
            )
        }));
        Ok(pairs)
    }
}

/// Whether a byte occurs in UTF-8. DeepSeek's first vocabularies have no tokens for the other bytes: their `ø` is the
/// letter.
fn is_in_utf8(byte: u8) -> bool {
    !matches!(byte, 0xc0 | 0xc1 | 0xf5..)
}

/// A token's text in the byte-level alphabet. The file writes most tokens in that alphabet already, but not
/// user-defined tokens and raw bytes.
fn spelling(text: String, kind: TokenType) -> String {
    match kind {
        TokenType::UserDefined => byte_level::encode(&text),
        TokenType::Byte => raw_byte(&text).map_or(text, |byte| byte_level::char_of(byte).into()),
        _ => text,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::text::pretokenizer::family;

    /// An encoder for these normal tokens, and its notices.
    fn encoder(tokens: &[&str], merges: &[&str]) -> (WordEncoder, Vec<String>) {
        let strings = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let types = vec![TokenType::Normal; tokens.len()];
        let mut vocab = Vocab { tokens: strings(tokens), types, merges: strings(merges), ..Vocab::default() };
        let mut notices = Vec::new();
        (WordEncoder::new(&mut vocab, family("qwen2").unwrap(), &mut notices).unwrap(), notices)
    }

    fn encode(encoder: &WordEncoder, word: &str) -> Result<Vec<u32>> {
        let mut tokens = Vec::new();
        encoder.encode(word, &mut tokens).map(|()| tokens)
    }

    #[test]
    fn a_byte_without_a_token_is_an_error() {
        let (known, notices) = encoder(&["a", "b", "ab"], &["a b"]);
        assert_eq!(encode(&known, "aba").unwrap(), [2, 0]);
        let error = encode(&known, "ac").unwrap_err().to_string();
        assert!(error.contains("0x63") && error.contains("\"ac\""), "{error}");
        assert!(notices.len() == 1 && notices[0].contains("241 of the 243"), "{notices:?}");
    }

    /// A text between two merges that is no token leads to one that is.
    #[test]
    fn merges_of_texts_that_are_no_tokens() {
        let (known, notices) = encoder(&["a", "b", "c", "abc"], &["a b", "ab c"]);
        assert_eq!(encode(&known, "abc").unwrap(), [3]);
        assert_eq!(encode(&known, "abab").unwrap(), [0, 1, 0, 1]);
        assert!(notices[1].contains("no token: 1 (the first is merge 0, `a b`)"), "{notices:?}");
        // A byte that is no token by itself may be part of one.
        let (known, _) = encoder(&["b", "ab"], &["a b"]);
        assert_eq!(encode(&known, "ab").unwrap(), [1]);
        assert!(encode(&known, "a").is_err());
    }
}
