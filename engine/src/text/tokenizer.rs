//! Byte-level BPE with a file's vocabulary.
//!
//! Any text can be encoded, if the vocabulary has a token for every byte, and decoding returns it byte for byte.
//! Encoding turns text into control tokens and tags only on request, and in a
//! [prompt](super::ChatTemplate::prompt) only the template's own text. A vocabulary with a defect is refused when it is
//! loaded, with an error that names the defect.

use super::bpe::WordEncoder;
use super::marker::{Marker, unmark};
use super::pretokenizer::{self, Words};
use super::special::{SpecialFilter, SpecialTokens};
use super::{InfillTokens, TokenType, Vocab, ends};
use crate::error::{Error, Result};
use std::fmt;

/// The longest word in bytes that is merged as a whole. Merging takes about 160 bytes of memory for each byte of a
/// word, and a text of megabytes can be a single word. A longer word is merged in pieces, whose tokens may differ at
/// the seams.
const LONGEST_WORD: usize = 1 << 16;

/// Turns text into tokens and tokens into bytes.
///
/// Some tokens of a vocabulary are reserved: control tokens such as `<|user|>`, and those user-defined tokens that are
/// markup, enclosed in `<` and `>` or in `[` and `]`, such as `<think>`. Tokens that are known by name to end a reply
/// count as control tokens, whatever their type. In a prompt only the template's own text becomes a reserved token.
/// Other user-defined tokens, such as runs of spaces, are plain text and recognized anywhere.
///
/// Reserved tokens are found first: of those in a text the leftmost, and of several that begin there the longest, then
/// the next ones after it. The other user-defined tokens are found in the same way in the text between.
pub struct Tokenizer {
    encoder: WordEncoder,
    words: Words,
    specials: SpecialTokens,
    marker: Marker,
    types: Vec<TokenType>,
    /// The bytes of all tokens, one after the other.
    bytes: Vec<u8>,
    /// Where each token ends in `bytes`.
    ends: Vec<u32>,
    /// The bytes of the longest token.
    longest: usize,
    bos: Option<u32>,
    end: Vec<u32>,
    infill: Option<InfillTokens>,
    notices: Vec<String>,
}

impl Tokenizer {
    /// A text of up to this many bytes is encoded even if it cannot fit the context: that takes tens of milliseconds,
    /// and the error then has the exact number of tokens.
    pub const SHORT: usize = 256 << 10;

    /// Builds a tokenizer.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] if the vocabulary has a defect.
    pub fn new(mut vocab: Vocab) -> Result<Self> {
        let family = pretokenizer::family(&vocab.pre)?;
        let mut notices = vocab.notices();
        vocab.check()?;
        let end = ends::of_reply(&mut vocab, family);
        let (bytes, ends) = vocab.spell_out();
        let starts = [0].into_iter().chain(ends.iter().copied());
        let longest = starts.zip(&ends).map(|(start, end)| (end - start) as usize).max().unwrap_or(0).max(1);
        let literal = vocab.typed().filter(|(_, _, kind)| kind.is_literal());
        let specials = SpecialTokens::new(literal.map(|(text, id, kind)| (text, id, kind.is_reserved(text))));
        let reserved = vocab.typed().filter(|(text, _, kind)| kind.is_reserved(text));
        let marker = Marker::new(reserved.map(|(text, ..)| text));
        let bos = vocab.bos.filter(|_| vocab.add_bos);
        let known = |id: &u32| (*id as usize) < ends.len();
        let infill = InfillTokens::of(vocab.infill.map(|id| id.filter(known)), &specials);
        let encoder = WordEncoder::new(&mut vocab, family, &mut notices)?;
        let (words, types) = (family.compile()?, vocab.types);
        Ok(Self { encoder, words, specials, marker, types, bytes, ends, longest, bos, end, infill, notices })
    }

