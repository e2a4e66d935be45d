//! The one way from a request to its answer, for all interfaces that generate replies. An [`Interface`] says what the
//! body of a request means and how replies are written; [`answer`] does everything else.

use super::body::JsonBody;
use super::client::{Caller, Client};
use super::compiling::Demand;
use super::conversation::message_size;
use super::failure::{EngineName, Failure};
use super::memory::{ReplyMemory, Share};
use super::parse::{joined, read};
use super::replies::{Replies, Start};
use super::reply::{Delta, Progress, Reply};
use super::router::counted_json;
use super::server::{LoadedModel, Server};
use super::stream::{self, Events};
use axum::extract::State;
use axum::response::Response;
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::sync::Arc;
use wglm_engine::{ChatState, GenerateOptions};

/// An interface. A value of it belongs to one request and writes the answer: either [`whole`](Self::whole) does, or the
/// other methods do, with the events of a stream.
pub trait Interface: Sized + Send + 'static {
    type Body: DeserializeOwned;

    /// The content type of a stream.
    const STREAM_TYPE: &'static str = "text/event-stream";

    /// The memory that it takes to read a body and to make its prompts.
    fn memory(body: &JsonBody) -> usize {
        body.conversation()
    }

    /// Adds to a body the conversation that it refers to, if it does, and to the request's share the memory for that.
    fn complete(_body: &mut Self::Body, _server: &Server, _client: Client, _memory: &Share) -> Result<(), Failure> {
        Ok(())
    }

    /// Turns a body into a prompt and a request, or refuses it.
    fn request(body: Self::Body, server: &Server, loaded: &LoadedModel) -> Result<(Prompt, Request<Self>), Failure>;

    /// The field that sets an argument of the engine, or a field of a message.
    fn argument(name: &'static str) -> Cow<'static, str> {
        field_of(name).into()
    }

    /// Where the request has a message of the conversation.
    fn message(&self, index: usize) -> String {
        format!("messages[{index}]")
    }

    /// Writes what comes before all replies. `prompt` is the number of tokens of all prompts.
    fn begin(&mut self, _prompt: usize, _to: &mut Events) {}

    /// Writes a delta of one of the replies.
    fn delta(&mut self, reply: usize, delta: Delta, to: &mut Events);

    /// Writes what comes after all replies.
    fn end(&mut self, to: &mut Events);

    /// Writes a failure, which ends the stream.
    fn failed(&mut self, failure: &Failure, to: &mut Events);

    /// Whether clients that asked for a stream look for this failure of a prompt only among the events of a stream, and
    /// not in an answer with a status of its own.
    fn reports_in_stream(_failure: &Failure) -> bool {
        false
    }

    /// Writes a heartbeat, which clients ignore except that it keeps them from giving up, with the progress of a
    /// reply's prompt if the client asked for it.
    fn alive(&mut self, reply: usize, progress: Option<Progress>, to: &mut Events);

    /// The answer to a request without a stream, as JSON.
    fn whole(self, replies: Vec<Reply>) -> String;
}

/// What a body asks for in addition to its prompt.
pub struct Request<I> {
    /// Replies to each prompt.
    pub choices: usize,
    pub stream: Stream,
    /// Whether a reply ends after its first function call.
    pub one_call: bool,
    /// The bytes of memory that the request holds until its replies end, in addition to what these take.
    pub held: usize,
    /// Sentences about what the body asks for and does not get.
    pub warnings: Vec<String>,
    /// Writes the answer.
    pub interface: I,
}

/// Whether the answer is a stream, and what it reports in addition to the replies.
#[derive(Debug, Clone, Copy)]
pub struct Stream {
    pub is_on: bool,
    /// Whether it reports how much of the prompts has been computed.
    pub progress: bool,
}

pub enum Prompt {
    /// A conversation, and the schemas that are still to be compiled for it.
    Chat(Box<ChatState>, Demand),
    /// Prompts that are not a conversation.
    Tokens(Vec<Vec<u32>>, Box<GenerateOptions>),
}

