//! A reply as all interfaces write it: calls have ids, and text comes with the log-probabilities of its tokens.
//!
//! The arguments of a call are the pieces of JSON that the library reports, with and without a stream, so both say the
//! same. A call that is cut off or malformed has the beginning of its arguments, which is never a whole object. It
//! comes with a warning, and the reply ends as if a limit had cut it off, whatever else it contains: a client that
//! checks why a reply ended can tell that a call is incomplete.

use super::server::id;
use std::time::{Duration, Instant};
use wglm_engine::text::TokenType;
use wglm_engine::{Event, Logprob, Stats, Stop, TokenLogprobs, Tokenizer};

/// A piece of a reply.
#[derive(Debug, Clone, PartialEq)]
pub enum Delta {
    /// The model reads the prompt.
    Prompt(Progress),
    /// A token of the prompt, if log-probabilities of the prompt were requested.
    PromptToken(TokenProbability),
    Thinking(String),
    Text {
        text: String,
        tokens: Vec<TokenProbability>,
    },
    /// A call begins.
    Call {
        id: String,
        name: String,
    },
    /// More of the arguments of the call that has begun, as JSON.
    Arguments(String),
    /// The call that has begun ends.
    CallEnd {
        /// Whether it is complete: a call that a limit cuts off, or that is malformed, is not.
        is_whole: bool,
    },
    End(Box<Finish>),
}

/// How much of a prompt has been computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The tokens that the cache held.
    pub cached: usize,
    /// The tokens that are in the cache now.
    pub done: usize,
    pub total: usize,
    /// The time since the turn of the reply came.
    pub time: Duration,
    /// Whether this is the first report.
    pub is_first: bool,
}

/// The probability of a token of the reply or the prompt, and those of the most likely tokens at its position.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenProbability {
    pub chosen: Likelihood,
    pub top: Vec<Likelihood>,
}

/// A token, its bytes and the logarithm of its probability.
#[derive(Debug, Clone, PartialEq)]
pub struct Likelihood {
    pub id: u32,
    pub bytes: Vec<u8>,
    pub logprob: f32,
}

impl TokenProbability {
    fn of(token: TokenLogprobs, tokenizer: Option<&Tokenizer>) -> Self {
        let bytes = |token| tokenizer.and_then(|tokenizer| tokenizer.token_bytes(token).ok()).unwrap_or_default();
        let likelihood = |Logprob { token, logprob, .. }: &Logprob| Likelihood {
            id: *token,
            bytes: bytes(*token).to_vec(),
            logprob: *logprob,
        };
        let chosen = Likelihood { id: token.chosen.token, bytes: token.bytes, logprob: token.chosen.logprob };
        Self { chosen, top: token.top.iter().map(likelihood).collect() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// The model ended it.
    Stop,
    /// It calls functions.
    Calls,
    StopString,
    /// A limit of tokens or of time, the end of the context, or a loop.
    Length,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Finish {
    /// Why it ended.
    pub reason: FinishReason,
    pub stats: Stats,
    /// What was unusual, for people to read.
    pub warnings: Vec<String>,
    /// About how many of the generated tokens are thinking.
    pub thinking_tokens: usize,
    /// The last tokens, if they are not text, such as the one that ends a completion.
    pub rest: Vec<TokenProbability>,
}

impl Finish {
    /// The one of these stop strings that ended the reply, if one did.
    pub fn stop_string<'a>(&self, stops: &'a [String]) -> Option<&'a str> {
        let index = self.stats.stop_string.filter(|_| self.reason == FinishReason::StopString)?;
        stops.get(index).map(String::as_str)
    }
}

/// Turns the events of a reply into [`Delta`]s.
pub struct Fold {
    /// Tokens whose text has not come yet.
    tokens: Vec<TokenProbability>,
    warnings: Vec<String>,
    /// The complete calls.
    calls: usize,
    /// Whether any call has failed.
    has_failed: bool,
    /// Whether a call has begun.
    in_call: bool,
    /// When the first report of the prompt came, and the tokens that the cache held.
    prompt: Option<(Instant, usize)>,
    /// The approximate number of tokens of thinking so far. They are counted as they come, because encoding a long text
    /// at the end would keep other requests waiting.
    thinking_tokens: usize,
    /// Whether the reply ends after its first call.
    one_call: bool,
    /// Whether tokens that are not text are reported as well.
    all_tokens: bool,
}

impl Fold {
    pub fn new(one_call: bool) -> Self {
        let (tokens, warnings, calls, has_failed, in_call, prompt, thinking_tokens) = Default::default();
        Self { tokens, warnings, calls, has_failed, in_call, prompt, thinking_tokens, one_call, all_tokens: false }
    }

