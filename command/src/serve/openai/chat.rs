//! `/v1/chat/completions`.

use super::frame::Frame;
use super::messages::{functions, is_function, messages, take_prefix};
use crate::serve::body::JsonBody;
use crate::serve::client::Client;
use crate::serve::constraints::{self, FormatField};
use crate::serve::conversation::{Conversation, check_messages, check_tools};
use crate::serve::counting::count;
use crate::serve::failure::Failure;
use crate::serve::fields::{Fields, StreamOptions, choices, integer, max_tokens, top_logprobs};
use crate::serve::figures::ChatLogprobs;
use crate::serve::interface::{Interface, Prompt, Request};
use crate::serve::memory::Share;
use crate::serve::reply::{Call, Delta, FinishReason, Progress, Reply};
use crate::serve::router::json;
use crate::serve::server::{LoadedModel, Server};
use crate::serve::stream::Events;
use crate::serve::unmet::{OtherFields, Warnings};
use axum::extract::State;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;
use wglm_engine::text::Message;

/// The values of `object` in answers and chunks.
const ANSWER: &str = "chat.completion";
const CHUNK: &str = "chat.completion.chunk";

#[derive(Debug, Deserialize)]
pub struct Body {
    messages: Vec<Message>,
    stream_options: Option<StreamOptions>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    parallel_tool_calls: Option<bool>,
    response_format: Option<FormatField>,
    json_schema: Option<Value>,
    logprobs: Option<bool>,
    #[serde(default, deserialize_with = "integer")]
    top_logprobs: Option<u64>,
    #[serde(default, deserialize_with = "integer")]
    max_tokens: Option<i64>,
    #[serde(default, deserialize_with = "integer")]
    max_completion_tokens: Option<i64>,
    #[serde(default, deserialize_with = "integer")]
    n: Option<u64>,
    /// vLLM's name for replies that continue the last message, and what vLLM requires beside it.
    continue_final_message: Option<bool>,
    add_generation_prompt: Option<bool>,
    #[serde(flatten)]
    fields: Fields,
    #[serde(flatten)]
    others: OtherFields,
}

pub struct Chat {
    frame: Frame,
    /// How many calls of each reply have ended.
    calls: Vec<usize>,
}

/// A reply in a whole answer.
#[derive(Serialize)]
struct Choice<'a> {
    index: usize,
    message: AssistantMessage<'a>,
    logprobs: Option<ChatLogprobs<'a>>,
    finish_reason: &'static str,
}

#[derive(Serialize)]
struct AssistantMessage<'a> {
    role: &'static str,
    content: Option<&'a str>,
    refusal: (),
    #[serde(skip_serializing_if = "str::is_empty")]
    reasoning_content: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Value>,
}

fn finish_reason(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop | FinishReason::StopString => "stop",
        FinishReason::Calls => "tool_calls",
        FinishReason::Length => "length",
    }
}

fn message(reply: &Reply) -> AssistantMessage<'_> {
    let call = |call: &Call| {
        let function = json!({"name": call.name, "arguments": call.arguments});
        json!({"id": call.id, "type": "function", "function": function})
    };
    let has_content = !reply.text.is_empty() || reply.calls.is_empty();
    AssistantMessage {
        role: "assistant",
        content: has_content.then_some(&reply.text),
        refusal: (),
        reasoning_content: &reply.thinking,
        tool_calls: reply.calls.iter().map(call).collect(),
    }
}

/// Whether the reply continues the last message: the body says so, or the message itself does.
fn continues(body: &mut Body) -> Result<bool, Failure> {
    let prefixed = take_prefix(&mut body.messages)?.then_some("prefix: true");
    if prefixed.is_some() && body.continue_final_message == Some(false) {
        let wrong =
            "expected true or nothing with prefix: true, because the last message is the beginning of the reply";
        return Err(Failure::of_field("continue_final_message", wrong));
    }
    let asked = body.continue_final_message.filter(|asked| *asked).map(|_| "continue_final_message: true");
    match (asked.or(prefixed), body.add_generation_prompt) {
        (Some(asked), Some(true)) => {
            let wrong = format!("expected false with {asked}, because the last message is the beginning of the reply");
            Err(Failure::of_field("add_generation_prompt", wrong))
        }
        (None, Some(false)) => {
            let wrong = "false is supported only together with continue_final_message: true or prefix: true";
            Err(Failure::of_field("add_generation_prompt", wrong).with_code("unsupported"))
        }
        (asked, _) => Ok(asked.is_some()),
    }
}

