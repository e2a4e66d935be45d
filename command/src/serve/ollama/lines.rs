//! Writes replies as lines of JSON, or as a single line. Each line has a part of the reply, and the last one has its
//! figures.
//!
//! Programs run the calls of a reply without checking how it ended, so only complete calls are written. A reply with an
//! incomplete call ends with `length` and a warning.

use super::fields::Common;
use crate::serve::failure::{Dialect, Failure};
use crate::serve::figures::{Usage, prompt_progress};
use crate::serve::interface::{Interface, Prompt, Request};
use crate::serve::reply::{Call, Delta, Finish, FinishReason, Progress, Reply};
use crate::serve::server::{LoadedModel, Server};
use crate::serve::stream::Events;
use crate::serve::unmet::Warnings;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::marker::PhantomData;
use std::time::{Duration, Instant};
use wglm_engine::text::FunctionCall;

/// The body of a request, and the form of the replies to it.
pub trait LinesBody: DeserializeOwned + Send + 'static {
    fn common(&mut self) -> &mut Common;

    /// Whether the prompt is continued without the template.
    fn is_raw(&self) -> bool {
        false
    }

    /// The prompt, and the bytes of memory that its tools and schemas take while replies are generated. Adds warnings
    /// about what the model does not get.
    fn prompt(self, server: &Server, loaded: &LoadedModel, to: &mut Warnings) -> Result<(Prompt, usize), Failure>;

    /// Writes a part of a reply into a line.
    fn write(part: Part<'_>, to: &mut Value);
}

/// A part of a reply.
#[derive(Debug, Default)]
pub struct Part<'a> {
    pub text: &'a str,
    pub thinking: &'a str,
    pub calls: Vec<Value>,
}

/// A request without a prompt only asks for the model to be loaded or unloaded. The model is loaded, or the request
/// would have been refused.
pub fn nothing() -> (Prompt, usize) {
    (Prompt::Tokens(Vec::new(), Box::default()), 0)
}

pub struct Lines<B> {
    model: String,
    /// When the request was read.
    start: Instant,
    /// In a stream, contains only the call that has begun.
    calls: Reply,
    /// How many complete calls were written.
    written: usize,
    /// The end of the reply, if there is one.
    finish: Option<Finish>,
    /// Whether the request wants the model to be unloaded at once.
    unloads: bool,
    form: PhantomData<fn(B)>,
}

fn done_reason(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop | FinishReason::StopString | FinishReason::Calls => "stop",
        FinishReason::Length => "length",
    }
}

/// A time as Ollama writes it.
pub fn nanoseconds(time: Duration) -> Value {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).into()
}

/// A complete call, the first of a reply at index 0.
fn whole_call(index: usize, call: &Call) -> Value {
    let arguments = FunctionCall::from_json("", &call.arguments).arguments;
    json!({"id": call.id, "function": {"index": index, "name": call.name, "arguments": arguments}})
}

impl<B: LinesBody> Lines<B> {
    fn new(model: &str) -> Self {
        let (model, start, form) = (model.to_owned(), Instant::now(), PhantomData);
        Self { model, start, calls: Reply::default(), written: 0, finish: None, unloads: false, form }
    }

    fn line(&self, part: Part<'_>) -> Value {
        let mut line = json!({"model": self.model, "created_at": Timestamp::now().to_string()});
        B::write(part, &mut line);
        line["done"] = false.into();
        line
    }

    /// The line with the rest of the reply, its end and its figures. Without a reply it says whether the
    /// model was to be loaded or unloaded.
    fn last(&self, part: Part<'_>) -> Value {
        let mut line = self.line(part);
        line["done"] = true.into();
        let Some(finish) = &self.finish else {
            line["done_reason"] = if self.unloads { "unload" } else { "load" }.into();
            return line;
        };
        let (usage, stats) = (Usage::of(finish), &finish.stats);
        line["done_reason"] = done_reason(finish.reason).into();
        line["total_duration"] = nanoseconds(self.start.elapsed());
        line["load_duration"] = 0.into(); // it was loaded before
        line["prompt_eval_count"] = usage.prompt.into();
        line["prompt_eval_duration"] = nanoseconds(stats.prompt_time);
        line["eval_count"] = usage.generated.into();
        line["eval_duration"] = nanoseconds(stats.generate_time);
        if !finish.warnings.is_empty() {
            line["warnings"] = json!(finish.warnings);
        }
        line
    }

    /// Adds to the calls of a stream, and writes a call once it is complete.
    fn call(&mut self, delta: Delta, to: &mut Events) {
        let has_ended = matches!(delta, Delta::CallEnd { .. });
        self.calls.add(delta);
        let ended = if has_ended { self.calls.calls.pop() } else { None };
        if let Some(call) = ended.filter(|call| call.is_whole) {
            let calls = vec![whole_call(self.written, &call)];
            self.written += 1;
            to.json_line(&self.line(Part { calls, ..Part::default() }));
        }
    }
}

impl<B: LinesBody> Interface for Lines<B> {
    type Body = B;

    const STREAM_TYPE: &'static str = "application/x-ndjson";

    fn request(mut body: B, server: &Server, loaded: &LoadedModel) -> Result<(Prompt, Request<Self>), Failure> {
        let stream = body.common().stream();
        let is_raw = body.is_raw();
        let mut warnings = body.common().warnings(loaded.scheduler.context(), is_raw)?;
        let keep = body.common().keep_alive()?;
        if let Some(keep) = keep {
            server.others.keep(loaded, keep);
        }
        let unloads = keep == Some(Some(Duration::ZERO));
        let interface = Self { unloads, ..Self::new(&loaded.name) };
        let (prompt, held) = body.prompt(server, loaded, &mut warnings)?;
        let warnings = warnings.texts();
        Ok((prompt, Request { choices: 1, stream, one_call: false, held, warnings, interface }))
    }