    /// The same for a reply that is not a message: all tokens are reported, so that each has its log-probability.
    pub fn with_all_tokens(self, all_tokens: bool) -> Self {
        Self { all_tokens, ..self }
    }

    /// Whether the reply has all the calls that its client wants.
    pub fn has_enough(&self) -> bool {
        self.one_call && self.calls > 0
    }

    /// Adds something that the client should know.
    pub fn warn(&mut self, warning: impl Into<String>) {
        self.warnings.push(warning.into());
    }

    /// What an event adds to the reply, if it adds anything.
    pub fn delta(&mut self, event: Event, tokenizer: Option<&Tokenizer>) -> Option<Delta> {
        match event {
            Event::Prompt { done, total } => {
                let is_first = self.prompt.is_none();
                let (start, cached) = *self.prompt.get_or_insert_with(|| (Instant::now(), done));
                Some(Delta::Prompt(Progress { cached, done, total, time: start.elapsed(), is_first }))
            }
            Event::Dropped { messages } => {
                let dropped = match messages.len() {
                    1 => "the oldest message was".to_owned(),
                    count => format!("the {count} oldest messages were"),
                };
                self.warn(format!("{dropped} dropped because the context is full"));
                None
            }
            // The reply was cancelled after its only call, and ends some tokens later.
            Event::Thinking(_) | Event::Text(_) if self.has_enough() => None,
            Event::Thinking(text) => {
                self.tokens.clear();
                self.thinking_tokens += tokenizer.map_or(0, |tokenizer| token_count(tokenizer, &text));
                Some(Delta::Thinking(text))
            }
            Event::Text(text) => Some(Delta::Text { text, tokens: std::mem::take(&mut self.tokens) }),
            Event::ToolCallStart { .. } | Event::ToolCallPiece(_) if self.has_enough() => None,
            Event::ToolCall(_) | Event::ToolCallFailed { .. } if self.has_enough() => None,
            Event::ToolCallStart { id: given, name } => {
                self.in_call = true;
                Some(Delta::Call { id: given.unwrap_or_else(|| id("call_")), name })
            }
            Event::ToolCallPiece(piece) => Some(Delta::Arguments(piece)),
            Event::ToolCall(_) => Some(self.end_call(true)),
            Event::ToolCallFailed { cut, .. } => {
                let why = if cut { "the reply ended inside it" } else { "it is malformed" };
                self.warn(format!("a function call is incomplete because {why}"));
                self.has_failed = true;
                self.in_call.then(|| self.end_call(false))
            }
            Event::PromptToken(token) => Some(Delta::PromptToken(TokenProbability::of(token, tokenizer))),
            Event::Token(token) => {
                let is_text = |tokenizer: &Tokenizer| {
                    let chosen = token.chosen.token;
                    let is_plain = |kind| matches!(kind, TokenType::Normal | TokenType::Byte | TokenType::UserDefined);
                    tokenizer.token_type(chosen).is_ok_and(is_plain) && !tokenizer.is_reserved(chosen)
                };
                if self.all_tokens || tokenizer.is_none_or(is_text) {
                    self.tokens.push(TokenProbability::of(token, tokenizer));
                }
                None
            }
            Event::Done(stats) => Some(Delta::End(Box::new(self.finish(stats)))),
            _ => None,
        }
    }

    fn end_call(&mut self, is_whole: bool) -> Delta {
        self.tokens.clear();
        self.calls += usize::from(is_whole);
        self.in_call = false;
        Delta::CallEnd { is_whole }
    }

