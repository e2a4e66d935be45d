//! What chat completions and completions have in common: the frame of an answer and of a stream's chunks.

use crate::serve::failure::{Dialect, Failure};
use crate::serve::figures::{Usage, add_figures, timings};
use crate::serve::reply::{Finish, Reply};
use crate::serve::server::{id, now};
use crate::serve::stream::Events;
use serde::Serialize;
use serde_json::{Value, json};

/// What made an answer.
const FINGERPRINT: &str = concat!("wglm-", env!("CARGO_PKG_VERSION"));

/// The data of the last event of a stream.
const END: &str = "[DONE]";

/// An answer without a stream.
#[derive(Serialize)]
struct Answer<'a, C> {
    id: &'a str,
    object: &'a str,
    created: u64,
    model: &'a str,
    system_fingerprint: &'a str,
    choices: &'a [C],
    usage: Value,
    timings: Option<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<&'a String>,
}

/// The frame of an answer and of the chunks of a stream.
pub struct Frame {
    id: String,
    created: u64,
    model: String,
    /// Whether log-probabilities are reported.
    pub logprobs: bool,
    /// Whether a stream ends with its usage.
    stream_usage: bool,
    /// Replies to each prompt.
    choices: usize,
    usage: Usage,
}

impl Frame {
    /// A frame for an answer whose id begins with `prefix`.
    pub fn new(prefix: &str, model: &str, logprobs: bool, stream_usage: bool, choices: usize) -> Self {
        let (id, created, model) = (id(prefix), now(), model.to_owned());
        Self { id, created, model, logprobs, stream_usage, choices, usage: Usage::default() }
    }

    fn chunk_of(&self, object: &str, choices: Value) -> Value {
        json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": FINGERPRINT,
            "choices": choices,
        })
    }

    /// Writes a chunk with one choice.
    pub fn chunk(&self, object: &str, choice: Value, to: &mut Events) {
        to.data(&self.chunk_of(object, json!([choice])));
    }

    /// Writes the chunk that ends a reply.
    pub fn end_reply(&mut self, object: &str, reply: usize, choice: Value, finish: &Finish, to: &mut Events) {
        self.count(reply, finish);
        let mut chunk = self.chunk_of(object, json!([choice]));
        add_figures(finish, &mut chunk);
        to.data(&chunk);
    }

    /// Writes the end of the stream.
    pub fn end(&self, object: &str, to: &mut Events) {
        if self.stream_usage {
            let mut chunk = self.chunk_of(object, json!([]));
            chunk["usage"] = self.usage.openai();
            to.data(&chunk);
        }
        to.line(END);
    }

    /// Writes a failure, which ends the stream.
    pub fn failed(failure: &Failure, to: &mut Events) {
        to.data(&failure.body(Dialect::OpenAi));
        to.line(END);
    }

    /// Counts the tokens of a reply. Each prompt is counted once.
    fn count(&mut self, reply: usize, finish: &Finish) {
        self.usage.add(Usage::of(finish), reply.is_multiple_of(self.choices));
    }

    /// The whole answer as JSON. Its times are those of the last reply.
    pub fn whole(mut self, object: &str, choices: &[impl Serialize], replies: &[Reply]) -> String {
        replies.iter().enumerate().for_each(|(index, reply)| self.count(index, &reply.finish));
        let answer = Answer {
            id: &self.id,
            object,
            created: self.created,
            model: &self.model,
            system_fingerprint: FINGERPRINT,
            choices,
            usage: self.usage.openai(),
            timings: replies.last().map(|reply| timings(&reply.finish.stats)),
            warnings: replies.iter().flat_map(|reply| &reply.finish.warnings).collect(),
        };
        serde_json::to_string(&answer).unwrap_or_default() // nothing in it can fail to be serialised
    }
}
