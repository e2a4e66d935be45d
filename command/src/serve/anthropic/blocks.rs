//! Writes replies as the blocks of a message. Each block begins, grows and ends.

use super::Body;
use crate::serve::failure::{Dialect, Failure};
use crate::serve::figures::{Usage, add_figures, prompt_progress};
use crate::serve::interface::{Interface, Prompt, Request};
use crate::serve::reply::{Call, Delta, Finish, FinishReason, Progress, Reply};
use crate::serve::server::{LoadedModel, Server, id};
use crate::serve::stream::Events;
use serde_json::{Value, json};
use wglm_engine::text::FunctionCall;

/// The signature of thinking. Anthropic's servers sign it; this one does not check signatures.
const SIGNATURE: &str = "unsigned";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Thinking,
    Text,
}

pub struct Messages {
    id: String,
    model: String,
    stops: Vec<String>,
    /// The block that has begun, and its text so far.
    open: Option<(Kind, String)>,
    /// The call that has begun.
    call: Option<Call>,
    /// The blocks that have ended.
    content: Vec<Value>,
    /// The number of tokens of the prompt.
    prompt: usize,
    begun: bool,
    finish: Option<Finish>,
}

impl Messages {
    pub fn new(model: &str, stops: Vec<String>) -> Self {
        let (id, model, content) = (id("msg_"), model.to_owned(), Vec::new());
        Self { id, model, stops, open: None, call: None, content, prompt: 0, begun: false, finish: None }
    }

    /// Why the reply ended, and the stop string if there is only one that it can have been.
    fn stop(&self, finish: &Finish) -> (&'static str, Option<&String>) {
        match finish.reason {
            FinishReason::Stop => ("end_turn", None),
            FinishReason::Calls => ("tool_use", None),
            FinishReason::Length => ("max_tokens", None),
            FinishReason::StopString => ("stop_sequence", self.stops.first().filter(|_| self.stops.len() == 1)),
        }
    }

    fn message(&self) -> Value {
        let mut message = json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": self.content,
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
        let mut message = self.message();
        message["usage"] = Usage { prompt: self.prompt, cached, ..Usage::default() }.anthropic();
        to.named(&json!({"type": "message_start", "message": message}));
        to.named(&json!({"type": "ping"}));
    }

    fn write_delta(&self, delta: Value, to: &mut Events) {
        to.named(&json!({"type": "content_block_delta", "index": self.content.len(), "delta": delta}));
    }

    fn begin_block(&self, block: Value, to: &mut Events) {
        to.named(&json!({"type": "content_block_start", "index": self.content.len(), "content_block": block}));
    }

    fn end_block(&mut self, block: Value, to: &mut Events) {
        to.named(&json!({"type": "content_block_stop", "index": self.content.len()}));
        self.content.push(block);
    }

    /// Ends the block of text that has begun, if there is one.
    fn close(&mut self, to: &mut Events) {
        let Some((kind, text)) = self.open.take() else { return };
        let block = match kind {
            Kind::Text => json!({"type": "text", "text": text}),
            Kind::Thinking => {
                self.write_delta(json!({"type": "signature_delta", "signature": SIGNATURE}), to);
                json!({"type": "thinking", "thinking": text, "signature": SIGNATURE})
            }
        };
        self.end_block(block, to);
    }

    fn text(&mut self, kind: Kind, text: &str, to: &mut Events) {
        self.begin_message(0, to);
        if self.open.as_ref().is_none_or(|(open, _)| *open != kind) {
            self.close(to);
            self.open = Some((kind, String::new()));
            match kind {
                Kind::Thinking => self.begin_block(json!({"type": "thinking", "thinking": "", "signature": ""}), to),
                Kind::Text => self.begin_block(json!({"type": "text", "text": ""}), to),
            }
        }
        if let Some((_, open)) = &mut self.open {
            open.push_str(text);
        }
        match kind {
            Kind::Thinking => self.write_delta(json!({"type": "thinking_delta", "thinking": text}), to),
            Kind::Text => self.write_delta(json!({"type": "text_delta", "text": text}), to),
        }
    }

    fn begin_call(&mut self, id: String, name: String, to: &mut Events) {
        self.begin_message(0, to);
        self.close(to);
        self.begin_block(json!({"type": "tool_use", "id": id, "name": name, "input": {}}), to);
        self.call = Some(Call { id, name, ..Call::default() });
    }

    fn arguments(&mut self, piece: &str, to: &mut Events) {
        self.write_delta(json!({"type": "input_json_delta", "partial_json": piece}), to);
        if let Some(call) = &mut self.call {
            call.arguments.push_str(piece);
        }
    }

    fn end_call(&mut self, to: &mut Events) {
        if let Some(Call { id, name, arguments, .. }) = self.call.take() {
            let input = FunctionCall::from_json("", &arguments).map_or_else(|_| json!({}), |call| call.arguments);
            self.end_block(json!({"type": "tool_use", "id": id, "name": name, "input": input}), to);
        }
    }
}

impl Interface for Messages {
    type Body = Body;

    fn request(body: Body, server: &Server, loaded: &LoadedModel) -> Result<(Prompt, Request<Self>), Failure> {
        super::request(body, server, loaded)
    }

    fn begin(&mut self, prompt: usize, _: &mut Events) {
        self.prompt = prompt;
    }

    fn delta(&mut self, _: usize, delta: Delta, to: &mut Events) {
        match delta {
            Delta::Prompt(progress) => self.begin_message(progress.cached, to),
            Delta::Thinking(text) => self.text(Kind::Thinking, &text, to),
            Delta::Text { text, .. } => self.text(Kind::Text, &text, to),
            Delta::Call { id, name } => self.begin_call(id, name, to),
            Delta::Arguments(piece) => self.arguments(&piece, to),
            Delta::CallEnd { .. } => self.end_call(to),
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

    fn alive(&mut self, _: usize, progress: Option<Progress>, to: &mut Events) {
        let mut ping = json!({"type": "ping"});
        if let Some(progress) = progress {
            ping["prompt_progress"] = prompt_progress(progress);
        }
        to.named(&ping);
    }

    /// The message at the end of a stream that nobody reads.
    fn whole(mut self, replies: Vec<Reply>) -> String {
        let mut unread = Events::default();
        replies.into_iter().flat_map(Reply::deltas).for_each(|delta| self.delta(0, delta, &mut unread));
        self.message().to_string()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::Messages;
    use crate::serve::interface::Interface;
    use crate::serve::reply::{Delta, Progress, Reply};
    use crate::serve::stream::Events;
    use serde_json::json;

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
        assert_eq!(message.content[2], json!({"type": "tool_use", "id": "c", "name": "ls", "input": {"path": "."}}));
        let call = &written[kinds.len() - 4];
        assert_eq!(call["delta"], json!({"type": "input_json_delta", "partial_json": "\".\"}"}));
    }
}