    fn finish(&mut self, stats: Stats) -> Finish {
        let reason = match stats.stop {
            Stop::End | Stop::StopString | Stop::Cancelled if self.has_failed => FinishReason::Length,
            Stop::Cancelled | Stop::Length if self.has_enough() => FinishReason::Calls,
            Stop::End | Stop::StopString if self.calls > 0 => FinishReason::Calls,
            Stop::End => FinishReason::Stop,
            Stop::StopString => FinishReason::StopString,
            Stop::Loop => {
                self.warn("the reply was cut off because it repeated itself");
                FinishReason::Length
            }
            _ => FinishReason::Length,
        };
        let thinking_tokens = self.thinking_tokens.min(stats.generated);
        let (rest, warnings) = (std::mem::take(&mut self.tokens), std::mem::take(&mut self.warnings));
        Finish { reason, stats, warnings, thinking_tokens, rest }
    }
}

/// A call of a function, with the JSON of its arguments, which is incomplete if the call is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Call {
    pub id: String,
    pub name: String,
    pub arguments: String,
    pub is_whole: bool,
}

#[derive(Debug, Clone)]
pub struct Reply {
    pub thinking: String,
    pub text: String,
    pub calls: Vec<Call>,
    pub tokens: Vec<TokenProbability>,
    /// The tokens of the prompt, if their log-probabilities were requested.
    pub prompt: Vec<TokenProbability>,
    pub finish: Finish,
}

/// An empty reply, before anything has arrived.
impl Default for Reply {
    fn default() -> Self {
        let (thinking, text, calls, tokens, prompt) = Default::default();
        let (reason, stats) = (FinishReason::Length, Stats::new(Stop::Cancelled));
        let finish = Finish { reason, stats, warnings: Vec::new(), thinking_tokens: 0, rest: Vec::new() };
        Self { thinking, text, calls, tokens, prompt, finish }
    }
}

impl Reply {
    /// The reply as if all of it came at once.
    pub fn deltas(self) -> impl Iterator<Item = Delta> {
        let thinking = (!self.thinking.is_empty()).then_some(Delta::Thinking(self.thinking));
        let text = (!self.text.is_empty()).then_some(Delta::Text { text: self.text, tokens: self.tokens });
        let calls = self.calls.into_iter().flat_map(|Call { id, name, arguments, is_whole }| {
            [Delta::Call { id, name }, Delta::Arguments(arguments), Delta::CallEnd { is_whole }]
        });
        thinking.into_iter().chain(text).chain(calls).chain([Delta::End(Box::new(self.finish))])
    }

    pub fn add(&mut self, delta: Delta) {
        match delta {
            Delta::Prompt(_) => {}
            Delta::PromptToken(token) => self.prompt.push(token),
            Delta::Thinking(text) => self.thinking.push_str(&text),
            Delta::Text { text, tokens } => {
                self.text.push_str(&text);
                self.tokens.extend(tokens);
            }
            Delta::Call { id, name } => self.calls.push(Call { id, name, ..Call::default() }),
            Delta::Arguments(piece) => {
                if let Some(call) = self.calls.last_mut() {
                    call.arguments.push_str(&piece);
                }
            }
            Delta::CallEnd { is_whole } => {
                if let Some(call) = self.calls.last_mut() {
                    call.is_whole = is_whole;
                }
            }
            Delta::End(finish) => self.finish = *finish,
        }
    }
}

