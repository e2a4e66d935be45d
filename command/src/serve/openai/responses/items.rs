//! Writes replies as the items of a response. Each item is announced, comes in pieces and is repeated as a whole.

use super::input::{Item, conversation, encoded_thinking};
use super::kept::Keeper;
use super::namespaces::Namespaces;
use super::{Body, echo};
use crate::serve::client::Client;
use crate::serve::conversation::Origins;
use crate::serve::failure::Failure;
use crate::serve::figures::{Usage, add_figures, prompt_progress};
use crate::serve::interface::{Interface, Prompt, Request, field_of};
use crate::serve::memory::Share;
use crate::serve::reply::{Delta, Finish, FinishReason, Progress, Reply};
use crate::serve::server::{LoadedModel, Server, id, now};
use crate::serve::stream::Events;
use crate::serve::unmet::Warnings;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// The statuses of responses and of their items.
const IN_PROGRESS: &str = "in_progress";
const COMPLETED: &str = "completed";
const INCOMPLETE: &str = "incomplete";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Reasoning,
    Message,
    Call,
}

impl Kind {
    /// The beginning of the item's id, and the type of its part.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Reasoning => ("rs_", "reasoning_text"),
            Self::Message => ("msg_", "output_text"),
            Self::Call => ("fc_", "function_call_arguments"),
        }
    }
}

/// An item that has begun. The text of a call is its arguments.
struct Open {
    kind: Kind,
    id: String,
    text: String,
    call: Called,
}

/// The id of a call, and its function as the client knows it.
#[derive(Default)]
struct Called {
    id: String,
    namespace: Option<String>,
    name: String,
}

pub struct Responses {
    id: String,
    created: u64,
    model: String,
    /// The fields that repeat those of the request, and the same without those that may be long.
    echo: Map<String, Value>,
    short_echo: Map<String, Value>,
    /// Whether the client gets the thinking in a form that it can send back.
    include_thinking: bool,
    namespaces: Namespaces,
    /// Stores the response at its end, unless the client refuses that.
    keeper: Option<Keeper>,
    /// Where the request has the messages of the conversation.
    origins: Origins,
    sequence: u64,
    output: Vec<Value>,
    open: Option<Open>,
    finish: Option<Finish>,
}

impl Responses {
    pub fn new(
        model: &str,
        echo: Map<String, Value>,
        include_thinking: bool,
        namespaces: Namespaces,
        keeper: Option<Keeper>,
    ) -> Self {
        let (id, created, model, output) = (id("resp_"), now(), model.to_owned(), Vec::new());
        let short_echo = echo::shortened(&echo);
        let (sequence, open, finish) = (0, None, None);
        Self {
            id,
            created,
            model,
            echo,
            short_echo,
            include_thinking,
            namespaces,
            keeper,
            origins: Origins::default(),
            sequence,
            output,
            open,
            finish,
        }
    }

    /// The same for a conversation with these origins.
    pub fn with_origins(self, origins: Origins) -> Self {
        Self { origins, ..self }
    }

