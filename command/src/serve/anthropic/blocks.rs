//! Writes replies as the blocks of a message. Each block begins, grows and ends.

use super::Body;
use crate::serve::conversation::Origins;
use crate::serve::failure::{Dialect, Failure};
use crate::serve::figures::{Usage, add_figures, prompt_progress};
use crate::serve::interface::{Interface, Prompt, Request, field_of};
use crate::serve::reply::{Call, Delta, Finish, FinishReason, Progress, Reply};
use crate::serve::server::{LoadedModel, Server, id};
use crate::serve::stream::Events;
use serde_json::{Value, json};
use std::borrow::Cow;
use wglm_engine::text::FunctionCall;

/// The signature of thinking. Anthropic's servers sign it; this one does not check signatures.
const SIGNATURE: &str = "unsigned";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Thinking,
    Text,
    Call,
}

pub struct Messages {
    id: String,
    model: String,
    stops: Vec<String>,
    origins: Origins,
    /// The block that has begun in a stream, and how many have ended.
    open: Option<Kind>,
    ended: usize,
    /// The number of tokens of the prompt.
    prompt: usize,
    begun: bool,
    finish: Option<Finish>,
}

impl Messages {
    pub fn new(model: &str, stops: Vec<String>) -> Self {
        let (id, model) = (id("msg_"), model.to_owned());
        let (origins, open, ended, prompt, begun, finish) = Default::default();
        Self { id, model, stops, origins, open, ended, prompt, begun, finish }
    }

    /// The same for a conversation with these origins.
    pub fn with_origins(self, origins: Origins) -> Self {
        Self { origins, ..self }
    }

    /// Why the reply ended, and the stop string if one ended it.
    fn stop(&self, finish: &Finish) -> (&'static str, Option<&str>) {
        match finish.reason {
            FinishReason::Stop => ("end_turn", None),
            FinishReason::Calls => ("tool_use", None),
            FinishReason::Length => ("max_tokens", None),
            FinishReason::StopString => ("stop_sequence", finish.stop_string(&self.stops)),
        }
    }

    fn message(&self, content: &[Value]) -> Value {
        let mut message = json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            "stop_reason": null,
            "stop_sequence": null,
            "usage": null,
        });
        if let Some(finish) = &self.finish {
            let (reason, sequence) = self.stop(finish);
            message["stop_reason"] = reason.into();
            message["stop_sequence"] = json!(sequence);
            message["usage"] = Usage::of(finish).anthropic();
            add_figures(finish, &mut message);
        }
        message
    }

    /// Writes the beginning of the message, once it is known how much of the prompt the cache has.
    fn begin_message(&mut self, cached: usize, to: &mut Events) {
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        let mut message = self.message(&[]);
        message["usage"] = Usage { prompt: self.prompt, cached, ..Usage::default() }.anthropic();
        to.named(&json!({"type": "message_start", "message": message}));
        to.named(&json!({"type": "ping"}));
    }

    fn write_delta(&self, delta: Value, to: &mut Events) {
        to.named(&json!({"type": "content_block_delta", "index": self.ended, "delta": delta}));
    }

    fn begin_block(&mut self, kind: Kind, block: Value, to: &mut Events) {
        self.begin_message(0, to);
        self.close(to);
        to.named(&json!({"type": "content_block_start", "index": self.ended, "content_block": block}));
        self.open = Some(kind);
    }

    /// Ends the block that has begun, if there is one.
    fn close(&mut self, to: &mut Events) {
        let Some(kind) = self.open.take() else { return };
        if kind == Kind::Thinking {
            self.write_delta(json!({"type": "signature_delta", "signature": SIGNATURE}), to);
        }
        to.named(&json!({"type": "content_block_stop", "index": self.ended}));
        self.ended += 1;
    }

    /// Writes a piece of a block of this kind; `empty` is how such a block begins.
    fn text(&mut self, kind: Kind, empty: Value, delta: Value, to: &mut Events) {
        if self.open != Some(kind) {
            self.begin_block(kind, empty, to);
        }
        self.write_delta(delta, to);
    }
}