/// The number of tokens of a piece of text, without the token that begins every text.
fn token_count(tokenizer: &Tokenizer, text: &str) -> usize {
    let count = |text| tokenizer.encode(text, false).map_or(0, |tokens| tokens.len());
    count(text).saturating_sub(count(""))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::{Call, Delta, Finish, FinishReason, Fold, Progress, Reply};
    use serde_json::json;
    use std::time::Duration;
    use wglm_engine::text::ToolCall;
    use wglm_engine::{Event, Stats, Stop, TokenLogprobs};

    fn stats(stop: Stop) -> Stats {
        let mut stats = Stats::new(stop);
        (stats.prompt.cached, stats.prompt.new, stats.generated) = (3, 4, 5);
        (stats.prompt_time, stats.generate_time) = (Duration::from_millis(10), Duration::from_millis(100));
        stats
    }

    fn token(id: u32) -> TokenLogprobs {
        let chosen = json!({"token": id, "logprob": -0.5});
        serde_json::from_value(json!({"chosen": chosen, "bytes": [id], "top": [chosen]})).unwrap()
    }

    fn reply(events: Vec<Event>, one_call: bool) -> (Reply, Finish) {
        let (mut fold, mut reply) = (Fold::new(one_call), Reply::default());
        events.into_iter().filter_map(|event| fold.delta(event, None)).for_each(|delta| reply.add(delta));
        let finish = reply.finish.clone();
        (reply, finish)
    }

    #[test]
    fn a_call_that_fails_is_incomplete_and_no_text() {
        for (cut, stop, reason) in [
            (true, Stop::Length, FinishReason::Length),
            (true, Stop::Cancelled, FinishReason::Length),
            (true, Stop::End, FinishReason::Length),
            (false, Stop::End, FinishReason::Length),
            (true, Stop::StopString, FinishReason::Length),
        ] {
            let failed = || Event::ToolCallFailed { text: "<tool_call>f".into(), cut };
            let start = Event::ToolCallStart { id: Some("a".into()), name: "f".into() };
            let piece = |text: &str| Event::ToolCallPiece(text.into());
            let begun = vec![Event::Text("Well, ".into()), start, piece("{"), piece("\"x\":"), failed()];
            let (answer, finish) = reply([begun, vec![Event::Done(stats(stop))]].concat(), false);
            let call = Call { id: "a".into(), name: "f".into(), arguments: "{\"x\":".into(), is_whole: false };
            assert_eq!((answer.text.as_str(), answer.calls), ("Well, ", vec![call]));
            assert_eq!((finish.reason, finish.warnings.len()), (reason, 1));
            // Without a name there is no call.
            let (answer, finish) = reply(vec![failed(), Event::Done(stats(stop))], false);
            assert_eq!((answer.text.as_str(), answer.calls.len(), finish.warnings.len()), ("", 0, 1));
        }
    }

    #[test]
    fn log_probabilities_are_those_of_the_answer() {
        let events = vec![
            Event::Token(token(1)),
            Event::Thinking("hm".into()),
            Event::Token(token(2)),
            Event::Token(token(3)),
            Event::Text("xx".into()),
            Event::Done(stats(Stop::Length)),
        ];
        let (reply, finish) = reply(events, false);
        let chosen: Vec<u8> = reply.tokens.iter().map(|token| token.chosen.bytes[0]).collect();
        assert_eq!((chosen, finish.reason), (vec![2, 3], FinishReason::Length));
    }

    #[test]
    fn calls_get_ids_and_one_may_be_enough() {
        let call = || {
            let (id, name) = (None, "f".into());
            let whole = Event::ToolCall(ToolCall::new("f", Default::default()));
            vec![Event::ToolCallStart { id, name }, Event::ToolCallPiece("{}".into()), whole]
        };
        let two = |stop| [call(), call(), vec![Event::Done(stats(stop))]].concat();
        let (both, finish) = reply(two(Stop::End), false);
        assert_eq!((both.calls.len(), finish.reason), (2, FinishReason::Calls));
        assert_ne!(both.calls[0].id, both.calls[1].id);
        assert!(both.calls.iter().all(|call| call.arguments == "{}" && call.is_whole), "{both:?}");
        let (one, finish) = reply(two(Stop::Cancelled), true);
        assert_eq!((one.calls.len(), finish.reason, finish.warnings.len()), (1, FinishReason::Calls, 0));
    }

    #[test]
    fn reports_of_a_prompt_have_what_the_first_one_said() {
        let mut fold = Fold::new(false);
        let mut report = |done| match fold.delta(Event::Prompt { done, total: 7 }, None) {
            Some(Delta::Prompt(Progress { cached, done, total, is_first, .. })) => (cached, done, total, is_first),
            other => panic!("{other:?}"),
        };
        assert_eq!([report(3), report(7)], [(3, 3, 7, true), (3, 7, 7, false)]);
    }
}
