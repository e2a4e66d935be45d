//! Prompts for fill-in-the-middle models: the texts before and after a gap, which the model fills.

use super::failure::Failure;
use super::parse::read_field;
use super::prompts::{Encoder, Prompts};
use super::server::LoadedModel;
use super::unmet::Warnings;
use serde::Deserialize;
use serde_json::Value;
use wglm_engine::text::InfillTokens;

/// The maximum number of tokens of the texts around a gap. In the prompt the text after the gap follows the one before
/// it, so each character that a user types makes the model compute it again.
const WINDOW: usize = 2048;

/// A text whose beginning is cut off begins at a multiple of this number of tokens. So its beginning stays the same
/// while a user types, and the cache can be used.
const STEP: usize = 256;

/// Why a request with a gap is refused.
const NO_TOKENS: &str = "this model does not support fill-in-the-middle; its vocabulary has no tokens for it";

/// The fields of llama.cpp's `/infill`, besides those of `/completion`.
#[derive(Debug, Default, Deserialize)]
pub struct GapFields {
    input_prefix: Option<Value>,
    input_suffix: Option<Value>,
    input_extra: Option<Value>,
}

/// The texts around a gap, and others.
#[derive(Debug)]
pub struct Gap {
    pub before: String,
    pub after: String,
    /// The most relevant one is the last.
    pub extra: Vec<Extra>,
}

/// A text from elsewhere.
#[derive(Debug, Deserialize)]
pub struct Extra {
    filename: Option<String>,
    text: String,
}

impl GapFields {
    /// Warns about the fields, for a path without gaps.
    pub fn warn(&self, to: &mut Warnings) {
        for (name, given) in [
            ("input_prefix", &self.input_prefix),
            ("input_suffix", &self.input_suffix),
            ("input_extra", &self.input_extra),
        ] {
            given.iter().for_each(|given| to.ignored_value(name, given));
        }
    }

    /// The gap. The prompt follows `input_prefix`.
    pub fn read(self, prompt: Option<Prompts>) -> Result<Gap, Failure> {
        let text = |field, side, given| match given {
            Some(Value::String(text)) => Ok(text),
            _ => Err(Failure::of_field(field, format_args!("expected a string, the text {side} the gap"))),
        };
        let mut before = text("input_prefix", "before", self.input_prefix)?;
        let after = text("input_suffix", "after", self.input_suffix)?;
        match prompt {
            None => {}
            Some(Prompts::Text(text)) => before.push_str(&text),
            Some(_) => return Err(Failure::of_field("prompt", "expected a string, which follows input_prefix")),
        }
        let extra: Option<Vec<Extra>> = read_field("input_extra", self.input_extra.unwrap_or_default())?;
        Ok(Gap { before, after, extra: extra.unwrap_or_default() })
    }
}

impl Gap {
    /// The tokens of the prompt. It leaves room in the context for a reply of `most` tokens (a quarter of the context
    /// for `None`), but never for more than half of the context. `field` is the one that asks for a gap to be filled.
    pub fn tokens(self, field: &str, most: Option<usize>, loaded: &LoadedModel) -> Result<Vec<u32>, Failure> {
        let marks = loaded.model.tokenizer()?.infill_tokens();
        let marks = marks.ok_or_else(|| Failure::of_field(field, NO_TOKENS).with_code("unsupported"))?;
        let encoder = Encoder::of_text(loaded)?;
        let extra: String = self.extra.into_iter().map(Extra::written).collect();
        let texts = Texts {
            start: encoder.encode("")?,
            extra: encoder.encode_end_without_bos(&extra)?,
            before: encoder.encode_end_without_bos(&self.before)?,
            after: encoder.encode_beginning_without_bos(&self.after)?,
        };
        let context = loaded.scheduler.context();
        Ok(texts.around(marks, context - most.unwrap_or(context / 4).min(context / 2)))
    }
}

impl Extra {
    /// The text as the model reads it, with the name of its file.
    fn written(self) -> String {
        let name = self.filename.map_or_else(String::new, |name| format!("{name}\n"));
        format!("--- snippet ---\n\n{name}{}\n\n", self.text)
    }
}

/// The tokens of the parts of a prompt.
struct Texts {
    /// What every text of the model begins with.
    start: Vec<u32>,
    extra: Vec<u32>,
    before: Vec<u32>,
    after: Vec<u32>,
}

impl Texts {
    /// A prompt of at most `room` tokens. What is nearest to the gap is kept: three quarters of [`WINDOW`] before it,
    /// and a quarter after it. The other texts get the rest of the room, and the end of them is kept.
    fn around(self, marks: InfillTokens, room: usize) -> Vec<u32> {
        let Self { start, extra, before, mut after } = self;
        let room = room.saturating_sub(start.len() + 3);
        let window = room.min(WINDOW);
        after.truncate(window / 4);
        let before = end_of(&before, window - window / 4);
        let extra = end_of(&extra, room - before.len() - after.len());
        [&start, extra, &[marks.prefix], before, &[marks.suffix], &after, &[marks.middle]].concat()
    }
}

/// The end of a text, of at most `most` tokens. If these are many, it begins at a multiple of [`STEP`].
fn end_of(tokens: &[u32], most: usize) -> &[u32] {
    let step = if most >= 2 * STEP { STEP } else { 1 };
    &tokens[tokens.len().saturating_sub(most).next_multiple_of(step)..]
}

#[cfg(test)]
mod tests {
    use super::{InfillTokens, STEP, Texts, WINDOW};

    fn around(extra: usize, before: usize, after: usize, room: usize) -> Vec<u32> {
        let some = |first: u32, count: usize| (first..).take(count).collect();
        let texts = Texts {
            start: vec![0],
            extra: some(100_000, extra),
            before: some(200_000, before),
            after: some(300_000, after),
        };
        texts.around(InfillTokens { prefix: 1, suffix: 2, middle: 3 }, room)
    }

    #[test]
    fn what_is_nearest_to_the_gap_is_kept() {
        let (b, a) = (200_000, 300_000);
        assert_eq!(around(0, 2, 2, 99), [0, 1, b, b + 1, 2, a, a + 1, 3]);
        assert_eq!(around(5, 12, 9, 12), [0, 1, b + 6, b + 7, b + 8, b + 9, b + 10, b + 11, 2, a, a + 1, 3]);
        assert_eq!(around(0, 0, 0, 0), [0, 1, 2, 3]);
        assert_eq!(around(5, 2, 1, 9), [0, 100_003, 100_004, 1, b, b + 1, 2, a, 3], "the end of other texts");
        let whole = around(500, 3000, 3000, 4 + WINDOW + 20);
        assert!(whole.len() <= 4 + WINDOW + 20);
        let after = &whole[whole.len() - 1 - WINDOW / 4..];
        assert_eq!((after[0], after[after.len() - 1]), (a, 3));
    }

    /// While a user types, the other texts and the one before the gap begin at the same tokens.
    #[test]
    fn beginnings_change_once_in_a_step() {
        let beginnings = |typed| {
            let prompt = around(9000, 3000 + typed, 700, 8192);
            let prefix = prompt.iter().position(|token| *token == 1);
            (prompt[1], prefix.map(|at| prompt[at + 1]))
        };
        let all: Vec<_> = (0..2 * STEP).map(beginnings).collect();
        let changes = all.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert!((2..=4).contains(&changes), "{changes}");
    }
}