    /// Encodes `text`, preceded by the beginning-of-text token if the file wants one.
    ///
    /// Reserved tokens such as `<|user|>` and `<think>` are recognized only if `parse_special`; otherwise their names
    /// are plain text. Other user-defined tokens are always recognized.
    ///
    /// # Errors
    /// [`Error::NoToken`] if the vocabulary has none for a byte of the text.
    pub fn encode(&self, text: &str, parse_special: bool) -> Result<Vec<u32>> {
        let mut tokens = self.start();
        if parse_special {
            self.cut(text, SpecialFilter::Reserved, &mut tokens, |text, tokens| self.encode_free(text, tokens))?;
        } else {
            self.encode_free(text, &mut tokens)?;
        }
        Ok(tokens)
    }

    /// Encodes a prompt that a template rendered from [marked](Self::marker) strings. Reserved tokens are recognized
    /// where their names contain no mark.
    pub(super) fn encode_marked(&self, prompt: &str) -> Result<Vec<u32>> {
        let mut tokens = self.start();
        self.cut(prompt, SpecialFilter::Reserved, &mut tokens, |text, tokens| {
            // Marks may have split the names of the other literal tokens.
            self.encode_free(&unmark(text), tokens)
        })?;
        // Some templates write the beginning-of-text token themselves.
        if self.bos.is_some_and(|bos| tokens.starts_with(&[bos, bos])) {
            tokens.remove(0);
        }
        Ok(tokens)
    }

    /// # Errors
    /// [`Error::ContextFull`] with the fewest tokens possible, if a long prompt of [marked](Self::marker) strings must
    /// have more than `context` tokens.
    pub(crate) fn check_length(&self, prompt: &str, context: usize) -> Result<()> {
        if prompt.len() <= Self::SHORT || prompt.len().div_ceil(self.longest) <= context {
            return Ok(());
        }
        let needed = unmark(prompt).len().div_ceil(self.longest);
        if needed <= context { Ok(()) } else { Err(Error::ContextFull { needed, context }) }
    }

    /// The marker for strings that come from outside a template.
    pub(super) fn marker(&self) -> &Marker {
        &self.marker
    }

    /// The tokens that every text begins with.
    fn start(&self) -> Vec<u32> {
        self.bos.into_iter().collect()
    }

    /// Splits a text at its literal tokens, and encodes the text between them with `plain`.
    fn cut(
        &self,
        text: &str,
        which: SpecialFilter,
        tokens: &mut Vec<u32>,
        plain: impl Fn(&str, &mut Vec<u32>) -> Result<()>,
    ) -> Result<()> {
        let mut rest = text;
        while let Some((start, end, id)) = self.specials.find(rest, which) {
            plain(&rest[..start], tokens)?;
            tokens.push(id);
            rest = &rest[end..];
        }
        plain(rest, tokens)
    }

    /// Encodes a text without reserved tokens.
    fn encode_free(&self, text: &str, tokens: &mut Vec<u32>) -> Result<()> {
        self.cut(text, SpecialFilter::Free, tokens, |text, tokens| self.encode_plain(text, tokens))
    }

    fn encode_plain(&self, text: &str, tokens: &mut Vec<u32>) -> Result<()> {
        self.words.cut(text, &mut |word| pieces(word).try_for_each(|word| self.encoder.encode(word, tokens)))
    }

    /// Sentences about what the vocabulary lacks, and about what of it is ignored.
    pub(crate) fn notices(&self) -> &[String] {
        &self.notices
    }

    /// The number of bytes of the longest token: a text of more than `n` times as many bytes has more than `n` tokens.
    pub fn longest_token(&self) -> usize {
        self.longest
    }

    /// The bytes of `token`. For a control token these are its name.
    ///
    /// # Errors
    /// [`Error::TokenOutOfRange`] if the token is not in the vocabulary.
    pub fn token_bytes(&self, token: u32) -> Result<&[u8]> {
        let index = self.index(token)?;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        Ok(&self.bytes[start..self.ends[index] as usize])
    }

