//! What chat completions and completions have in common: the frame of an answer and of a stream's chunks.

use crate::serve::failure::{Dialect, Failure};
use crate::serve::figures::{Usage, prompt_progress, timings};
use crate::serve::reply::{Finish, Progress, Reply};
use crate::serve::server::{id, now};
use crate::serve::stream::Events;
use serde::Serialize;
use serde_json::Value;

/// What an answer says that it was made by.
const FINGERPRINT: &str = concat!("wglm-", env!("CARGO_PKG_VERSION"));

/// The data of the last event of a stream.
const END: &str = "[DONE]";

/// An answer without a stream, or a chunk of one.
#[derive(Serialize)]
struct Answer<'a, C> {
    id: &'a str,
    object: &'a str,
    created: u64,
    model: &'a str,
    system_fingerprint: &'a str,
    choices: &'a [C],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timings: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_progress: Option<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<&'a String>,
}

impl<'a, C: Serialize> Answer<'a, C> {
    /// The same with the warnings of replies that end with it, and with the times of the last of them.
    fn with_ends(self, ends: &[&'a Finish]) -> Self {
        let timings = ends.last().map(|finish| timings(&finish.stats));
        Self { timings, warnings: ends.iter().flat_map(|finish| &finish.warnings).collect(), ..self }
    }

    fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default() // nothing in it can fail to be serialised
    }
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
    /// The times of the reply that ended last, if the end of a stream repeats them beside its usage, where clients of
    /// llama.cpp's server look for them.
    timings: Option<Value>,
}

impl Frame {
    /// A frame for an answer whose id begins with `prefix`.
    pub fn new(prefix: &str, model: &str, logprobs: bool, stream_usage: bool, choices: usize) -> Self {
        let (id, created, model) = (id(prefix), now(), model.to_owned());
        Self { id, created, model, logprobs, stream_usage, choices, usage: Usage::default(), timings: None }
    }

    /// An answer or a chunk with nothing but its choices. If a stream ends with its usage, the usage of the other
    /// chunks is null, as it is in OpenAI's API.
    fn answer<'a, C>(&'a self, object: &'a str, choices: &'a [C]) -> Answer<'a, C> {
        Answer {
            id: &self.id,
            object,
            created: self.created,
            model: &self.model,
            system_fingerprint: FINGERPRINT,
            choices,
            usage: self.stream_usage.then_some(Value::Null),
            timings: None,
            prompt_progress: None,
            warnings: Vec::new(),
        }
    }

    /// Writes a chunk with one choice, and with the progress of a prompt if the client asked for it.
    pub fn chunk(&self, object: &str, choice: impl Serialize, progress: Option<Progress>, to: &mut Events) {
        let prompt_progress = progress.map(prompt_progress);
        to.line(&Answer { prompt_progress, ..self.answer(object, &[choice]) }.json());
    }

    /// Writes the chunk that ends a reply.
    pub fn end_reply(&mut self, object: &str, reply: usize, choice: impl Serialize, finish: &Finish, to: &mut Events) {
        self.count(reply, finish);
        self.timings = self.stream_usage.then(|| timings(&finish.stats));
        to.line(&self.answer(object, &[choice]).with_ends(&[finish]).json());
    }

    /// Writes the end of the stream.
    pub fn end(&self, object: &str, to: &mut Events) {
        if self.stream_usage {
            let (usage, timings) = (Some(self.usage.openai()), self.timings.clone());
            to.line(&Answer { usage, timings, ..self.answer(object, &[(); 0]) }.json());
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

    /// The whole answer as JSON.
    pub fn whole(mut self, object: &str, choices: &[impl Serialize], replies: &[Reply]) -> String {
        let ends: Vec<&Finish> = replies.iter().map(|reply| &reply.finish).collect();
        ends.iter().enumerate().for_each(|(index, finish)| self.count(index, finish));
        Answer { usage: Some(self.usage.openai()), ..self.answer(object, choices) }.with_ends(&ends).json()
    }
}
