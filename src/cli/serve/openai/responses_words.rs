//! Replies in the words of responses: items, each of which is announced, comes in pieces and is repeated as a whole.

use super::chat_words::{ARGUMENTS, arguments, cut};
use super::responses_input::carry;
use crate::cli::serve::events::{Chunks, Speaker};
use crate::cli::serve::failure::Failure;
use crate::cli::serve::figures::{Usage, timings};
use crate::cli::serve::pieces::{Ending, Outcome, Piece, Whole};
use crate::cli::serve::server::{id, now};
use serde_json::{Map, Value, json};
use wglm::text::ToolCall;

/// The statuses of responses and of their items.
const IN_PROGRESS: &str = "in_progress";
const COMPLETED: &str = "completed";
const INCOMPLETE: &str = "incomplete";

/// What is being said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Reasoning,
    Message,
}

impl Kind {
    /// The beginnings of the item's id and of the names of its events, and the type of its part.
    fn names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Reasoning => ("rs_", "response.reasoning_text", "reasoning_text"),
            Self::Message => ("msg_", "response.output_text", "output_text"),
        }
    }
}

/// An item that has begun.
struct Open {
    kind: Kind,
    id: String,
    text: String,
}

pub struct ResponseWords {
    id: String,
    created: u64,
    model: String,
    /// Fields that repeat the request.
    echo: Map<String, Value>,
    keep_thinking: bool,
    sequence: u64,
    output: Vec<Value>,
    open: Option<Open>,
    outcome: Option<Outcome>,
}

impl ResponseWords {
    pub fn new(model: &str, echo: Map<String, Value>, keep_thinking: bool) -> Self {
        let (id, created, model, output) = (id("resp_"), now(), model.to_owned(), Vec::new());
        Self { id, created, model, echo, keep_thinking, sequence: 0, output, open: None, outcome: None }
    }

    /// The whole answer.
    pub fn whole(&mut self, whole: Whole) -> Value {
        let mut unheard = Chunks::default();
        if !whole.thinking.is_empty() {
            self.piece(0, Piece::Thinking(whole.thinking), &mut unheard);
        }
        if !whole.text.is_empty() {
            self.piece(0, Piece::Text { text: whole.text, tokens: Vec::new() }, &mut unheard);
        }
        for call in whole.calls {
            self.piece(0, Piece::Call(call), &mut unheard);
        }
        self.outcome = whole.outcome;
        let status = self.status();
        self.close(status, &mut unheard);
        self.response(status)
    }

    fn status(&self) -> &'static str {
        match &self.outcome {
            Some(outcome) if outcome.ending == Ending::Cut => INCOMPLETE,
            _ => COMPLETED,
        }
    }

    /// The response as it is now.
    fn response(&self, status: &str) -> Value {
        let mut response = json!({
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "background": false,
            "error": null,
            "incomplete_details": null,
            "model": self.model,
            "output": self.output,
            "usage": null,
        });
        if let Value::Object(fields) = &mut response {
            fields.extend(self.echo.clone());
        }
        if status == INCOMPLETE {
            response["incomplete_details"] = json!({"reason": "max_output_tokens"});
        }
        if let Some(outcome) = &self.outcome {
            response["usage"] = Usage::of(outcome).responses();
            response["timings"] = timings(&outcome.stats);
            if !outcome.warnings.is_empty() {
                response["warnings"] = outcome.warnings.clone().into();
            }
        }
        response
    }

    /// An event, with its number.
    fn say(&mut self, kind: &str, fields: Value, to: &mut Chunks) {
        let mut event = json!({"type": kind, "sequence_number": self.sequence});
        self.sequence += 1;
        if let (Value::Object(event), Value::Object(fields)) = (&mut event, fields) {
            event.extend(fields);
        }
        to.named(&event);
    }

    fn part(kind: Kind, text: &str) -> Value {
        match kind {
            Kind::Reasoning => json!({"type": "reasoning_text", "text": text}),
            Kind::Message => json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []}),
        }
    }

    fn item(&self, open: &Open, status: &str) -> Value {
        let content = match open.text.is_empty() {
            true => json!([]),
            false => json!([Self::part(open.kind, &open.text)]),
        };
        match open.kind {
            Kind::Reasoning => {
                let done = self.keep_thinking && status != IN_PROGRESS;
                let carried = if done { carry(&open.text).into() } else { Value::Null };
                let (id, summary) = (&open.id, json!([]));
                json!({"id": id, "type": "reasoning", "summary": summary, "content": content, "encrypted_content": carried})
            }
            Kind::Message => {
                json!({"id": open.id, "type": "message", "status": status, "role": "assistant", "content": content})
            }
        }
    }

    /// Makes sure that an item of this kind is open.
    fn begin_item(&mut self, kind: Kind, to: &mut Chunks) {
        if self.open.as_ref().is_some_and(|open| open.kind == kind) {
            return;
        }
        self.close(COMPLETED, to);
        let open = Open { kind, id: id(kind.names().0), text: String::new() };
        let (index, item) = (self.output.len(), self.item(&open, IN_PROGRESS));
        self.say("response.output_item.added", json!({"output_index": index, "item": item}), to);
        let place =
            json!({"item_id": open.id, "output_index": index, "content_index": 0, "part": Self::part(kind, "")});
        self.say("response.content_part.added", place, to);
        self.open = Some(open);
    }

    /// More text of the open item.
    fn text(&mut self, kind: Kind, delta: String, to: &mut Chunks) {
        self.begin_item(kind, to);
        let index = self.output.len();
        let Some(open) = &mut self.open else { return };
        open.text.push_str(&delta);
        let mut fields = json!({"item_id": open.id, "output_index": index, "content_index": 0, "delta": delta});
        if kind == Kind::Message {
            fields["logprobs"] = json!([]);
        }
        self.say(&format!("{}.delta", kind.names().1), fields, to);
    }

    /// Ends the open item, if there is one, with a status.
    fn close(&mut self, status: &str, to: &mut Chunks) {
        let Some(open) = self.open.take() else { return };
        let index = self.output.len();
        let (place, part) = (json!({"item_id": open.id, "output_index": index, "content_index": 0}), &open.text);
        let with = |name: &str, value: Value| {
            let mut fields = place.clone();
            fields[name] = value;
            fields
        };
        let mut done = with("text", part.as_str().into());
        if open.kind == Kind::Message {
            done["logprobs"] = json!([]);
        }
        self.say(&format!("{}.done", open.kind.names().1), done, to);
        self.say("response.content_part.done", with("part", Self::part(open.kind, part)), to);
        let item = self.item(&open, status);
        self.say("response.output_item.done", json!({"output_index": index, "item": item}), to);
        self.output.push(item);
    }

    fn call(&mut self, call: &ToolCall, to: &mut Chunks) {
        self.close(COMPLETED, to);
        let (index, id, arguments) = (self.output.len(), id("fc_"), arguments(call));
        let item = |status: &str, arguments: &str| {
            json!({
                "id": id,
                "type": "function_call",
                "status": status,
                "call_id": call.id,
                "name": call.function.name,
                "arguments": arguments,
            })
        };
        let added = json!({"output_index": index, "item": item(IN_PROGRESS, "")});
        self.say("response.output_item.added", added, to);
        for piece in cut(&arguments, ARGUMENTS) {
            let fields = json!({"item_id": id, "output_index": index, "delta": piece});
            self.say("response.function_call_arguments.delta", fields, to);
        }
        let name = &call.function.name;
        let done = json!({"item_id": id, "output_index": index, "name": name, "arguments": arguments});
        self.say("response.function_call_arguments.done", done, to);
        let whole = item(COMPLETED, &arguments);
        self.say("response.output_item.done", json!({"output_index": index, "item": whole}), to);
        self.output.push(whole);
    }
}

