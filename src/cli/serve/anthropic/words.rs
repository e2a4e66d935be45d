//! Replies in the words of messages: blocks, each of which begins, grows and ends.

use crate::cli::serve::events::{Chunks, Speaker};
use crate::cli::serve::failure::{Dialect, Failure};
use crate::cli::serve::figures::{Usage, timings};
use crate::cli::serve::openai::words::{ARGUMENTS, arguments, cut};
use crate::cli::serve::pieces::{Ending, Outcome, Piece, Whole};
use crate::cli::serve::server::id;
use serde_json::{Value, json};
use wglm::text::ToolCall;

/// What stands where Anthropic's servers sign thinking. This one does not check signatures.
const SIGNATURE: &str = "unsigned";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Thinking,
    Text,
}

pub struct MessageWords {
    id: String,
    model: String,
    /// The stop strings that were asked for.
    stops: Vec<String>,
    open: Option<Kind>,
    /// How many blocks have ended.
    blocks: usize,
    prompt: usize,
    begun: bool,
    outcome: Option<Outcome>,
}

impl MessageWords {
    pub fn new(model: &str, stops: Vec<String>) -> Self {
        let (id, model) = (id("msg_"), model.to_owned());
        Self { id, model, stops, open: None, blocks: 0, prompt: 0, begun: false, outcome: None }
    }

    /// Why the reply ended, and the stop string if it is known which one it was.
    fn stop(&self, outcome: &Outcome) -> (&'static str, Value) {
        match outcome.ending {
            Ending::Done => ("end_turn", Value::Null),
            Ending::Calls => ("tool_use", Value::Null),
            Ending::Cut => ("max_tokens", Value::Null),
            Ending::StopString => {
                let only = self.stops.first().filter(|_| self.stops.len() == 1);
                ("stop_sequence", only.map_or(Value::Null, |stop| stop.as_str().into()))
            }
        }
    }

    /// The whole answer.
    pub fn whole(&mut self, whole: Whole) -> Value {
        let mut content = Vec::new();
        if !whole.thinking.is_empty() {
            content.push(json!({"type": "thinking", "thinking": whole.thinking, "signature": SIGNATURE}));
        }
        if !whole.text.is_empty() {
            content.push(json!({"type": "text", "text": whole.text}));
        }
        for call in whole.calls {
            let function = call.function;
            content.push(json!({
                "type": "tool_use",
                "id": call.id,
                "name": function.name,
                "input": function.arguments,
            }));
        }
        let mut answer = self.message(content.into());
        if let Some(outcome) = whole.outcome {
            let (reason, sequence) = self.stop(&outcome);
            answer["stop_reason"] = reason.into();
            answer["stop_sequence"] = sequence;
            answer["usage"] = Usage::of(&outcome).anthropic();
            answer["timings"] = timings(&outcome.stats);
            if !outcome.warnings.is_empty() {
                answer["warnings"] = outcome.warnings.into();
            }
        }
        answer
    }

    fn message(&self, content: Value) -> Value {
        let usage = Usage { prompt: self.prompt, ..Usage::default() };
        json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            "stop_reason": null,
            "stop_sequence": null,
            "usage": usage.anthropic(),
        })
    }

    /// The beginning of the message, once it is known how much of the prompt the cache had.
    fn begin_message(&mut self, cached: usize, to: &mut Chunks) {
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        let mut message = self.message(json!([]));
        message["usage"] = Usage { prompt: self.prompt, cached, ..Usage::default() }.anthropic();
        to.named(&json!({"type": "message_start", "message": message}));
        to.named(&json!({"type": "ping"}));
    }

    fn delta(&self, delta: Value, to: &mut Chunks) {
        to.named(&json!({"type": "content_block_delta", "index": self.blocks, "delta": delta}));
    }

    fn start(&self, block: Value, to: &mut Chunks) {
        to.named(&json!({"type": "content_block_start", "index": self.blocks, "content_block": block}));
    }

    fn stop_block(&mut self, to: &mut Chunks) {
        to.named(&json!({"type": "content_block_stop", "index": self.blocks}));
        self.blocks += 1;
    }

    fn close(&mut self, to: &mut Chunks) {
        let Some(kind) = self.open.take() else { return };
        if kind == Kind::Thinking {
            self.delta(json!({"type": "signature_delta", "signature": SIGNATURE}), to);
        }
        self.stop_block(to);
    }

    fn text(&mut self, kind: Kind, text: &str, to: &mut Chunks) {
        self.begin_message(0, to);
        if self.open != Some(kind) {
            self.close(to);
            self.open = Some(kind);
            match kind {
                Kind::Thinking => self.start(json!({"type": "thinking", "thinking": "", "signature": ""}), to),
                Kind::Text => self.start(json!({"type": "text", "text": ""}), to),
            }
        }
        match kind {
            Kind::Thinking => self.delta(json!({"type": "thinking_delta", "thinking": text}), to),
            Kind::Text => self.delta(json!({"type": "text_delta", "text": text}), to),
        }
    }

    fn call(&mut self, call: &ToolCall, to: &mut Chunks) {
        self.begin_message(0, to);
        self.close(to);
        let name = &call.function.name;
        self.start(json!({"type": "tool_use", "id": call.id, "name": name, "input": {}}), to);
        for piece in cut(&arguments(call), ARGUMENTS) {
            self.delta(json!({"type": "input_json_delta", "partial_json": piece}), to);
        }
        self.stop_block(to);
    }
}

