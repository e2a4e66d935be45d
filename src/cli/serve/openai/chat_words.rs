//! Replies in the words of chat completions.

use super::answer::{Answer, end_failed};
use crate::cli::serve::events::{Chunks, Speaker};
use crate::cli::serve::failure::Failure;
use crate::cli::serve::figures::ChatLogprobs;
use crate::cli::serve::pieces::{Ending, Outcome, Piece, Whole};
use serde::Serialize;
use serde_json::{Value, json};
use wglm::text::ToolCall;

/// How long the pieces are in which arguments of a call are streamed.
pub const ARGUMENTS: usize = 256;

/// What answers and chunks are called.
const COMPLETION: &str = "chat.completion";
const CHUNK: &str = "chat.completion.chunk";

pub struct ChatWords {
    answer: Answer,
    /// How many calls each reply has made.
    calls: Vec<usize>,
}

/// A reply in a whole answer.
#[derive(Serialize)]
struct WholeChoice<'a> {
    index: usize,
    message: Value,
    logprobs: Option<ChatLogprobs<'a>>,
    finish_reason: &'static str,
}

/// The word for the end of a reply.
pub fn reason(ending: Ending) -> &'static str {
    match ending {
        Ending::Done | Ending::StopString => "stop",
        Ending::Calls => "tool_calls",
        Ending::Cut => "length",
    }
}

/// The arguments of a call, as the string of JSON that OpenAI's interfaces carry.
pub fn arguments(call: &ToolCall) -> String {
    call.function.arguments.to_string()
}

/// Text in pieces of at most so many bytes, but a character at least.
pub fn cut(text: &str, bytes: usize) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?.len_utf8();
        let most = bytes.clamp(first, rest.len());
        let end = (first..=most).rev().find(|at| rest.is_char_boundary(*at)).unwrap_or(first);
        let (piece, behind) = rest.split_at(end);
        rest = behind;
        Some(piece)
    })
}

impl ChatWords {
    pub fn new(model: &str, logprobs: bool, tell_usage: bool) -> Self {
        Self { answer: Answer::new("chatcmpl-", model, logprobs, tell_usage), calls: Vec::new() }
    }

    /// The whole answer as JSON.
    pub fn whole(mut self, mut wholes: Vec<Whole>) -> String {
        let (endings, outcomes): (Vec<_>, Vec<_>) = Whole::take_outcomes(&mut wholes).into_iter().unzip();
        let outcomes: Vec<Outcome> = outcomes.into_iter().flatten().collect();
        outcomes.iter().enumerate().for_each(|(index, outcome)| self.answer.count(outcome, index == 0));
        let told = self.answer.logprobs;
        let messages: Vec<Value> = wholes.iter_mut().map(message).collect();
        let tokens = wholes.iter().map(|whole| told.then_some(ChatLogprobs(&whole.tokens)));
        let choices = messages.into_iter().zip(tokens).zip(endings).enumerate();
        let choice = |(index, ((message, logprobs), ending))| {
            let finish_reason = reason(ending);
            WholeChoice { index, message, logprobs, finish_reason }
        };
        let choices: Vec<_> = choices.map(choice).collect();
        self.answer.whole(COMPLETION, &choices, &outcomes)
    }

    fn chunk(&self, index: usize, delta: Value, to: &mut Chunks) {
        to.data(&self.piece_of(index, delta));
    }

    fn piece_of(&self, index: usize, delta: Value) -> Value {
        let choice = json!({"index": index, "delta": delta, "logprobs": null, "finish_reason": null});
        self.answer.frame(CHUNK, json!([choice]))
    }

    fn call(&mut self, index: usize, call: &ToolCall, to: &mut Chunks) {
        if self.calls.len() <= index {
            self.calls.resize(index + 1, 0);
        }
        let number = self.calls[index];
        self.calls[index] += 1;
        let delta = |rest: Value| {
            let mut call = json!({"index": number});
            if let (Value::Object(call), Value::Object(rest)) = (&mut call, rest) {
                call.extend(rest);
            }
            json!({"tool_calls": [call]})
        };
        let name = &call.function.name;
        let begin = json!({"id": call.id, "type": "function", "function": {"name": name, "arguments": ""}});
        self.chunk(index, delta(begin), to);
        for piece in cut(&arguments(call), ARGUMENTS) {
            self.chunk(index, delta(json!({"function": {"arguments": piece}})), to);
        }
    }
}

