//! Prompts that are not conversations: texts, tokens, or both mixed.

use super::failure::Failure;
use super::server::LoadedModel;
use serde::de::value::MapAccessDeserializer;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use wglm_engine::Error;
use wglm_engine::text::Tokenizer;

/// A prompt or several. A list of texts is several prompts, and one of texts and tokens is a single prompt, as in
/// llama.cpp's server.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a string, a list of token ids, or a list of prompts")]
pub enum Prompts {
    Text(String),
    Tokens(Vec<u32>),
    Several(Vec<One>),
    Mixed(Vec<Piece>),
    Object(Object),
}

/// One of several prompts.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum One {
    Text(String),
    Tokens(Vec<u32>),
    Mixed(Vec<Piece>),
    Object(Object),
}

/// A text in an object, which llama.cpp's server reads with the data of pictures and sounds.
#[derive(Debug, Deserialize)]
#[serde(remote = "Self")] // so that the function below can read only an object, and not a list of two
pub struct Object {
    prompt_string: String,
    multimodal_data: Option<OneOrMany>,
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct AsMap;

        impl<'de> Visitor<'de> for AsMap {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with a prompt_string")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object, A::Error> {
                Object::deserialize(MapAccessDeserializer::new(map))
            }
        }

        from.deserialize_map(AsMap)
    }
}

/// The data of pictures and sounds. Only its size matters.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    Many(Vec<IgnoredAny>),
    One(IgnoredAny),
}

impl Object {
    fn text(self) -> Result<String, Failure> {
        match self.multimodal_data {
            None => Ok(self.prompt_string),
            Some(OneOrMany::Many(data)) if data.is_empty() => Ok(self.prompt_string),
            Some(_) => Err(Failure::of_field("prompt.multimodal_data", "this model reads text only")),
        }
    }
}

/// A part of a prompt.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Piece {
    Token(u32),
    Text(String),
}

impl Prompts {
    pub fn count(&self) -> usize {
        match self {
            Self::Text(_) | Self::Tokens(_) | Self::Mixed(_) | Self::Object(_) => 1,
            Self::Several(all) => all.len(),
        }
    }

    /// The texts, for a request in which no prompt can be tokens.
    pub fn texts(self) -> Result<Vec<String>, Failure> {
        let wrong = || Failure::of_field("prompt", "expected a string or a list of strings, because there is a suffix");
        let text = |one| if let One::Text(text) = one { Ok(text) } else { Err(wrong()) };
        match self {
            Self::Text(text) => Ok(vec![text]),
            Self::Several(all) => all.into_iter().map(text).collect(),
            Self::Tokens(_) | Self::Mixed(_) | Self::Object(_) => Err(wrong()),
        }
    }

    /// The tokens of each prompt. A prompt that is longer than the context is refused, and a text that is certain to be
    /// too long is refused before it is encoded.
    pub fn tokens(self, loaded: &LoadedModel) -> Result<Vec<Vec<u32>>, Failure> {
        let (tokenizer, context) = (loaded.model.tokenizer()?, loaded.scheduler.context());
        let encoder = Encoder { tokenizer, context, parses_special: true };
        let all = match self {
            Self::Text(text) => vec![One::Text(text)],
            Self::Tokens(tokens) => vec![One::Tokens(tokens)],
            Self::Mixed(pieces) => vec![One::Mixed(pieces)],
            Self::Object(object) => vec![One::Object(object)],
            Self::Several(all) => all,
        };
        all.into_iter().map(|one| encoder.tokens(one)).collect()
    }
}

/// The number of tokens that precede every text of the model.
pub fn start_tokens(tokenizer: &Tokenizer) -> Result<usize, Failure> {
    Ok(tokenizer.encode("", false)?.len())
}

/// Turns prompts into tokens.
pub struct Encoder<'a> {
    tokenizer: &'a Tokenizer,
    context: usize,
    /// Whether the names of control tokens in a text are these tokens.
    parses_special: bool,
}

impl<'a> Encoder<'a> {
    /// For texts in which the names of control tokens are text.
    pub fn of_text(loaded: &'a LoadedModel) -> Result<Self, Failure> {
        let (tokenizer, context) = (loaded.model.tokenizer()?, loaded.scheduler.context());
        Ok(Self { tokenizer, context, parses_special: false })
    }