impl Speaker for MessageWords {
    fn begin(&mut self, prompt: usize, _: &mut Chunks) {
        self.prompt = prompt;
    }

    fn piece(&mut self, _: usize, piece: Piece, to: &mut Chunks) {
        match piece {
            Piece::Prompt { cached } => self.begin_message(cached, to),
            Piece::Thinking(text) => self.text(Kind::Thinking, &text, to),
            Piece::Text { text, .. } => self.text(Kind::Text, &text, to),
            Piece::Call(call) => self.call(&call, to),
            Piece::End(outcome) => self.outcome = Some(*outcome),
        }
    }

    fn end(&mut self, to: &mut Chunks) {
        self.begin_message(0, to);
        self.close(to);
        if let Some(outcome) = self.outcome.take() {
            let (reason, sequence) = self.stop(&outcome);
            let mut event = json!({
                "type": "message_delta",
                "delta": {"stop_reason": reason, "stop_sequence": sequence},
                "usage": Usage::of(&outcome).anthropic(),
                "timings": timings(&outcome.stats),
            });
            if !outcome.warnings.is_empty() {
                event["warnings"] = outcome.warnings.into();
            }
            to.named(&event);
        }
        to.named(&json!({"type": "message_stop"}));
    }

    fn failed(&mut self, failure: &Failure, to: &mut Chunks) {
        to.named(&failure.body(Dialect::Anthropic));
    }

    fn alive(&mut self, to: &mut Chunks) {
        to.named(&json!({"type": "ping"}));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::MessageWords;
    use crate::cli::serve::events::{Chunks, Speaker};
    use crate::cli::serve::pieces::Piece;
    use serde_json::json;
    use wglm::ToolCall;

    #[test]
    fn blocks_begin_grow_and_end_one_after_another() {
        let arguments = json!({"path": "."}).as_object().cloned().unwrap();
        let call = Piece::Call(ToolCall::new("ls", arguments));
        let (mut words, mut chunks) = (MessageWords::new("m", Vec::new()), Chunks::default());
        words.begin(7, &mut chunks);
        let text = |text: &str| Piece::Text { text: text.into(), tokens: Vec::new() };
        for piece in [Piece::Prompt { cached: 3 }, Piece::Thinking("hm".into()), text("a"), text("b"), call] {
            words.piece(0, piece, &mut chunks);
        }
        words.end(&mut chunks);
        let said = chunks.said();
        let kinds: Vec<&str> = said.iter().map(|event| event["type"].as_str().unwrap()).collect();
        let (start, delta, stop) = ("content_block_start", "content_block_delta", "content_block_stop");
        let blocks = [start, delta, delta, stop, start, delta, delta, stop, start, delta, stop];
        assert_eq!(kinds, [&["message_start", "ping"][..], &blocks, &["message_stop"]].concat());
        assert_eq!(said[0]["message"]["usage"]["cache_read_input_tokens"], 3);
        assert_eq!(said[0]["message"]["usage"]["input_tokens"], 4);
        let indices: Vec<u64> = said.iter().filter_map(|event| event["index"].as_u64()).collect();
        assert_eq!(indices, [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2]);
        let call = &said[kinds.len() - 3];
        assert_eq!(call["delta"], json!({"type": "input_json_delta", "partial_json": "{\"path\":\".\"}"}));
    }
}