/// The message of a whole reply, whose texts are taken out of it.
fn message(whole: &mut Whole) -> Value {
    let called: Vec<Value> = std::mem::take(&mut whole.calls).iter().map(call).collect();
    let (text, thinking) = (std::mem::take(&mut whole.text), std::mem::take(&mut whole.thinking));
    let content = if text.is_empty() && !called.is_empty() { Value::Null } else { text.into() };
    let mut message = json!({"role": "assistant", "content": content, "refusal": null});
    if !thinking.is_empty() {
        message["reasoning_content"] = thinking.into();
    }
    if !called.is_empty() {
        message["tool_calls"] = called.into();
    }
    message
}

/// A call in a whole message.
fn call(call: &ToolCall) -> Value {
    let function = json!({"name": call.function.name, "arguments": arguments(call)});
    json!({"id": call.id, "type": "function", "function": function})
}

impl Speaker for ChatWords {
    fn begin(&mut self, _: usize, _: &mut Chunks) {}

    fn piece(&mut self, index: usize, piece: Piece, to: &mut Chunks) {
        match piece {
            Piece::Prompt { .. } => self.chunk(index, json!({"role": "assistant", "content": ""}), to),
            Piece::Thinking(text) => self.chunk(index, json!({"reasoning_content": text}), to),
            Piece::Text { text, tokens } => {
                let mut chunk = self.piece_of(index, json!({"content": text}));
                if self.answer.logprobs {
                    chunk["choices"][0]["logprobs"] = json!(ChatLogprobs(&tokens));
                }
                to.data(&chunk);
            }
            Piece::Call(call) => self.call(index, &call, to),
            Piece::End(outcome) => {
                self.answer.count(&outcome, index == 0);
                let reason = reason(outcome.ending);
                let choice = json!({"index": index, "delta": {}, "logprobs": null, "finish_reason": reason});
                self.answer.end_reply(CHUNK, choice, &outcome, to);
            }
        }
    }

    fn end(&mut self, to: &mut Chunks) {
        self.answer.end(CHUNK, to);
    }

    fn failed(&mut self, failure: &Failure, to: &mut Chunks) {
        end_failed(failure, to);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{ChatWords, cut};
    use crate::cli::serve::events::{Chunks, Speaker};
    use crate::cli::serve::pieces::Piece;
    use serde_json::{Value, json};
    use wglm::ToolCall;

    #[test]
    fn a_call_is_streamed_in_pieces_that_join() {
        let arguments = json!({"text": "ä".repeat(400), "count": 2});
        let mut call = ToolCall::new("note", arguments.as_object().cloned().unwrap());
        call.id = Some("c".into());
        let (mut words, mut chunks) = (ChatWords::new("m", false, false), Chunks::default());
        words.piece(0, Piece::Call(call.clone()), &mut chunks);
        words.piece(0, Piece::Call(call), &mut chunks);
        let mut told = [String::new(), String::new()];
        let mut begun = Vec::new();
        for data in chunks.said() {
            let delta = data["choices"][0]["delta"]["tool_calls"][0].clone();
            let index = delta["index"].as_u64().unwrap() as usize;
            begun.extend(delta["function"]["name"].as_str().map(|name| (index, name.to_owned(), delta["id"].clone())));
            told[index] += delta["function"]["arguments"].as_str().unwrap();
        }
        assert_eq!(begun, [0, 1].map(|index| (index, "note".to_owned(), Value::from("c"))));
        assert!(told.iter().all(|text| serde_json::from_str::<Value>(text).unwrap() == arguments), "{told:?}");
    }

    #[test]
    fn characters_stay_whole() {
        let pieces: Vec<&str> = cut("aäöü€", 3).collect();
        assert_eq!(pieces.concat(), "aäöü€");
        assert!(pieces.iter().all(|piece| piece.len() <= 3), "{pieces:?}");
    }
}
