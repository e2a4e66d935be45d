//! The data that a tokenizer is built from, and the checks that it is consistent.

use super::{byte_level, pretokenizer};
use crate::error::{Error, Result};

/// The type of a token, from the file's `tokenizer.ggml.token_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum TokenType {
    /// A piece of text. Types that the format does not define count as this one.
    #[default]
    Normal,
    /// Stands for text that the vocabulary cannot express. Treated like [`Control`](Self::Control).
    Unknown,
    /// Controls the model and never stands for text, such as `<|user|>`.
    Control,
    /// Text that is always one token. If it is [markup](super::Tokenizer), such as `<think>`, it is reserved for the
    /// template.
    UserDefined,
    /// Padding of the vocabulary, never trained.
    Unused,
    /// One raw byte, written `<0x0A>`.
    Byte,
}

impl TokenType {
    /// The type with this number in GGUF. Numbers that the format does not define give [`Normal`](Self::Normal), so
    /// that such a token still decodes to its text.
    pub fn from_gguf(number: i32) -> Self {
        match number {
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => Self::Normal,
        }
    }

    /// Whether the token must never be made from plain text.
    pub(super) fn is_control(self) -> bool {
        matches!(self, Self::Control | Self::Unknown)
    }

    /// Whether only the template's own text may become the token, which is so for control tokens and for markup. Spaces
    /// after markup may be part of the token.
    pub(super) fn is_reserved(self, text: &str) -> bool {
        let text = text.trim_end();
        let within = |open, close| text.len() > 2 && text.starts_with(open) && text.ends_with(close);
        self.is_control() || self == Self::UserDefined && (within('<', '>') || within('[', ']'))
    }

    /// Whether the token's text is stored verbatim, not in the byte-level alphabet.
    pub(super) fn is_literal(self) -> bool {
        self.is_control() || self == Self::UserDefined
    }
}

/// The data that a [`Tokenizer`](super::Tokenizer) is built from: the `tokenizer.ggml.*` metadata of a file whose
/// `tokenizer.ggml.model` is `gpt2`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Vocab {
    /// `tokens`: the text of every token, by id. If two have the same text, text is encoded to the first one; both can
    /// be decoded.
    pub tokens: Vec<String>,
    /// `token_type`: one for each token; further ones are ignored. If the file has none, this is empty and all tokens
    /// are normal.
    pub types: Vec<TokenType>,
    /// `merges`: pairs of tokens with a space between them, highest priority first.
    pub merges: Vec<String>,
    /// `pre`: the name of the rule that cuts text into words. Without one (`default`, or nothing) llama.cpp's default
    /// applies.
    pub pre: String,
    /// `bos_token_id`.
    pub bos: Option<u32>,
    /// `add_bos_token`: whether every encoded text starts with `bos`. GLM's does not.
    pub add_bos: bool,
    /// `eos_token_id`, whose name templates may write.
    pub eos: Option<u32>,
    /// `eos_token_id`, `eot_token_id`, `eom_token_id`, and those of what follows a text in a gap, `fim_pad_token_id`,
    /// `fim_rep_token_id` and `fim_sep_token_id`, as far as the file has them. A reply ends at any of them. An id that
    /// is not in the vocabulary counts as absent.
    pub end: Vec<u32>,
    /// `fim_pre_token_id`, `fim_suf_token_id` and `fim_mid_token_id`, for texts with a gap: see
    /// [`InfillTokens`](super::InfillTokens). An id that is not in the vocabulary counts as absent.
    pub infill: [Option<u32>; 3],
}

impl Vocab {
    /// Returns an error if the tables are inconsistent. Fills in absent types, and drops those beyond the last token.
    pub(super) fn check(&mut self) -> Result<()> {
        let tokens = self.tokens.len();
        if tokens == 0 {
            return Err(failed("`tokenizer.ggml.tokens` is empty: expected at least one token".into()));
        }
        if self.types.is_empty() {
            self.types = vec![TokenType::Normal; tokens];
        }
        self.types.truncate(tokens);
        if self.types.len() < tokens {
            return Err(failed(format!("{tokens} tokens, but {} token types", self.types.len())));
        }
        if self.tokens.iter().map(String::len).sum::<usize>() > u32::MAX as usize {
            return Err(failed("the tokens hold more than 4 GiB of text".into()));
        }
        if self.add_bos && self.bos.is_none() {
            return Err(failed(
                "`tokenizer.ggml.add_bos_token` is set, but there is no `tokenizer.ggml.bos_token_id`".into(),
            ));
        }
        let is_known = |id: &u32| (*id as usize) < tokens;
        self.end.retain(is_known);
        match self.bos.filter(|bos| self.add_bos && !is_known(bos)) {
            Some(token) => Err(Error::TokenOutOfRange { token, vocab: tokens }),
            None => Ok(()),
        }
    }

