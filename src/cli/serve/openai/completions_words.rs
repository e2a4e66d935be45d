//! Replies in the words of completions.

use super::answer::{Answer, end_failed};
use crate::cli::serve::events::{Chunks, Speaker};
use crate::cli::serve::failure::Failure;
use crate::cli::serve::figures::completion_logprobs;
use crate::cli::serve::pieces::{Ending, Piece, Whole};
use serde_json::{Value, json};

/// What answers and chunks are called.
const COMPLETION: &str = "text_completion";

pub struct CompletionWords {
    answer: Answer,
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
        Self { answer: Answer::new("cmpl-", model, logprobs, tell_usage), echo, choices, lengths: Vec::new() }
    }

    fn choice(&self, index: usize, text: &str, logprobs: Value, reason: Value) -> Value {
        json!({"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason})
    }

    /// The whole answer.
    pub fn whole(mut self, wholes: Vec<Whole>) -> Value {
        let (mut choices, mut outcomes) = (Vec::new(), Vec::new());
        for (index, whole) in wholes.into_iter().enumerate() {
            let logprobs = match self.answer.logprobs {
                true => completion_logprobs(&whole.tokens, 0),
                false => Value::Null,
            };
            let ending = whole.outcome.as_ref().map_or(Ending::Cut, |outcome| outcome.ending);
            if let Some(outcome) = whole.outcome {
                self.answer.count(&outcome, index.is_multiple_of(self.choices));
                outcomes.push(outcome);
            }
            let text = self.echo.get(index).map_or(String::new(), String::clone) + &whole.text;
            choices.push(self.choice(index, &text, logprobs, reason(ending).into()));
        }
        self.answer.whole(COMPLETION, choices, &outcomes)
    }
}

impl Speaker for CompletionWords {
    fn begin(&mut self, _: usize, to: &mut Chunks) {
        for (index, text) in self.echo.iter().enumerate() {
            to.data(&self.answer.frame(COMPLETION, json!([self.choice(index, text, Value::Null, Value::Null)])));
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
                let logprobs = match self.answer.logprobs {
                    true => completion_logprobs(&tokens, offset),
                    false => Value::Null,
                };
                let choice = self.choice(index, &text, logprobs, Value::Null);
                to.data(&self.answer.frame(COMPLETION, json!([choice])));
            }
            Piece::End(outcome) => {
                self.answer.count(&outcome, index.is_multiple_of(self.choices));
                let choice = self.choice(index, "", Value::Null, reason(outcome.ending).into());
                self.answer.end_reply(COMPLETION, choice, &outcome, to);
            }
            Piece::Prompt { .. } | Piece::Thinking(_) | Piece::Call(_) => {}
        }
    }

    fn end(&mut self, to: &mut Chunks) {
        self.answer.end(COMPLETION, to);
    }

    fn failed(&mut self, failure: &Failure, to: &mut Chunks) {
        end_failed(failure, to);
    }
}
