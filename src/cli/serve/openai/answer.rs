//! What chat completions and completions have in common: the frame of an answer or a chunk, and the end of a stream.

use crate::cli::serve::events::Chunks;
use crate::cli::serve::failure::{Dialect, Failure};
use crate::cli::serve::figures::{Usage, timings};
use crate::cli::serve::pieces::Outcome;
use crate::cli::serve::server::{id, now};
use serde::Serialize;
use serde_json::{Value, json};

/// What made an answer.
const FINGERPRINT: &str = concat!("wglm-", env!("CARGO_PKG_VERSION"));

/// An answer that is written at once.
#[derive(Serialize)]
struct WholeAnswer<'a, C> {
    id: &'a str,
    object: &'a str,
    created: u64,
    model: &'a str,
    system_fingerprint: &'a str,
    choices: &'a [C],
    usage: Value,
    timings: Value,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<&'a String>,
}

/// An answer, or the stream of its chunks.
pub struct Answer {
    id: String,
    created: u64,
    model: String,
    /// Whether log-probabilities are told.
    pub logprobs: bool,
    /// Whether a stream ends with what its replies used.
    tell_usage: bool,
    usage: Usage,
}

impl Answer {
    /// An answer with an id that begins with `prefix`.
    pub fn new(prefix: &str, model: &str, logprobs: bool, tell_usage: bool) -> Self {
        let (id, created, model) = (id(prefix), now(), model.to_owned());
        Self { id, created, model, logprobs, tell_usage, usage: Usage::default() }
    }

    /// An answer or a chunk, by the name of its kind, with some choices.
    pub fn frame(&self, object: &str, choices: Value) -> Value {
        json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": FINGERPRINT,
            "choices": choices,
        })
    }

    /// Counts what a reply used. `is_first` says that no other was to the same prompt before.
    pub fn count(&mut self, outcome: &Outcome, is_first: bool) {
        self.usage.add(Usage::of(outcome), is_first);
    }

    /// The whole answer as JSON. Its times are those of the last reply.
    pub fn whole(&self, object: &str, choices: &[impl Serialize], outcomes: &[Outcome]) -> String {
        let answer = WholeAnswer {
            id: &self.id,
            object,
            created: self.created,
            model: &self.model,
            system_fingerprint: FINGERPRINT,
            choices,
            usage: self.usage.openai(),
            timings: outcomes.last().map_or(Value::Null, |outcome| timings(&outcome.stats)),
            warnings: outcomes.iter().flat_map(|outcome| &outcome.warnings).collect(),
        };
        serde_json::to_string(&answer).unwrap_or_default() // nothing in it can fail to be written
    }

    /// Says the chunk that ends a reply.
    pub fn end_reply(&self, object: &str, choice: Value, outcome: &Outcome, to: &mut Chunks) {
        let mut chunk = self.frame(object, json!([choice]));
        chunk["timings"] = timings(&outcome.stats);
        if !outcome.warnings.is_empty() {
            chunk["warnings"] = json!(outcome.warnings);
        }
        to.data(&chunk);
    }

    /// Ends the stream.
    pub fn end(&self, object: &str, to: &mut Chunks) {
        if self.tell_usage {
            let mut chunk = self.frame(object, json!([]));
            chunk["usage"] = self.usage.openai();
            to.data(&chunk);
        }
        to.raw(END);
    }
}

/// What the last event of a stream says.
const END: &str = "[DONE]";

/// Ends a stream whose replies failed.
pub fn end_failed(failure: &Failure, to: &mut Chunks) {
    to.data(&failure.body(Dialect::OpenAi));
    to.raw(END);
}