/// The blocks of a whole reply. A call that was cut off has the arguments that are complete; a reply with one ends with
/// `max_tokens`.
fn blocks(reply: &Reply) -> Vec<Value> {
    let thinking = json!({"type": "thinking", "thinking": reply.thinking, "signature": SIGNATURE});
    let text = json!({"type": "text", "text": reply.text});
    let texts = [(thinking, &reply.thinking), (text, &reply.text)];
    let call = |Call { id, name, arguments, .. }: &Call| {
        let input = FunctionCall::from_json("", arguments).arguments;
        json!({"type": "tool_use", "id": id, "name": name, "input": input})
    };
    let texts = texts.into_iter().filter(|(_, text)| !text.is_empty()).map(|(block, _)| block);
    texts.chain(reply.calls.iter().map(call)).collect()
}

impl Interface for Messages {
    type Body = Body;

    fn request(body: Body, server: &Server, loaded: &LoadedModel) -> Result<(Prompt, Request<Self>), Failure> {
        super::request(body, server, loaded)
    }

    fn argument(name: &'static str) -> Cow<'static, str> {
        match name {
            "constraint" => "output_config.format".into(),
            "stop" => "stop_sequences".into(),
            "tool_call_id" => "tool_use_id".into(),
            other => field_of(other).into(),
        }
    }

    fn message(&self, index: usize) -> String {
        self.origins.place(index)
    }

    fn begin(&mut self, prompt: usize, _: &mut Events) {
        self.prompt = prompt;
    }

    fn delta(&mut self, _: usize, delta: Delta, to: &mut Events) {
        match delta {
            Delta::Prompt(progress) => self.begin_message(progress.cached, to),
            Delta::PromptToken(_) => {}
            Delta::Thinking(text) => {
                let empty = json!({"type": "thinking", "thinking": "", "signature": ""});
                self.text(Kind::Thinking, empty, json!({"type": "thinking_delta", "thinking": text}), to);
            }
            Delta::Text { text, .. } => {
                let empty = json!({"type": "text", "text": ""});
                self.text(Kind::Text, empty, json!({"type": "text_delta", "text": text}), to);
            }
            Delta::Call { id, name } => {
                self.begin_block(Kind::Call, json!({"type": "tool_use", "id": id, "name": name, "input": {}}), to);
            }
            Delta::Arguments(piece) => self.write_delta(json!({"type": "input_json_delta", "partial_json": piece}), to),
            Delta::CallEnd { .. } => self.close(to),
            Delta::End(finish) => {
                self.begin_message(0, to);
                self.close(to);
                self.finish = Some(*finish);
            }
        }
    }

    fn end(&mut self, to: &mut Events) {
        if let Some(finish) = &self.finish {
            let (reason, sequence) = self.stop(finish);
            let delta = json!({"stop_reason": reason, "stop_sequence": sequence});
            let usage = Usage::of(finish).anthropic();
            let mut event = json!({"type": "message_delta", "delta": delta, "usage": usage});
            add_figures(finish, &mut event);
            to.named(&event);
        }
        to.named(&json!({"type": "message_stop"}));
    }

    fn failed(&mut self, failure: &Failure, to: &mut Events) {
        to.named(&failure.body(Dialect::Anthropic));
    }

    /// A stream begins with the beginning of its message, even before it is known how much of the prompt the cache has.
    /// The usage at its end is right in any case.
    fn alive(&mut self, _: usize, progress: Option<Progress>, to: &mut Events) {
        if !self.begun {
            return self.begin_message(0, to);
        }
        let mut ping = json!({"type": "ping"});
        if let Some(progress) = progress {
            ping["prompt_progress"] = prompt_progress(progress);
        }
        to.named(&ping);
    }

    fn whole(mut self, replies: Vec<Reply>) -> String {
        let reply = replies.into_iter().next().unwrap_or_default();
        let content = blocks(&reply);
        self.finish = Some(reply.finish);
        self.message(&content).to_string()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::Messages;
    use crate::serve::interface::Interface;
    use crate::serve::reply::{Call, Delta, Progress, Reply};
    use crate::serve::stream::Events;
    use serde_json::{Value, json};

    #[test]
    fn blocks_begin_grow_and_end_one_after_another() {
        let call = Delta::Call { id: "c".into(), name: "ls".into() };
        let [piece, rest] = ["{\"path\":", "\".\"}"].map(|piece| Delta::Arguments(piece.into()));
        let (mut message, mut events) = (Messages::new("m", Vec::new()), Events::default());
        message.begin(7, &mut events);
        let text = |text: &str| Delta::Text { text: text.into(), tokens: Vec::new() };
        let progress = Progress { cached: 3, done: 3, total: 7, time: Default::default(), is_first: true };
        for delta in [Delta::Prompt(progress), Delta::Thinking("hm".into()), text("a"), text("b"), call, piece, rest] {
            message.delta(0, delta, &mut events);
        }
        message.delta(0, Delta::CallEnd { is_whole: true }, &mut events);
        let finish = Reply::default().finish;
        message.delta(0, Delta::End(Box::new(finish)), &mut events);
        message.end(&mut events);
        let written = events.values();
        let kinds: Vec<&str> = written.iter().map(|event| event["type"].as_str().unwrap()).collect();
        let (start, delta, stop) = ("content_block_start", "content_block_delta", "content_block_stop");
        let blocks = [start, delta, delta, stop, start, delta, delta, stop, start, delta, delta, stop];
        assert_eq!(kinds, [&["message_start", "ping"][..], &blocks, &["message_delta", "message_stop"]].concat());
        assert_eq!(written[0]["message"]["usage"]["cache_read_input_tokens"], 3);
        assert_eq!(written[0]["message"]["usage"]["input_tokens"], 4);
        let indices: Vec<u64> = written.iter().filter_map(|event| event["index"].as_u64()).collect();
        assert_eq!(indices, [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]);
        let call = &written[kinds.len() - 4];
        assert_eq!(call["delta"], json!({"type": "input_json_delta", "partial_json": "\".\"}"}));
    }

    #[test]
    fn a_whole_message_has_what_is_complete_of_each_call() {
        let call = |arguments: &str, is_whole| Call {
            id: "c".into(),
            name: "ls".into(),
            arguments: arguments.into(),
            is_whole,
        };
        let calls = vec![call(r#"{"path":"."}"#, true), call(r#"{"path":".","depth":1"#, false)];
        let reply = Reply { thinking: "hm".into(), text: "a".into(), calls, ..Reply::default() };
        let message: Value = serde_json::from_str(&Messages::new("m", Vec::new()).whole(vec![reply])).unwrap();
        let (content, used) =
            (&message["content"], json!({"type": "tool_use", "id": "c", "name": "ls", "input": {"path": "."}}));
        assert_eq!([&content[0]["thinking"], &content[1]["text"]], ["hm", "a"]);
        assert_eq!((&content[2], &content[3], &message["stop_reason"]), (&used, &used, &"max_tokens".into()));
    }

    /// A stream begins with its message, even if it is silent for a long time at first.
    #[test]
    fn a_sign_of_life_does_not_come_first() {
        let (mut message, mut events) = (Messages::new("m", Vec::new()), Events::default());
        message.begin(7, &mut events);
        (0..2).for_each(|_| message.alive(0, None, &mut events));
        message.delta(0, Delta::Thinking("hm".into()), &mut events);
        let written = events.values();
        let kinds: Vec<&str> = written.iter().map(|event| event["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["message_start", "ping", "ping", "content_block_start", "content_block_delta"]);
        assert_eq!(written[0]["message"]["usage"]["input_tokens"], 7);
    }
}