    /// The status of a reply that has ended.
    fn status(&self) -> &'static str {
        let is_cut = self.finish.as_ref().is_some_and(|finish| finish.reason == FinishReason::Length);
        if is_cut { INCOMPLETE } else { COMPLETED }
    }

    /// The whole response at the end of the reply. This is what is stored.
    fn response(&mut self) -> Value {
        let response = self.response_with(self.status(), &self.output, &self.echo);
        if let Some(keeper) = self.keeper.take() {
            let items = self.output.iter().map(Item::deserialize).collect::<Result<Vec<_>, _>>();
            let reply =
                items.ok().and_then(|items| conversation(items, &self.namespaces, &mut Warnings::default()).ok());
            // Without the reply, the conversation would continue as if there had been none.
            if let Some((reply, _)) = reply {
                keeper.keep(&self.id, &reply, &response);
            }
        }
        response
    }

    fn response_with(&self, status: &str, output: &[Value], echo: &Map<String, Value>) -> Value {
        let mut response = json!({
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "background": false,
            "error": null,
            "incomplete_details": null,
            "model": self.model,
            "output": output,
            "usage": null,
        });
        if let Value::Object(fields) = &mut response {
            fields.extend(echo.clone());
        }
        if status == INCOMPLETE {
            response["incomplete_details"] = json!({"reason": "max_output_tokens"});
        }
        if let Some(finish) = &self.finish {
            response["usage"] = Usage::of(finish).responses();
            add_figures(finish, &mut response);
        }
        response
    }

    /// An event, with its number.
    fn write(&mut self, kind: &str, fields: Value, to: &mut Events) {
        let mut event = json!({"type": kind, "sequence_number": self.sequence});
        self.sequence += 1;
        if let (Value::Object(event), Value::Object(fields)) = (&mut event, fields) {
            event.extend(fields);
        }
        to.named(&event);
    }

    fn part(kind: Kind, text: &str) -> Value {
        let mut part = json!({"type": kind.names().1, "text": text});
        if kind == Kind::Message {
            (part["annotations"], part["logprobs"]) = (json!([]), json!([]));
        }
        part
    }

    fn item(&self, open: &Open, status: &str) -> Value {
        let Called { id: call, namespace, name } = &open.call;
        let content = || match open.text.is_empty() {
            true => json!([]),
            false => json!([Self::part(open.kind, &open.text)]),
        };
        match open.kind {
            Kind::Reasoning => {
                let done = self.include_thinking && status != IN_PROGRESS;
                let carried = if done { encoded_thinking(&open.text).into() } else { Value::Null };
                let (id, summary) = (&open.id, json!([]));
                json!({"id": id, "type": "reasoning", "summary": summary, "content": content(), "encrypted_content": carried})
            }
            Kind::Message => {
                json!({"id": open.id, "type": "message", "status": status, "role": "assistant", "content": content()})
            }
            Kind::Call => {
                let mut item = json!({
                    "id": open.id,
                    "type": "function_call",
                    "status": status,
                    "call_id": call,
                    "name": name,
                    "arguments": open.text,
                });
                namespace.iter().for_each(|namespace| item["namespace"] = namespace.as_str().into());
                item
            }
        }
    }

    /// Ends the open item and begins another one.
    fn begin_item(&mut self, kind: Kind, call: Called, to: &mut Events) {
        self.close(COMPLETED, to);
        let open = Open { kind, id: id(kind.names().0), text: String::new(), call };
        let (index, item) = (self.output.len(), self.item(&open, IN_PROGRESS));
        self.write("response.output_item.added", json!({"output_index": index, "item": item}), to);
        if kind != Kind::Call {
            let mut place = self.place(&open);
            place["part"] = Self::part(kind, "");
            self.write("response.content_part.added", place, to);
        }
        self.open = Some(open);
    }

    /// The fields that say which item, and which part of it, an event belongs to. A call has no parts.
    fn place(&self, open: &Open) -> Value {
        let mut place = json!({"item_id": open.id, "output_index": self.output.len()});
        if open.kind != Kind::Call {
            place["content_index"] = 0.into();
        }
        place
    }

    fn text(&mut self, kind: Kind, delta: String, to: &mut Events) {
        if self.open.as_ref().is_none_or(|open| open.kind != kind) {
            self.begin_item(kind, Called::default(), to);
        }
        let Some(mut open) = self.open.take() else { return };
        open.text.push_str(&delta);
        let mut fields = self.place(&open);
        fields["delta"] = delta.into();
        if kind == Kind::Message {
            fields["logprobs"] = json!([]);
        }
        self.open = Some(open);
        self.write(&format!("response.{}.delta", kind.names().1), fields, to);
    }

    /// Ends the open item, if there is one, with a status.
    fn close(&mut self, status: &str, to: &mut Events) {
        let Some(open) = self.open.take() else { return };
        let (index, item) = (self.output.len(), self.item(&open, status));
        let mut done = self.place(&open);
        let mut part = done.clone();
        match open.kind {
            Kind::Call => (done["name"], done["arguments"]) = (open.call.name.into(), open.text.into()),
            kind => {
                part["part"] = Self::part(kind, &open.text);
                done["text"] = open.text.into();
            }
        }
        if open.kind == Kind::Message {
            done["logprobs"] = json!([]);
        }
        // The arguments of a call that has failed are not complete.
        if open.kind != Kind::Call || status == COMPLETED {
            self.write(&format!("response.{}.done", open.kind.names().1), done, to);
        }
        if open.kind != Kind::Call {
            self.write("response.content_part.done", part, to);
        }
        self.write("response.output_item.done", json!({"output_index": index, "item": item}), to);
        self.output.push(item);
    }
}