    /// Sentences about what the vocabulary lacks, and about ids of tokens that end a reply but are not in it.
    pub(super) fn notices(&self) -> Vec<String> {
        let mut notices = Vec::new();
        if pretokenizer::is_unnamed(&self.pre) {
            notices.push(
                "the file does not name its pre-tokenizer (`tokenizer.ggml.pre`): text is cut into words by \
                 llama.cpp's default rule, and if the model was trained with another one, its answers are worse; \
                 convert the model again"
                    .to_owned(),
            );
        }
        if self.merges.is_empty() {
            notices.push("the vocabulary has no merges: a text is encoded byte by byte, which makes it long".into());
        }
        let unknown = self.end.iter().filter(|id| **id as usize >= self.tokens.len());
        let unknown: Vec<String> = unknown.map(u32::to_string).collect();
        if !unknown.is_empty() {
            let ids = unknown.join(", ");
            notices.push(format!("tokens that would end a reply are not in the vocabulary and are ignored: {ids}"));
        }
        notices
    }

    /// The text, id and type of every token.
    pub(super) fn typed(&self) -> impl Iterator<Item = (&str, u32, TokenType)> {
        self.tokens.iter().zip(&self.types).zip(0..).map(|((text, &kind), id)| (text.as_str(), id, kind))
    }

    /// The bytes of all tokens one after the other, and the position where each ends.
    pub(super) fn spell_out(&self) -> (Vec<u8>, Vec<u32>) {
        let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(self.tokens.len()));
        for (text, _, kind) in self.typed() {
            match raw_byte(text).filter(|_| kind == TokenType::Byte) {
                Some(byte) => bytes.push(byte),
                None if kind.is_literal() => bytes.extend_from_slice(text.as_bytes()),
                None => byte_level::decode(text, &mut bytes),
            }
            // Decoding never lengthens a token, so the total stays within the limit that was checked.
            ends.push(bytes.len() as u32);
        }
        (bytes, ends)
    }
}

/// The byte that a name such as `<0x0A>` stands for.
pub(super) fn raw_byte(text: &str) -> Option<u8> {
    u8::from_str_radix(text.strip_prefix("<0x")?.strip_suffix('>')?, 16).ok()
}

/// The error for a defect of the vocabulary.
pub(super) fn failed(message: String) -> Error {
    Error::Tokenizer { message }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn vocab(tokens: usize, types: usize) -> Vocab {
        let types = vec![TokenType::Control; types];
        Vocab { tokens: vec!["a".to_owned(); tokens], types, pre: "glm4".into(), ..Vocab::default() }
    }

    #[test]
    fn types_are_cut_to_the_tokens() {
        for (types, then) in [(0, TokenType::Normal), (2, TokenType::Control), (5, TokenType::Control)] {
            let mut vocab = vocab(2, types);
            vocab.check().unwrap();
            assert_eq!(vocab.types, [then; 2], "{types}");
        }
        assert!(vocab(2, 1).check().unwrap_err().to_string().contains("2 tokens, but 1 token types"));
        assert!(vocab(0, 0).check().unwrap_err().to_string().contains("at least one token"));
    }

    #[test]
    fn what_a_vocabulary_lacks_is_said() {
        let whole = Vocab { merges: vec!["a a".into()], ..vocab(1, 0) };
        assert!(whole.notices().is_empty());
        let says = |vocab: &Vocab, part: &str| vocab.notices().iter().any(|notice| notice.contains(part));
        for pre in ["", "default"] {
            assert!(says(&Vocab { pre: pre.into(), ..whole.clone() }, "tokenizer.ggml.pre"), "{pre}");
        }
        assert!(says(&Vocab { merges: Vec::new(), ..whole.clone() }, "no merges"));
        assert!(says(&Vocab { end: vec![0, 7, 8], ..whole }, "ignored: 7, 8"));
    }
}