    /// The bytes of `token` as a reader should see them: none for a control token, unless `show_special`.
    ///
    /// # Errors
    /// [`Error::TokenOutOfRange`] if the token is not in the vocabulary.
    pub fn visible_bytes(&self, token: u32, show_special: bool) -> Result<&[u8]> {
        let hidden = self.types[self.index(token)?].is_control() && !show_special;
        if hidden { Ok(&[]) } else { self.token_bytes(token) }
    }

    /// The text of `tokens`. Control tokens are omitted unless `show_special`. Bytes that are not UTF-8 become U+FFFD.
    /// [`Detokenizer`](super::Detokenizer) does the same token by token.
    ///
    /// # Errors
    /// [`Error::TokenOutOfRange`] if a token is not in the vocabulary.
    pub fn decode(&self, tokens: &[u32], show_special: bool) -> Result<String> {
        let mut bytes = Vec::new();
        for &token in tokens {
            bytes.extend_from_slice(self.visible_bytes(token, show_special)?);
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Whether a reply ends at `token`.
    pub fn is_end(&self, token: u32) -> bool {
        self.end.contains(&token)
    }

    /// The tokens that end a reply, lowest first.
    pub fn end_tokens(&self) -> &[u32] {
        &self.end
    }

    /// The tokens for a text with a gap, if the vocabulary has them.
    pub fn infill_tokens(&self) -> Option<InfillTokens> {
        self.infill
    }

    /// The id of the control or user-defined token called `name`, such as `<|user|>`.
    pub fn special(&self, name: &str) -> Option<u32> {
        self.specials.id(name)
    }

    /// Whether only a template's own text may become `token`: see [`Tokenizer`].
    pub fn is_reserved(&self, token: u32) -> bool {
        let known = self.token_bytes(token).ok().zip(self.token_type(token).ok());
        known.is_some_and(|(bytes, kind)| kind.is_reserved(&String::from_utf8_lossy(bytes)))
    }

    /// The type of `token`.
    ///
    /// # Errors
    /// [`Error::TokenOutOfRange`] if the token is not in the vocabulary.
    pub fn token_type(&self, token: u32) -> Result<TokenType> {
        Ok(self.types[self.index(token)?])
    }

    /// The number of tokens. Ids are below it.
    pub fn vocab_size(&self) -> usize {
        self.ends.len()
    }

    fn index(&self, token: u32) -> Result<usize> {
        let (index, vocab) = (token as usize, self.vocab_size());
        if index < vocab { Ok(index) } else { Err(Error::TokenOutOfRange { token, vocab }) }
    }
}

/// A word in pieces of at most [`LONGEST_WORD`] bytes, rounded up to whole characters.
fn pieces(word: &str) -> impl Iterator<Item = &str> {
    let mut rest = word;
    std::iter::from_fn(move || {
        let end = (LONGEST_WORD.min(rest.len())..=rest.len()).find(|end| rest.is_char_boundary(*end))?;
        let (piece, after) = rest.split_at(end);
        rest = after;
        (!piece.is_empty()).then_some(piece)
    })
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokenizer")
            .field("tokens", &self.vocab_size())
            .field("bos", &self.bos)
            .field("end", &self.end)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::{LONGEST_WORD, pieces};

    #[test]
    fn long_words_are_cut_between_characters() {
        let cut = |word: &str| pieces(word).map(str::len).collect::<Vec<_>>();
        assert_eq!(cut("word"), [4]);
        assert!(cut("").is_empty());
        assert_eq!(cut(&"a".repeat(2 * LONGEST_WORD)), [LONGEST_WORD; 2]);
        let word = "€".repeat(LONGEST_WORD);
        assert_eq!(pieces(&word).collect::<String>(), word);
        assert!(cut(&word).iter().all(|bytes| *bytes <= LONGEST_WORD + 2), "{:?}", cut(&word));
    }
}
