//! Prompts with a gap, for the text that belongs there.

use super::failure::Failure;
use super::prompts::{Encoder, Prompts};
use super::server::LoadedModel;
use super::unmet::Warnings;
use serde::Deserialize;
use wglm_engine::text::InfillTokens;

/// The texts around a gap, and others. In the fields of llama.cpp's `/infill`, to which the prompt is added.
#[derive(Debug, Deserialize)]
pub struct Gap {
    input_prefix: Option<String>,
    input_suffix: Option<String>,
    /// Texts from elsewhere, the most relevant one last.
    input_extra: Option<Vec<Extra>>,
}

#[derive(Debug, Deserialize)]
struct Extra {
    filename: Option<String>,
    text: String,
}

impl Gap {
    /// A gap between two texts.
    pub fn between(before: String, after: String) -> Self {
        Self { input_prefix: Some(before), input_suffix: Some(after), input_extra: None }
    }

    /// Adds a prompt to the text before the gap.
    pub fn with_prompt(mut self, prompt: Option<Prompts>) -> Result<Self, Failure> {
        match (prompt, &mut self.input_prefix) {
            (None, _) | (_, None) => Ok(self),
            (Some(Prompts::Text(text)), Some(before)) => {
                before.push_str(&text);
                Ok(self)
            }
            (Some(_), _) => Err(Failure::of_field("prompt", "expected a text, which follows input_prefix")),
        }
    }

    /// Warns about the fields, for a path without gaps.
    pub fn warn(&self, to: &mut Warnings) {
        for (name, is_given) in [
            ("input_prefix", self.input_prefix.is_some()),
            ("input_suffix", self.input_suffix.is_some()),
            ("input_extra", self.input_extra.is_some()),
        ] {
            if is_given {
                to.ignored(name);
            }
        }
    }

    /// The tokens of the prompt, which leave room for a reply of `most` tokens in the context. `field` is the one that
    /// asks for a gap to be filled.
    pub fn tokens(self, field: &str, most: Option<usize>, loaded: &LoadedModel) -> Result<Vec<u32>, Failure> {
        let marks = loaded.model.tokenizer()?.infill_tokens().ok_or_else(|| {
            let wrong = "the vocabulary of this model has no tokens for texts with gaps";
            Failure::of_field(field, wrong).with_code("unsupported")
        })?;
        let (Some(before), Some(after)) = (self.input_prefix, self.input_suffix) else {
            return Err(Failure::invalid("expected input_prefix and input_suffix, the texts around the gap"));
        };
        let encoder = Encoder::of_text(loaded)?;
        let extra: String = self.input_extra.unwrap_or_default().into_iter().map(Extra::written).collect();
        let texts = Texts {
            start: encoder.encode("")?,
            extra: encoder.encode_end(&extra)?,
            before: encoder.encode_end(&before)?,
            after: encoder.encode_beginning_alone(&after)?,
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
    /// A prompt of at most `room` tokens. What is nearest to the gap is kept: the end of the text before it, and the
    /// beginning of the text after it, which gets a quarter of the room, or more if the other one leaves more. The
    /// other texts get what these leave.
    fn around(self, marks: InfillTokens, room: usize) -> Vec<u32> {
        let Self { start, extra, before, mut after } = self;
        let room = room.saturating_sub(start.len() + 3);
        after.truncate((room / 4).max(room.saturating_sub(before.len())));
        let before = end_of(&before, room - after.len());
        let extra = end_of(&extra, room - after.len() - before.len());
        [&start, extra, &[marks.prefix], before, &[marks.suffix], &after, &[marks.middle]].concat()
    }
}

/// The last tokens of a text, at most so many.
fn end_of(tokens: &[u32], most: usize) -> &[u32] {
    &tokens[tokens.len().saturating_sub(most)..]
}

#[cfg(test)]
mod tests {
    use super::{InfillTokens, Texts};

    #[test]
    fn what_is_nearest_to_the_gap_is_kept() {
        let around = |extra: u32, before: u32, after: u32, room| {
            let (extra, before) = ((10..10 + extra).collect(), (20..20 + before).collect());
            let texts = Texts { start: vec![0], extra, before, after: (40..40 + after).collect() };
            texts.around(InfillTokens { prefix: 1, suffix: 2, middle: 3 }, room)
        };
        assert_eq!(around(2, 2, 2, 99), [0, 10, 11, 1, 20, 21, 2, 40, 41, 3]);
        assert_eq!(around(3, 2, 2, 10), [0, 11, 12, 1, 20, 21, 2, 40, 41, 3], "the end of other texts");
        assert_eq!(around(3, 12, 9, 12), [0, 1, 26, 27, 28, 29, 30, 31, 2, 40, 41, 3], "three quarters before");
        assert_eq!(around(3, 2, 9, 12), [0, 1, 20, 21, 2, 40, 41, 42, 43, 44, 45, 3], "more after a short text");
        assert_eq!(around(0, 0, 0, 0), [0, 1, 2, 3]);
    }
}
