//! What a tokenizer is built from, as plain data, and whether it fits together.

use super::byte_level;
use crate::error::{Error, Result};

/// What a token is for: the file's `tokenizer.ggml.token_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TokenType {
    /// A piece of text, or a type that the format does not define.
    #[default]
    Normal,
    /// The token for what the vocabulary cannot express. Treated like [`Control`](Self::Control).
    Unknown,
    /// Steers the model and never stands for text, such as `<|user|>`.
    Control,
    /// Text that is one token: where it is [markup](super::Tokenizer), such as `<think>`, the template's own.
    UserDefined,
    /// Fills the vocabulary up; never trained.
    Unused,
    /// One raw byte, written `<0x0A>`.
    Byte,
}

impl TokenType {
    /// The type that GGUF numbers `number`. A number that the format does not define is
    /// [`Normal`](Self::Normal): such a token still decodes to its text.
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

    /// True for tokens that must never arise from plain text.
    pub(super) fn is_control(self) -> bool {
        matches!(self, Self::Control | Self::Unknown)
    }

    /// True for tokens that text makes only where it is the template's own: control tokens, and tags.
    pub(super) fn is_reserved(self, text: &str) -> bool {
        let within = |open, close| text.len() > 2 && text.starts_with(open) && text.ends_with(close);
        self.is_control() || self == Self::UserDefined && (within('<', '>') || within('[', ']'))
    }

    /// True for tokens whose text is stored as it is, not in the byte-level alphabet.
    pub(super) fn is_literal(self) -> bool {
        self.is_control() || self == Self::UserDefined
    }
}

/// What a [`Tokenizer`](super::Tokenizer) is built from: the `tokenizer.ggml.*` metadata of a file whose
/// `tokenizer.ggml.model` is `gpt2`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Vocab {
    /// `tokens`: the text of every token, by id. Where two have the same text, the first is the one that
    /// text is encoded to; both decode.
    pub tokens: Vec<String>,
    /// `token_type`: one for each token; empty if the file has none, and all are normal.
    pub types: Vec<TokenType>,
    /// `merges`: pairs of tokens with a blank between them, the most urgent first.
    pub merges: Vec<String>,
    /// `pre`: the name of the rule that cuts text into words.
    pub pre: String,
    /// `bos_token_id`.
    pub bos: Option<u32>,
    /// `add_bos_token`: whether every encoded text starts with `bos`. GLM's does not.
    pub add_bos: bool,
    /// `eos_token_id`, `eot_token_id`, `eom_token_id`, those the file has: a reply ends at any of them.
    pub end: Vec<u32>,
}

impl Vocab {
    /// Refuses tables that do not fit together, and fills in absent types.
    pub(super) fn check(&mut self) -> Result<()> {
        let tokens = self.tokens.len();
        if self.types.is_empty() {
            self.types = vec![TokenType::Normal; tokens];
        }
        if self.types.len() != tokens {
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
        let bos = self.bos.as_ref().filter(|_| self.add_bos);
        match self.end.iter().chain(bos).find(|&&id| id as usize >= tokens) {
            Some(&token) => Err(Error::TokenOutOfRange { token, vocab: tokens }),
            None => Ok(()),
        }
    }

    /// Every token's text, id and type.
    pub(super) fn typed(&self) -> impl Iterator<Item = (&str, u32, TokenType)> {
        self.tokens.iter().zip(&self.types).zip(0..).map(|((text, &kind), id)| (text.as_str(), id, kind))
    }

    /// The bytes of all tokens end to end, and where each ends.
    pub(super) fn spell_out(&self) -> (Vec<u8>, Vec<u32>) {
        let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(self.tokens.len()));
        for (text, _, kind) in self.typed() {
            match raw_byte(text).filter(|_| kind == TokenType::Byte) {
                Some(byte) => bytes.push(byte),
                None if kind.is_literal() => bytes.extend_from_slice(text.as_bytes()),
                None => byte_level::decode(text, &mut bytes),
            }
            // Decoding never lengthens a token, so the total that was checked still holds.
            ends.push(bytes.len() as u32);
        }
        (bytes, ends)
    }
}

/// The byte that `<0x0A>` names.
pub(super) fn raw_byte(text: &str) -> Option<u8> {
    u8::from_str_radix(text.strip_prefix("<0x")?.strip_suffix('>')?, 16).ok()
}

/// The error of a defect.
pub(super) fn failed(message: String) -> Error {
    Error::Tokenizer { message }
}