/// The field that sets an argument of the engine in most interfaces.
pub fn field_of(argument: &'static str) -> &'static str {
    match argument {
        "calls" => "tool_choice",
        "constraint" => "response_format",
        other => other,
    }
}

/// A failure with the names that the request has for what is wrong.
fn named<I: Interface>(failure: Failure, interface: Option<&I>) -> Failure {
    failure.with_name(|name| match name {
        EngineName::Argument(argument) => Some(I::argument(argument).into_owned()),
        EngineName::Message(index, field) => {
            interface.map(|interface| joined(&interface.message(index), &field.map_or("".into(), I::argument)))
        }
    })
}

pub async fn answer<I: Interface>(State(server): State<Arc<Server>>, body: JsonBody) -> Result<Response, Failure> {
    answered::<I>(server, body).await.map_err(|failure| named::<I>(failure, None))
}

async fn answered<I: Interface>(server: Arc<Server>, body: JsonBody) -> Result<Response, Failure> {
    server.check_queue()?;
    let loaded = server.named(&body).await?;
    let (prompts, request, share) = prepare::<I>(&server, &loaded, body).await?;
    let prompts = match prompts {
        Err(failure) if request.stream.is_on && I::reports_in_stream(&failure) => {
            return Ok(stream::refusal(request.interface, &failure, share));
        }
        prompts => prompts?,
    };
    let memory = memory(&prompts, &loaded, request.choices, request.held).reserve(share)?;
    let starts = with_seeds(&prompts, request.choices);
    drop(prompts);
    let mut replies = Replies::start(&server, loaded, starts, request.one_call, memory.clone()).await?;
    replies.warn(request.warnings);
    if request.stream.is_on {
        return Ok(stream::response(replies, request.interface, request.stream.progress, server.limits.silence));
    }
    let replies = replies.collect().await?;
    Ok(counted_json(request.interface.whole(replies), memory))
}

/// Reads a request, has its schemas compiled, and makes its prompts, which may fail for a request that was read. No
/// thread of the pool is held while a schema is compiled.
async fn prepare<I: Interface>(
    server: &Arc<Server>,
    loaded: &Arc<LoadedModel>,
    body: JsonBody,
) -> Result<(Result<Vec<Start>, Failure>, Request<I>, Share), Failure> {
    let (of, with, needed, client) = (server.clone(), loaded.clone(), I::memory(&body), Caller::current().client);
    let read = move |memory: &Share| {
        let mut read = read(&body.bytes)?;
        I::complete(&mut read, &of, client, memory)?;
        let (prompt, request) = I::request(read, &of, &with)?;
        if !request.warnings.is_empty() {
            tracing::debug!("a request has fields or tools that are ignored: {:?}", request.warnings);
        }
        let prompt = match prompt {
            Prompt::Tokens(prompts, options) => {
                Ok(Ok(prompts.into_iter().map(|tokens| Start::Tokens(tokens, options.clone())).collect()))
            }
            Prompt::Chat(chat, Demand::Met) => Ok(chat_start(&with, *chat, &request.interface)),
            Prompt::Chat(chat, demand) => Err((chat, demand)),
        };
        Ok((prompt, request))
    };
    let ((prompt, request), memory) = server.work(&server.pools.prompts, needed, read).await?;
    let (mut chat, demand) = match prompt {
        Ok(prompt) => return Ok((prompt, request, memory)),
        Err(open) => open,
    };
    server.compiling.settle(&mut chat, demand).await?;
    let (with, turn) = (loaded.clone(), server.pools.prompts.turn(server.limits.io).await?);
    let prepare = move |_: &Share| {
        let prompt = chat_start(&with, *chat, &request.interface);
        Ok((prompt, request))
    };
    let ((prompt, request), memory) = turn.run(memory, prepare).await?;
    Ok((prompt, request, memory))
}

/// What the reply to a conversation is generated from.
fn chat_start<I: Interface>(with: &LoadedModel, chat: ChatState, interface: &I) -> Result<Vec<Start>, Failure> {
    let prepared = with.scheduler.prepare(chat);
    Ok(vec![Start::Chat(prepared.map_err(|error| named(error.into(), Some(interface)))?)])
}

/// The memory that is held until the replies end: theirs and `held` bytes more.
fn memory(prompts: &[Start], loaded: &LoadedModel, choices: usize, held: usize) -> ReplyMemory {
    let replies = choices * prompts.len();
    let prompt = prompts.iter().map(Start::tokens).max().unwrap_or_default();
    let dropped = prompts.iter().flat_map(Start::dropped).map(message_size).sum::<usize>();
    let options = prompts.first().map(|prompt| prompt.options().clone()).unwrap_or_default();
    let capacity = loaded.scheduler.context().saturating_sub(prompt);
    let stops: usize = options.stop.iter().map(String::len).sum();
    let each = stops + options.sampling.logit_bias.len() * 16 + dropped;
    ReplyMemory {
        replies,
        prompt,
        generated: options.max_tokens.map_or(capacity, |most| most.min(capacity)),
        alternatives: options.logprobs.map(|top| top + options.logprob_tokens.len()),
        prompt_alternatives: options.prompt_logprobs.map(|wanted| wanted.top),
        other: held + dropped + replies * each,
    }
}

/// Several replies to each prompt, each with a seed of its own.
fn with_seeds(prompts: &[Start], choices: usize) -> Vec<(Start, Option<u64>)> {
    let seed = |prompt: &Start, index| prompt.options().sampling.seed.map(|seed| seed.wrapping_add(index));
    let each = |prompt| (0..choices as u64).map(move |index| (Start::clone(prompt), seed(prompt, index)));
    prompts.iter().flat_map(each).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::Interface;
    use crate::serve::anthropic::Messages;
    use crate::serve::openai::Responses;
    use crate::serve::reply::{Delta, Fold, Reply};
    use crate::serve::stream::Events;
    use serde_json::{Value, json};
    use wglm_engine::text::ToolCall;
    use wglm_engine::{Event, Stats, Stop};

    /// What the model wrote: a good call, and one that is malformed.
    fn deltas() -> Vec<Delta> {
        let start = |id: &str| Event::ToolCallStart { id: Some(id.into()), name: "remove".into() };
        let piece = |text: &str| Event::ToolCallPiece(text.into());
        let failed = Event::ToolCallFailed { text: "<tool_call>remove".into(), cut: false };
        let whole = Event::ToolCall(ToolCall::new("remove", Default::default()));
        let done = Event::Done(Stats::new(Stop::End));
        let bad = [start("b"), piece(r#"{"dir":"/tmp","only_empty":tru"#), failed, done];
        let mut fold = Fold::new(false);
        let events = [start("a"), piece("{"), piece("}"), whole].into_iter().chain(bad);
        events.filter_map(|event| fold.delta(event, None)).collect()
    }

    /// The events of a stream, and the answer without one.
    fn written<I: Interface>(interface: impl Fn() -> I) -> (Vec<Value>, Value) {
        let (mut stream, mut events, mut reply) = (interface(), Events::default(), Reply::default());
        for delta in deltas() {
            stream.delta(0, delta.clone(), &mut events);
            reply.add(delta);
        }
        stream.end(&mut events);
        (events.values(), serde_json::from_str(&interface().whole(vec![reply])).unwrap())
    }

    /// No client may mistake a malformed call for one to run, so the reply ends as if it had been cut off.
    #[test]
    fn a_reply_with_a_malformed_call_is_incomplete() {
        let (events, message) = written(|| Messages::new("m", Vec::new()));
        let blocks: Vec<&Value> = events.iter().filter(|event| event["type"] == "content_block_start").collect();
        assert_eq!((&blocks[1]["index"], &blocks[1]["content_block"]["id"]), (&json!(1), &json!("b")));
        let end = events.iter().find(|event| event["type"] == "message_delta").unwrap();
        assert_eq!([&end["delta"]["stop_reason"], &message["stop_reason"]], ["max_tokens", "max_tokens"]);
        assert_eq!(message["content"][1]["input"], json!({"dir": "/tmp"}));

        let (events, response) = written(|| Responses::new("m", Default::default(), false, Default::default(), None));
        assert_eq!(
            (&events.last().unwrap()["type"], &response["status"]),
            (&json!("response.incomplete"), &json!("incomplete"))
        );
        let statuses = response["output"].as_array().unwrap().iter().map(|item| &item["status"]);
        assert_eq!(statuses.collect::<Vec<_>>(), ["completed", "incomplete"]);
    }
}
