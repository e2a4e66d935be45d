//! The texts of a request: a text, a list of texts, the tokens of a text, or a list of texts and lists of tokens.

use super::TEXTS;
use crate::serve::failure::Failure;
use crate::serve::fields::at_most;
use crate::serve::prompts::Encoder;
use crate::serve::server::LoadedModel;
use serde::de::{Error as _, IgnoredAny, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use wglm_engine::Error;

const EXPECTED: &str = "a text, a list of texts, a list of token ids, or a list of lists of token ids";

/// Texts, of which at most [`TEXTS`] are kept.
#[derive(Debug, Default)]
pub struct Input {
    texts: Vec<Text>,
    /// How many the body has.
    count: usize,
}

/// A text, or its tokens.
#[derive(Debug)]
enum Text {
    Plain(String),
    Tokens(Vec<u32>),
}

impl Text {
    fn is_empty(&self) -> bool {
        match self {
            Self::Plain(text) => text.is_empty(),
            Self::Tokens(tokens) => tokens.is_empty(),
        }
    }
}

impl Input {
    /// Whether there is no text, or a single empty one.
    pub fn is_nothing(&self) -> bool {
        self.count == 0 || self.count == 1 && self.texts.iter().all(Text::is_empty)
    }

    /// The tokens of each text, which the field `field` has, and how many of the texts were cut. A text that is longer
    /// than the context is cut if `truncates`, and otherwise refused. Control tokens in texts are text.
    pub fn tokens(self, field: &str, loaded: &LoadedModel, truncates: bool) -> Result<(Vec<Vec<u32>>, usize), Failure> {
        at_most(field, self.count, TEXTS, "texts")?;
        let (context, vocab) = (loaded.scheduler.context(), loaded.model.config().vocab);
        let encoder = Encoder::of_text(loaded)?;
        let (mut all, mut cut) = (Vec::with_capacity(self.texts.len()), 0);
        for (index, text) in self.texts.into_iter().enumerate() {
            let wrong = |failure: Failure| Failure {
                message: format!("{field}: text {index}: {}", failure.message),
                ..failure.with_param(field)
            };
            let mut tokens = match text {
                Text::Plain(text) if text.is_empty() => Vec::new(),
                Text::Plain(text) if truncates => encoder.encode_beginning(&text).map_err(wrong)?,
                Text::Plain(text) => encoder.encode(&text).map_err(wrong)?,
                Text::Tokens(tokens) => tokens,
            };
            if tokens.is_empty() {
                return Err(wrong(Failure::invalid("it is empty; expected at least one token")));
            }
            match truncates {
                true => cut += usize::from(tokens.len() > context),
                false => encoder.fits(tokens.len()).map_err(wrong)?,
            }
            if let Some(&token) = tokens.iter().find(|token| **token as usize >= vocab) {
                return Err(wrong(Error::TokenOutOfRange { token, vocab }.into()));
            }
            tokens.truncate(context);
            tokens.shrink_to_fit(); // its memory is counted by the number of tokens
            all.push(tokens);
        }
        Ok((all, cut))
    }

    /// A single text.
    pub fn of(text: String) -> Self {
        Self { texts: vec![Text::Plain(text)], count: 1 }
    }

    /// The failure of a request without a text.
    pub fn missing(field: &str) -> Failure {
        Failure::of_field(field, format_args!("there is no text; expected {EXPECTED}"))
    }
}

impl<'de> Deserialize<'de> for Input {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(InputVisitor)
    }
}

struct InputVisitor;

impl<'de> Visitor<'de> for InputVisitor {
    type Value = Input;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(EXPECTED)
    }

    fn visit_str<E>(self, text: &str) -> Result<Input, E> {
        Ok(Input::of(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Input, A::Error> {
        let (mut input, mut tokens) = (Input::default(), Vec::new());
        while input.count <= TEXTS {
            match items.next_element()? {
                None => break,
                Some(Item::Token(token)) if input.count == 0 => tokens.push(token),
                Some(Item::Text(text)) if tokens.is_empty() => {
                    input.texts.push(text);
                    input.count += 1;
                }
                Some(_) => {
                    return Err(A::Error::custom(format!("texts and single tokens in a list: expected {EXPECTED}")));
                }
            }
        }
        while items.next_element::<IgnoredAny>()?.is_some() {
            input.count += 1;
        }
        if !tokens.is_empty() {
            input = Input { texts: vec![Text::Tokens(tokens)], count: 1 };
        }
        Ok(input)
    }
}

/// An item of a list. Bodies read it without a copy of the list, which may have a million tokens.
enum Item {
    Token(u32),
    Text(Text),
}

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ItemVisitor)
    }
}

struct ItemVisitor;

impl<'de> Visitor<'de> for ItemVisitor {
    type Value = Item;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a text, a token id or a list of token ids")
    }

    fn visit_str<E>(self, text: &str) -> Result<Item, E> {
        Ok(Item::Text(Text::Plain(text.to_owned())))
    }

    fn visit_u64<E: serde::de::Error>(self, token: u64) -> Result<Item, E> {
        u32::try_from(token).map(Item::Token).map_err(|_| E::invalid_value(Unexpected::Unsigned(token), &self))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Item, A::Error> {
        let mut tokens = Vec::new();
        while let Some(token) = items.next_element()? {
            tokens.push(token);
        }
        Ok(Item::Text(Text::Tokens(tokens)))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Input, TEXTS, Text};
    use serde_json::{Value, json};

    /// The texts, where tokens are written as `[1, 2]`.
    fn texts(given: &Value) -> Vec<String> {
        let input: Input = serde_json::from_str(&given.to_string()).unwrap();
        assert_eq!(input.count, input.texts.len());
        let shown = |text: Text| match text {
            Text::Plain(text) => text,
            Text::Tokens(tokens) => format!("{tokens:?}"),
        };
        input.texts.into_iter().map(shown).collect()
    }

    #[test]
    fn texts_and_tokens_are_distinguished() {
        assert_eq!(texts(&json!("a")), ["a"]);
        assert_eq!(texts(&json!(["a", "", "b"])), ["a", "", "b"]);
        assert_eq!(texts(&json!([1, 2])), ["[1, 2]"]);
        assert_eq!(texts(&json!([[1, 2], [], "a", [3]])), ["[1, 2]", "[]", "a", "[3]"]);
        assert!(texts(&json!([])).is_empty());
        for wrong in
            [json!(["a", 1]), json!([1, "a"]), json!([1, [2]]), json!(1.5), json!([[-1]]), json!({}), json!([{}])]
        {
            assert!(serde_json::from_value::<Input>(wrong.clone()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn nothing_is_no_text_or_an_empty_one() {
        let is_nothing = |given: Value| serde_json::from_value::<Input>(given).unwrap().is_nothing();
        assert!(is_nothing(json!([])) && is_nothing(json!("")) && is_nothing(json!([""])) && is_nothing(json!([[]])));
        assert!(!is_nothing(json!("a")) && !is_nothing(json!([0])) && !is_nothing(json!(["", ""])));
    }

    #[test]
    fn texts_beyond_the_limit_are_counted_and_not_kept() {
        let input: Input = serde_json::from_value(json!(vec!["a"; 3 * TEXTS])).unwrap();
        assert_eq!((input.count, input.texts.len()), (3 * TEXTS, TEXTS + 1));
        let many: Input = serde_json::from_value(json!(vec![7; 3 * TEXTS])).unwrap();
        assert_eq!(many.count, 1, "the tokens of one text");
    }
}