    fn argument(name: &'static str) -> Cow<'static, str> {
        match name {
            "constraint" => "format".into(),
            "content" | "messages" | "prompt" | "role" | "tool_call_id" | "tools" => name.into(),
            option => format!("options.{option}").into(),
        }
    }

    fn delta(&mut self, _: usize, delta: Delta, to: &mut Events) {
        match delta {
            Delta::Prompt(_) | Delta::PromptToken(_) => {}
            Delta::Thinking(text) => to.json_line(&self.line(Part { thinking: &text, ..Part::default() })),
            Delta::Text { text, .. } => to.json_line(&self.line(Part { text: &text, ..Part::default() })),
            Delta::Call { .. } | Delta::Arguments(_) | Delta::CallEnd { .. } => self.call(delta, to),
            Delta::End(finish) => self.finish = Some(*finish),
        }
    }

    fn end(&mut self, to: &mut Events) {
        to.json_line(&self.last(Part::default()));
    }

    fn failed(&mut self, failure: &Failure, to: &mut Events) {
        to.json_line(&failure.body(Dialect::Ollama));
    }

    /// A line without text.
    fn alive(&mut self, _: usize, progress: Option<Progress>, to: &mut Events) {
        let mut line = self.line(Part::default());
        if let Some(progress) = progress {
            line["prompt_progress"] = prompt_progress(progress);
        }
        to.json_line(&line);
    }

    fn whole(mut self, replies: Vec<Reply>) -> String {
        let Some(reply) = replies.into_iter().next() else { return self.last(Part::default()).to_string() };
        let whole = reply.calls.iter().filter(|call| call.is_whole).enumerate();
        let calls = whole.map(|(index, call)| whole_call(index, call)).collect();
        self.finish = Some(reply.finish);
        self.last(Part { text: &reply.text, thinking: &reply.thinking, calls }).to_string()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::serve::failure::Failure;
    use crate::serve::interface::Interface;
    use crate::serve::ollama::{Chat, Generate};
    use crate::serve::reply::{Delta, Fold, Reply};
    use crate::serve::stream::Events;
    use serde_json::{Value, json};
    use wglm_engine::text::ToolCall;
    use wglm_engine::{Event, Stats, Stop};

    fn start() -> Event {
        Event::ToolCallStart { id: None, name: "note".into() }
    }

    fn pieces(json: &[&str]) -> Vec<Event> {
        json.iter().map(|piece| Event::ToolCallPiece((*piece).into())).collect()
    }

    /// A text, two calls, and a third that is cut off.
    fn deltas() -> Vec<Delta> {
        let whole = || Event::ToolCall(ToolCall::new("note", Default::default()));
        let events = [
            vec![Event::Thinking("hm".into()), Event::Text("I note.".into()), start()],
            pieces(&["{\"x\":", "1}"]),
            vec![whole(), start()],
            pieces(&["{}"]),
            vec![whole(), start()],
            pieces(&["{\"x\":"]),
            vec![Event::ToolCallFailed { text: String::new(), cut: true }, Event::Done(Stats::new(Stop::Length))],
        ];
        let mut fold = Fold::new(false);
        events.concat().into_iter().filter_map(|event| fold.delta(event, None)).collect()
    }

    /// The calls of a line, without their ids.
    fn calls(line: &Value) -> Vec<Value> {
        let calls = line["message"]["tool_calls"].as_array().into_iter().flatten();
        calls.map(|call| call["id"].as_str().map(|_| call["function"].clone()).unwrap()).collect()
    }

    /// Programs run every call that they get.
    #[test]
    fn only_whole_calls_are_written() {
        let (mut stream, mut events, mut reply) = (Chat::new("m"), Events::default(), Reply::default());
        for delta in deltas() {
            stream.delta(0, delta.clone(), &mut events);
            reply.add(delta);
        }
        stream.end(&mut events);
        let lines = events.values();
        let answer: Value = serde_json::from_str(&Chat::new("m").whole(vec![reply])).unwrap();
        let wanted = [
            json!({"index": 0, "name": "note", "arguments": {"x": 1}}),
            json!({"index": 1, "name": "note", "arguments": {}}),
        ];
        assert_eq!(lines.iter().map(calls).collect::<Vec<_>>().concat(), wanted);
        assert_eq!(calls(&answer), wanted);
        assert_eq!((lines.len(), &lines[0]["message"]["thinking"]), (5, &"hm".into()));
        for end in [&lines[4], &answer] {
            assert_eq!((&end["done_reason"], end["warnings"].as_array().unwrap().len()), (&"length".into(), 1));
        }
    }

    #[test]
    fn a_failure_is_a_line() {
        let (mut stream, mut events) = (Generate::new("m"), Events::default());
        stream.failed(&Failure::shutting_down(), &mut events);
        assert_eq!(events.values(), [json!({"error": "the server is shutting down"})]);
    }

    #[test]
    fn a_sign_of_life_is_a_line_without_text() {
        let mut events = Events::default();
        Chat::new("m").alive(0, None, &mut events);
        Generate::new("m").alive(0, None, &mut events);
        let lines = events.values();
        assert_eq!(lines[0]["message"], json!({"role": "assistant", "content": ""}));
        assert_eq!((&lines[1]["response"], &lines[1]["done"]), (&"".into(), &false.into()));
    }
}