impl Speaker for ResponseWords {
    fn begin(&mut self, _: usize, to: &mut Chunks) {
        for kind in ["response.created", "response.in_progress"] {
            let response = self.response(IN_PROGRESS);
            self.say(kind, json!({"response": response}), to);
        }
    }

    fn piece(&mut self, _: usize, piece: Piece, to: &mut Chunks) {
        match piece {
            Piece::Prompt { .. } => {}
            Piece::Thinking(text) => self.text(Kind::Reasoning, text, to),
            Piece::Text { text, .. } => self.text(Kind::Message, text, to),
            Piece::Call(call) => self.call(&call, to),
            Piece::End(outcome) => {
                self.outcome = Some(*outcome);
                self.close(self.status(), to);
            }
        }
    }

    fn end(&mut self, to: &mut Chunks) {
        let status = self.status();
        let response = self.response(status);
        self.say(&format!("response.{status}"), json!({"response": response}), to);
    }

    fn failed(&mut self, failure: &Failure, to: &mut Chunks) {
        let mut response = self.response("failed");
        response["error"] = json!({"code": failure.code.unwrap_or("server_error"), "message": failure.message});
        self.say("response.failed", json!({"response": response}), to);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::ResponseWords;
    use crate::cli::serve::events::{Chunks, Speaker};
    use crate::cli::serve::pieces::Piece;
    use serde_json::{Value, json};
    use wglm::ToolCall;

    #[test]
    fn items_come_in_pieces_and_again_as_a_whole() {
        let arguments = json!({"path": "."}).as_object().cloned().unwrap();
        let call = Piece::Call(ToolCall { id: Some("c".into()), ..ToolCall::new("ls", arguments) });
        let (mut words, mut chunks) = (ResponseWords::new("m", Default::default(), true), Chunks::default());
        words.begin(7, &mut chunks);
        let text = Piece::Text { text: "answer".into(), tokens: Vec::new() };
        for piece in [Piece::Thinking("h".into()), Piece::Thinking("m".into()), text, call] {
            words.piece(0, piece, &mut chunks);
        }
        words.end(&mut chunks);
        let said = chunks.said();
        let numbers: Vec<u64> = said.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
        assert_eq!(numbers, (0..said.len() as u64).collect::<Vec<_>>());
        let of = |kind: &str| said.iter().filter(|event| event["type"] == kind).collect::<Vec<&Value>>();
        let done: Vec<Value> = of("response.output_item.done").iter().map(|event| event["item"].clone()).collect();
        let kinds: Vec<&str> = done.iter().map(|item| item["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["reasoning", "message", "function_call"]);
        assert_eq!(done[0]["content"][0]["text"], "hm");
        assert!(done[0]["encrypted_content"].is_string());
        assert_eq!((&done[2]["call_id"], &done[2]["arguments"]), (&"c".into(), &"{\"path\":\".\"}".into()));
        let last = said.last().unwrap();
        assert_eq!((&last["type"], &last["response"]["output"]), (&"response.completed".into(), &json!(done)));
    }
}