    /// Refuses more tokens than the context holds.
    pub fn fits(&self, needed: usize) -> Result<(), Failure> {
        let context = self.context;
        if needed > context { Err(Error::ContextFull { needed, context }.into()) } else { Ok(()) }
    }

    /// The tokens of a text. One that is certain to be too long is refused before it is encoded.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, Failure> {
        if text.len() > Tokenizer::SHORT {
            self.fits(text.len().div_ceil(self.tokenizer.longest_token()))?;
        }
        Ok(self.tokenizer.encode(text, self.parses_special)?)
    }

    /// The tokens of a text, or those of a beginning that is certain to have more tokens than the context.
    pub fn encode_beginning(&self, text: &str) -> Result<Vec<u32>, Failure> {
        Ok(self.tokenizer.encode(beginning(text, self.enough()), self.parses_special)?)
    }

    /// The tokens of a text, or those of an end that is certain to have more tokens than the context. Without
    /// the token that precedes every text of some models.
    pub fn encode_end_without_bos(&self, text: &str) -> Result<Vec<u32>, Failure> {
        self.encode_without_bos(end(text, self.enough()))
    }

    /// Like [`encode_end_without_bos`](Self::encode_end_without_bos), for the beginning of a text.
    pub fn encode_beginning_without_bos(&self, text: &str) -> Result<Vec<u32>, Failure> {
        self.encode_without_bos(beginning(text, self.enough()))
    }

    fn encode_without_bos(&self, text: &str) -> Result<Vec<u32>, Failure> {
        let start = start_tokens(self.tokenizer)?;
        Ok(self.tokenizer.encode(text, self.parses_special)?.split_off(start))
    }

    /// The bytes of a text that is certain to have more tokens than the context.
    fn enough(&self) -> usize {
        self.context.saturating_add(1).saturating_mul(self.tokenizer.longest_token())
    }

    /// The tokens of a prompt. More than the context holds are refused.
    pub fn tokens(&self, prompt: One) -> Result<Vec<u32>, Failure> {
        let tokens = match prompt {
            One::Text(text) => self.encode(&text)?,
            One::Tokens(tokens) => tokens,
            One::Mixed(pieces) => self.mixed(pieces)?,
            One::Object(object) => self.encode(&object.text()?)?,
        };
        self.fits(tokens.len())?;
        Ok(tokens)
    }

    /// The tokens of all pieces. The tokens that precede every text of the model are added only if the first piece is a
    /// text.
    fn mixed(&self, pieces: Vec<Piece>) -> Result<Vec<u32>, Failure> {
        let start = start_tokens(self.tokenizer)?;
        let mut tokens = Vec::new();
        for (index, piece) in pieces.into_iter().enumerate() {
            match piece {
                Piece::Token(token) => tokens.push(token),
                Piece::Text(text) => {
                    tokens.extend(self.encode(&text)?.into_iter().skip(if index == 0 { 0 } else { start }))
                }
            }
            self.fits(tokens.len())?;
        }
        Ok(tokens)
    }
}

/// The beginning of a text with at least `least` bytes, or the whole text if it has fewer. It ends after a character.
fn beginning(text: &str, least: usize) -> &str {
    let end = (least..text.len()).find(|end| text.is_char_boundary(*end));
    end.map_or(text, |end| &text[..end])
}

/// The end of a text with at least `least` bytes, or the whole text if it has fewer. It begins with a character.
fn end(text: &str, least: usize) -> &str {
    let mut starts = (0..=text.len().saturating_sub(least)).rev();
    starts.find(|start| text.is_char_boundary(*start)).map_or(text, |start| &text[start..])
}

#[cfg(test)]
mod tests {
    use super::{beginning, end};

    #[test]
    fn an_end_begins_with_a_character() {
        let text = "a\u{20ac}b";
        let ends = [0, 1, 2, 3, 4, 5, usize::MAX].map(|least| end(text, least));
        assert_eq!(ends, ["", "b", "\u{20ac}b", "\u{20ac}b", "\u{20ac}b", text, text]);
    }

    #[test]
    fn a_beginning_ends_after_a_character() {
        let text = "a\u{20ac}b";
        let beginnings = [0, 1, 2, 3, 4, 5, usize::MAX].map(|least| beginning(text, least));
        assert_eq!(beginnings, ["", "a", "a\u{20ac}", "a\u{20ac}", "a\u{20ac}", text, text]);
    }
}
