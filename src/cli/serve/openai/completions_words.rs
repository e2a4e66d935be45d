//! Replies in the words of completions.

use super::end_stream;
use crate::cli::serve::events::{Chunks, Speaker};
use crate::cli::serve::failure::{Dialect, Failure};
use crate::cli::serve::figures::{Usage, completion_logprobs, timings};
use crate::cli::serve::pieces::{Ending, Piece, Whole};
use crate::cli::serve::server::{id, now};
use serde_json::{Value, json};

pub struct CompletionWords {
    id: String,
    created: u64,
    model: String,
    logprobs: bool,
    /// Whether the stream ends with what its replies used.
    tell_usage: bool,
    usage: Usage,
    /// The text before each reply, if it is repeated.
    echo: Vec<String>,
    /// Replies to each prompt.
    choices: usize,
    /// How many characters each reply has so far.
    lengths: Vec<usize>,
}

/// The word for the end of a reply.
fn reason(ending: Ending) -> &'static str {
    match ending {
        Ending::Cut => "length",
        Ending::Done | Ending::Calls | Ending::StopString => "stop",
    }
}

impl CompletionWords {
    pub fn new(model: &str, (logprobs, tell_usage): (bool, bool), echo: Vec<String>, choices: usize) -> Self {
        let (id, created, model) = (id("cmpl-"), now(), model.to_owned());
        let (usage, lengths) = (Usage::default(), Vec::new());
        Self { id, created, model, logprobs, tell_usage, usage, echo, choices, lengths }
    }

    fn frame(&self, choices: Value) -> Value {
        json!({
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.model,
            "choices": choices,
        })
    }

    fn choice(&self, index: usize, text: &str, logprobs: Value, reason: Value) -> Value {
        json!({"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason})
    }

    /// The whole answer.
    pub fn whole(mut self, wholes: Vec<Whole>) -> Value {
        let (mut choices, mut times, mut warnings) = (Vec::new(), Value::Null, Vec::new());
        for (index, whole) in wholes.into_iter().enumerate() {
            let logprobs = match self.logprobs {
                true => completion_logprobs(&whole.tokens, 0),
                false => Value::Null,
            };
            let ending = whole.outcome.as_ref().map_or(Ending::Cut, |outcome| outcome.ending);
            if let Some(outcome) = whole.outcome {
                self.usage.add(Usage::of(&outcome), index.is_multiple_of(self.choices));
                times = timings(&outcome.stats);
                warnings.extend(outcome.warnings);
            }
            let text = self.echo.get(index).map_or(String::new(), String::clone) + &whole.text;
            choices.push(self.choice(index, &text, logprobs, reason(ending).into()));
        }
        let mut answer = self.frame(choices.into());
        answer["usage"] = self.usage.openai();
        answer["timings"] = times;
        if !warnings.is_empty() {
            answer["warnings"] = warnings.into();
        }
        answer
    }
}

impl Speaker for CompletionWords {
    fn begin(&mut self, _: usize, to: &mut Chunks) {
        for (index, text) in self.echo.iter().enumerate() {
            to.data(&self.frame(json!([self.choice(index, text, Value::Null, Value::Null)])));
        }
    }

    fn piece(&mut self, index: usize, piece: Piece, to: &mut Chunks) {
        match piece {
            Piece::Text { text, tokens } => {
                if self.lengths.len() <= index {
                    self.lengths.resize(index + 1, 0);
                }
                let offset = self.lengths[index];
                self.lengths[index] += text.chars().count();
                let logprobs = match self.logprobs {
                    true => completion_logprobs(&tokens, offset),
                    false => Value::Null,
                };
                to.data(&self.frame(json!([self.choice(index, &text, logprobs, Value::Null)])));
            }
            Piece::End(outcome) => {
                self.usage.add(Usage::of(&outcome), index.is_multiple_of(self.choices));
                let choice = self.choice(index, "", Value::Null, reason(outcome.ending).into());
                let mut chunk = self.frame(json!([choice]));
                chunk["timings"] = timings(&outcome.stats);
                if !outcome.warnings.is_empty() {
                    chunk["warnings"] = outcome.warnings.into();
                }
                to.data(&chunk);
            }
            Piece::Prompt { .. } | Piece::Thinking(_) | Piece::Call(_) => {}
        }
    }

    fn end(&mut self, to: &mut Chunks) {
        let used = self.tell_usage.then(|| {
            let mut chunk = self.frame(json!([]));
            chunk["usage"] = self.usage.openai();
            chunk
        });
        end_stream(used, to);
    }

    fn failed(&mut self, failure: &Failure, to: &mut Chunks) {
        end_stream(Some(failure.body(Dialect::OpenAi)), to);
    }
}