/// The number of likeliest tokens to report beside each token, if log-probabilities are wanted.
fn logprobs_of(are_wanted: bool, top: Option<u64>) -> Result<Option<usize>, Failure> {
    match top.unwrap_or(0) {
        top if are_wanted => top_logprobs("top_logprobs", top).map(Some),
        0 => Ok(None),
        _ => Err(Failure::of_field("top_logprobs", "supported only together with logprobs: true")),
    }
}

/// A choice in a chunk.
fn choice(index: usize, delta: Value, logprobs: Option<ChatLogprobs>, reason: Option<&str>) -> Value {
    json!({"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason})
}

impl Body {
    /// The conversation. Its fields are taken out of the body.
    fn conversation(&mut self, server: &Server, warnings: &mut Warnings) -> Result<Conversation, Failure> {
        check_messages("messages", self.messages.len(), server)?;
        let tools = self.tools.take().unwrap_or_default();
        check_tools(&tools)?;
        warnings.tools("", &tools, is_function);
        let written = server.schema_options(self.fields.json_whitespace);
        let (format_in, format, written) = match self.json_schema.take() {
            // llama.cpp's own field, whose objects are closed there.
            Some(schema) => ("json_schema", FormatField::schema(schema), written.with_closed(true)),
            None => ("response_format", self.response_format.take().unwrap_or_default(), written),
        };
        let mut tools = functions(tools)?;
        let calls = constraints::choice(self.tool_choice.as_ref(), &mut tools)?;
        let fields = std::mem::take(&mut self.fields);
        Ok(Conversation {
            messages: messages(std::mem::take(&mut self.messages), warnings)?,
            tools,
            calls,
            format: format.read(format_in, written)?,
            format_in,
            max_tokens: max_tokens([
                ("max_completion_tokens", self.max_completion_tokens),
                ("max_tokens", self.max_tokens),
            ])?,
            thinking: server.reasoning,
            overflow: server.overflow,
            fields,
            fields_in: "",
        })
    }
}

/// `/v1/chat/completions/input_tokens`, which llama.cpp's server has.
pub async fn input_tokens(State(server): State<Arc<Server>>, body: JsonBody) -> Result<Response, Failure> {
    let conversation = |mut body: Body, server: &Server, _: Client, _: &Share| {
        Ok((body.conversation(server, &mut Warnings::default())?, false))
    };
    let tokens = count(server, body, conversation).await?;
    Ok(json(&json!({"input_tokens": tokens})))
}

impl Chat {
    fn new(frame: Frame, choices: usize) -> Self {
        Self { frame, calls: vec![0; choices] }
    }

    fn chunk(&self, index: usize, delta: Value, logprobs: Option<ChatLogprobs>, to: &mut Events) {
        self.frame.chunk(CHUNK, choice(index, delta, logprobs, None), None, to);
    }

    /// Writes what is new of the call that a reply makes at present.
    fn call(&self, index: usize, mut new: Value, to: &mut Events) {
        new["index"] = self.calls[index].into();
        self.chunk(index, json!({"tool_calls": [new]}), None, to);
    }
}

impl Interface for Chat {
    type Body = Body;

    fn request(mut body: Body, server: &Server, loaded: &LoadedModel) -> Result<(Prompt, Request<Self>), Failure> {
        let continues = continues(&mut body)?;
        let mut warnings = std::mem::take(&mut body.others).read()?;
        let (stream, choices) = (body.fields.stream(), choices(body.n, server)?);
        let (mut chat, demand, held) = body.conversation(server, &mut warnings)?.chat(server, loaded)?;
        chat.continues = continues;
        let logprobs = body.logprobs == Some(true);
        chat.options.logprobs = logprobs_of(logprobs, body.top_logprobs)?;
        let usage = StreamOptions::usage(body.stream_options);
        let frame = Frame::new("chatcmpl-", &loaded.name, logprobs, usage, choices);
        let one_call = body.parallel_tool_calls == Some(false);
        let (warnings, interface) = (warnings.texts(), Self::new(frame, choices));
        let request = Request { choices, stream, one_call, held, warnings, interface };
        Ok((Prompt::Chat(Box::new(chat), demand), request))
    }

    fn delta(&mut self, index: usize, delta: Delta, to: &mut Events) {
        match delta {
            Delta::Prompt(progress) if !progress.is_first => {}
            Delta::PromptToken(_) => {}
            Delta::Prompt(_) => self.chunk(index, json!({"role": "assistant", "content": ""}), None, to),
            Delta::Thinking(text) => self.chunk(index, json!({"reasoning_content": text}), None, to),
            Delta::Text { text, tokens } => {
                let logprobs = self.frame.logprobs.then_some(ChatLogprobs(&tokens));
                self.chunk(index, json!({"content": text}), logprobs, to);
            }
            Delta::Call { id, name } => {
                let function = json!({"name": name, "arguments": ""});
                self.call(index, json!({"id": id, "type": "function", "function": function}), to);
            }
            Delta::Arguments(piece) => self.call(index, json!({"function": {"arguments": piece}}), to),
            Delta::CallEnd { .. } => self.calls[index] += 1,
            Delta::End(finish) => {
                let choice = choice(index, json!({}), None, Some(finish_reason(finish.reason)));
                self.frame.end_reply(CHUNK, index, choice, &finish, to);
            }
        }
    }

    fn alive(&mut self, index: usize, progress: Option<Progress>, to: &mut Events) {
        self.frame.chunk(CHUNK, choice(index, json!({}), None, None), progress, to);
    }

    fn end(&mut self, to: &mut Events) {
        self.frame.end(CHUNK, to);
    }

    fn failed(&mut self, failure: &Failure, to: &mut Events) {
        Frame::failed(failure, to);
    }

    fn whole(self, replies: Vec<Reply>) -> String {
        let choice = |(index, reply)| Choice {
            index,
            message: message(reply),
            logprobs: self.frame.logprobs.then_some(ChatLogprobs(&reply.tokens)),
            finish_reason: finish_reason(reply.finish.reason),
        };
        let choices: Vec<_> = replies.iter().enumerate().map(choice).collect();
        self.frame.whole(ANSWER, &choices, &replies)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Chat, Frame, logprobs_of};
    use crate::serve::interface::Interface;
    use crate::serve::reply::Delta;
    use crate::serve::stream::Events;
    use serde_json::{Value, json};

    #[test]
    fn likely_tokens_need_log_probabilities() {
        let read = |are_wanted: bool, top: Option<u64>| logprobs_of(are_wanted, top).map_err(|failure| failure.param);
        assert_eq!([read(true, None), read(true, Some(2))], [Ok(Some(0)), Ok(Some(2))]);
        assert_eq!([read(false, None), read(false, Some(0))], [Ok(None), Ok(None)]);
        assert_eq!(read(false, Some(2)), Err(Some("top_logprobs".into())));
    }

    #[test]
    fn a_call_has_an_index_and_its_first_chunk_the_name() {
        let (mut chat, mut events) = (Chat::new(Frame::new("", "m", false, false, 1), 1), Events::default());
        for id in ["a", "b"] {
            let begin = Delta::Call { id: id.into(), name: "note".into() };
            let pieces = ["{", "\"x\":1", "}"].map(|piece| Delta::Arguments(piece.into()));
            let deltas = [begin].into_iter().chain(pieces).chain([Delta::CallEnd { is_whole: true }]);
            deltas.for_each(|delta| chat.delta(0, delta, &mut events));
        }
        let written = events.values();
        let calls: Vec<&Value> = written.iter().map(|event| &event["choices"][0]["delta"]["tool_calls"][0]).collect();
        let index: Vec<u64> = calls.iter().map(|call| call["index"].as_u64().unwrap()).collect();
        assert_eq!(index, [0, 0, 0, 0, 1, 1, 1, 1]);
        let named = json!({"index": 1, "id": "b", "type": "function", "function": {"name": "note", "arguments": ""}});
        assert_eq!((calls[4], calls[6]), (&named, &json!({"index": 1, "function": {"arguments": "\"x\":1"}})));
    }
}
