//! Replies in the words of completions.

use super::answer::{Answer, end_failed};
use crate::cli::serve::events::{Chunks, Speaker};
use crate::cli::serve::failure::Failure;
use crate::cli::serve::figures::CompletionLogprobs;
use crate::cli::serve::pieces::{Ending, Outcome, Piece, Whole};
use serde::Serialize;
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

/// A reply in a whole answer.
#[derive(Serialize)]
struct WholeChoice<'a> {
    index: usize,
    text: String,
    logprobs: Option<CompletionLogprobs<'a>>,
    finish_reason: &'static str,
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

    /// The whole answer as JSON.
    pub fn whole(mut self, mut wholes: Vec<Whole>) -> String {
        let (endings, outcomes): (Vec<_>, Vec<_>) = Whole::take_outcomes(&mut wholes).into_iter().unzip();
        for (index, outcome) in outcomes.iter().enumerate() {
            outcome.iter().for_each(|outcome| self.answer.count(outcome, index.is_multiple_of(self.choices)));
        }
        let outcomes: Vec<Outcome> = outcomes.into_iter().flatten().collect();
        let (told, mut echo) = (self.answer.logprobs, std::mem::take(&mut self.echo));
        echo.resize(wholes.len(), String::new());
        let texts = wholes.iter_mut().zip(echo).map(|(whole, before)| before + &std::mem::take(&mut whole.text));
        let texts: Vec<String> = texts.collect();
        let tokens = wholes.iter().map(|whole| told.then_some(CompletionLogprobs { tokens: &whole.tokens, offset: 0 }));
        let choice = |(index, ((text, logprobs), ending))| {
            let finish_reason = reason(ending);
            WholeChoice { index, text, logprobs, finish_reason }
        };
        let choices: Vec<_> = texts.into_iter().zip(tokens).zip(endings).enumerate().map(choice).collect();
        self.answer.whole(COMPLETION, &choices, &outcomes)
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
                    true => json!(CompletionLogprobs { tokens: &tokens, offset }),
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