impl Interface for Responses {
    type Body = Body;

    fn complete(body: &mut Body, server: &Server, client: Client, memory: &Share) -> Result<(), Failure> {
        super::complete(body, server, client, memory)
    }

    fn request(body: Body, server: &Server, loaded: &LoadedModel) -> Result<(Prompt, Request<Self>), Failure> {
        super::request(body, server, loaded)
    }

    fn argument(name: &'static str) -> Cow<'static, str> {
        match name {
            "constraint" => "text.format".into(),
            "tool_call_id" => "call_id".into(),
            other => field_of(other).into(),
        }
    }

    fn message(&self, index: usize) -> String {
        self.origins.place(index)
    }

    fn begin(&mut self, _: usize, to: &mut Events) {
        for kind in ["response.created", "response.in_progress"] {
            let response = self.response_with(IN_PROGRESS, &[], &self.echo);
            self.write(kind, json!({"response": response}), to);
        }
    }

    fn delta(&mut self, _: usize, delta: Delta, to: &mut Events) {
        match delta {
            Delta::Prompt(_) | Delta::PromptToken(_) => {}
            Delta::Thinking(text) => self.text(Kind::Reasoning, text, to),
            Delta::Text { text, .. } => self.text(Kind::Message, text, to),
            Delta::Call { id, name } => {
                let (namespace, name) = self.namespaces.meant(&name);
                let call = Called { id, namespace: namespace.map(str::to_owned), name: name.to_owned() };
                self.begin_item(Kind::Call, call, to);
            }
            Delta::Arguments(piece) => self.text(Kind::Call, piece, to),
            Delta::CallEnd { is_whole } => self.close(if is_whole { COMPLETED } else { INCOMPLETE }, to),
            Delta::End(finish) => {
                self.finish = Some(*finish);
                self.close(self.status(), to);
            }
        }
    }

    /// A heartbeat has the fields of a response without those that may be long, because there may be many heartbeats.
    fn alive(&mut self, _: usize, progress: Option<Progress>, to: &mut Events) {
        let mut fields = json!({"response": self.response_with(IN_PROGRESS, &[], &self.short_echo)});
        if let Some(progress) = progress {
            fields["prompt_progress"] = prompt_progress(progress);
        }
        self.write("response.in_progress", fields, to);
    }

    fn end(&mut self, to: &mut Events) {
        let (status, response) = (self.status(), self.response());
        self.write(&format!("response.{status}"), json!({"response": response}), to);
    }

    fn failed(&mut self, failure: &Failure, to: &mut Events) {
        let mut response = self.response_with("failed", &self.output, &self.echo);
        response["error"] = json!({"code": failure.code.unwrap_or("server_error"), "message": failure.message});
        self.write("response.failed", json!({"response": response}), to);
    }

    /// Codex shortens a conversation only if this event says that it is too long.
    fn reports_in_stream(failure: &Failure) -> bool {
        failure.code == Some("context_length_exceeded")
    }

    /// The response at the end of a stream that nobody reads.
    fn whole(mut self, replies: Vec<Reply>) -> String {
        let mut unread = Events::default();
        replies.into_iter().flat_map(Reply::deltas).for_each(|delta| self.delta(0, delta, &mut unread));
        self.response().to_string()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Failure, Responses};
    use crate::serve::interface::Interface;
    use crate::serve::reply::Delta;
    use crate::serve::stream::Events;
    use serde_json::{Value, json};
    use wglm_engine::Error;

    #[test]
    fn items_come_in_pieces_and_again_as_a_whole() {
        let call = Delta::Call { id: "c".into(), name: "ls".into() };
        let [piece, rest] = ["{\"path\":", "\".\"}"].map(|piece| Delta::Arguments(piece.into()));
        let ended = Delta::CallEnd { is_whole: true };
        let (mut response, mut events) =
            (Responses::new("m", Default::default(), true, Default::default(), None), Events::default());
        response.begin(7, &mut events);
        let text = Delta::Text { text: "answer".into(), tokens: Vec::new() };
        for delta in [Delta::Thinking("h".into()), Delta::Thinking("m".into()), text, call, piece, rest, ended] {
            response.delta(0, delta, &mut events);
        }
        response.end(&mut events);
        let written = events.values();
        let numbers: Vec<u64> = written.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
        assert_eq!(numbers, (0..written.len() as u64).collect::<Vec<_>>());
        let of = |kind: &str| written.iter().filter(|event| event["type"] == kind).collect::<Vec<&Value>>();
        let done: Vec<Value> = of("response.output_item.done").iter().map(|event| event["item"].clone()).collect();
        let kinds: Vec<&str> = done.iter().map(|item| item["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["reasoning", "message", "function_call"]);
        assert_eq!(done[0]["content"][0]["text"], "hm");
        assert!(done[0]["encrypted_content"].is_string());
        assert_eq!((&done[2]["call_id"], &done[2]["arguments"]), (&"c".into(), &"{\"path\":\".\"}".into()));
        let last = written.last().unwrap();
        assert_eq!((&last["type"], &last["response"]["output"]), (&"response.completed".into(), &json!(done)));
    }

    #[test]
    fn the_arguments_of_a_call_that_failed_are_not_done() {
        let (mut response, mut events) =
            (Responses::new("m", Default::default(), true, Default::default(), None), Events::default());
        let call = Delta::Call { id: "c".into(), name: "ls".into() };
        for delta in [call, Delta::Arguments("{\"pa".into()), Delta::CallEnd { is_whole: false }] {
            response.delta(0, delta, &mut events);
        }
        let written = events.values();
        let kinds: Vec<&str> = written.iter().map(|event| event["type"].as_str().unwrap()).collect();
        let item =
            ["response.output_item.added", "response.function_call_arguments.delta", "response.output_item.done"];
        assert_eq!((kinds, &written[2]["item"]["status"]), (item.to_vec(), &json!("incomplete")));
    }

    /// Codex finds the code of a conversation that is too long only there.
    #[test]
    fn a_conversation_that_is_too_long_is_reported_in_the_stream() {
        let too_long = Failure::from(Error::ContextFull { needed: 9000, context: 8192 });
        assert!(Responses::reports_in_stream(&too_long) && !Responses::reports_in_stream(&Failure::invalid("wrong")));
        let (mut response, mut events) =
            (Responses::new("m", Default::default(), true, Default::default(), None), Events::default());
        response.begin(0, &mut events);
        response.failed(&too_long, &mut events);
        let written = events.values();
        let kinds: Vec<&str> = written.iter().map(|event| event["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["response.created", "response.in_progress", "response.failed"]);
        let response = &written[2]["response"];
        assert_eq!([&response["status"], &response["error"]["code"]], ["failed", "context_length_exceeded"]);
    }

    /// A heartbeat has the fields of the response, but not the long ones of the request or the text written so far.
    #[test]
    fn signs_of_life_are_short() {
        let long = json!({"instructions": "Be brief.", "tools": [{"name": "ls"}], "text": {"format": {"type": "json_schema"}}, "top_p": 1});
        let (mut response, mut events) =
            (Responses::new("m", long.as_object().unwrap().clone(), true, Default::default(), None), Events::default());
        response.begin(7, &mut events);
        response.delta(0, Delta::Thinking("hm".into()), &mut events);
        response.delta(0, Delta::Text { text: "answer".into(), tokens: Vec::new() }, &mut events);
        response.alive(0, None, &mut events);
        let written = events.values();
        let (first, sign) = (&written[1]["response"], &written.last().unwrap()["response"]);
        let keys = |of: &Value| of.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!((keys(first), &first["instructions"]), (keys(sign), &json!("Be brief.")));
        let fields = ["status", "output", "instructions", "tools", "text", "top_p"].map(|name| sign[name].clone());
        assert_eq!(json!(fields), json!(["in_progress", [], null, [], {"format": {"type": "text"}}, 1]));
    }
}
