//! A reply's events as all interfaces need them: calls have ids, a call that failed is text with a warning, and
//! log-probabilities stand beside the text that their tokens made.

use super::failure::Failure;
use super::job::Job;
use super::server::{Engine, id};
use wglm::text::{TokenType, ToolCall};
use wglm::{Event, Stats, Stop, TokenLogprobs, Tokenizer};

/// A piece of a reply.
#[derive(Debug, Clone, PartialEq)]
pub enum Piece {
    /// The prompt is being read, of which so many tokens were in the cache.
    Prompt {
        cached: usize,
    },
    Thinking(String),
    Text {
        text: String,
        tokens: Vec<Likelihood>,
    },
    Call(ToolCall),
    End(Box<Outcome>),
}

/// How likely a token was, and the likeliest ones there, with their bytes and the logarithms of their probabilities.
#[derive(Debug, Clone, PartialEq)]
pub struct Likelihood {
    pub chosen: (Vec<u8>, f32),
    pub top: Vec<(Vec<u8>, f32)>,
}

impl Likelihood {
    fn of(token: TokenLogprobs, tokenizer: Option<&Tokenizer>) -> Self {
        let bytes = |token| tokenizer.and_then(|tokenizer| tokenizer.token_bytes(token).ok()).unwrap_or_default();
        let top = token.top.iter().map(|top| (bytes(top.token).to_vec(), top.logprob)).collect();
        Self { chosen: (token.bytes, token.chosen.logprob), top }
    }
}

/// Why a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The model was done.
    Done,
    /// It calls functions.
    Calls,
    /// A stop string appeared.
    StopString,
    /// There was no more room or time, or it repeated itself.
    Cut,
}

/// The end of a reply.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    pub ending: Ending,
    pub stats: Stats,
    /// What was odd, for people to read.
    pub warnings: Vec<String>,
    /// About how many of the generated tokens are thinking.
    pub thinking_tokens: usize,
}

/// Makes pieces of events.
pub struct Pieces {
    /// Tokens whose text has not come yet.
    tokens: Vec<Likelihood>,
    warnings: Vec<String>,
    calls: usize,
    prompt_told: bool,
    thinking: String,
    /// Whether the reply ends after its first call.
    one_call: bool,
}

impl Pieces {
    pub fn new(one_call: bool) -> Self {
        let (tokens, warnings, calls, prompt_told, thinking) = Default::default();
        Self { tokens, warnings, calls, prompt_told, thinking, one_call }
    }

    /// Whether the reply has all the calls that its client wants.
    fn has_enough(&self) -> bool {
        self.one_call && self.calls > 0
    }

    /// Adds what a client should know.
    fn warn(&mut self, warning: impl Into<String>) {
        self.warnings.push(warning.into());
    }

    /// The piece that an event of reply `index` makes, if it makes one. Ends the reply if it has enough by then.
    pub fn heard(&mut self, job: &Job, index: usize, event: Event, engine: &Engine) -> Option<Piece> {
        let cancelled = matches!(&event, Event::Done(stats) if stats.stop == Stop::Cancelled);
        if cancelled && !self.has_enough() {
            self.warn(job.why_cancelled());
        }
        let piece = self.piece(event, engine.model.tokenizer().ok())?;
        if self.has_enough() {
            job.end(index);
        }
        Some(piece)
    }

    /// The piece that an event makes, if it makes one.
    fn piece(&mut self, event: Event, tokenizer: Option<&Tokenizer>) -> Option<Piece> {
        match event {
            Event::Prompt { done, .. } => {
                let first = !std::mem::replace(&mut self.prompt_told, true);
                first.then_some(Piece::Prompt { cached: done })
            }
            Event::Dropped { messages } => {
                self.warn(format!("the oldest {} messages were left out, for want of room", messages.len()));
                None
            }
            Event::Thinking(text) => {
                self.tokens.clear();
                self.thinking.push_str(&text);
                Some(Piece::Thinking(text))
            }
            Event::Text(text) => Some(Piece::Text { text, tokens: std::mem::take(&mut self.tokens) }),
            Event::ToolCall(_) if self.has_enough() => None,
            Event::ToolCall(mut call) => {
                self.tokens.clear();
                self.calls += 1;
                call.id.get_or_insert_with(|| id("call_"));
                Some(Piece::Call(call))
            }
            Event::ToolCallFailed { .. } if self.has_enough() => None,
            Event::ToolCallFailed { text, cut } => {
                let why = if cut { "the reply ended inside it" } else { "it is malformed" };
                self.warn(format!("a call of a function is given as text, because {why}"));
                Some(Piece::Text { text, tokens: std::mem::take(&mut self.tokens) })
            }
            Event::Token(token) => {
                let of_text = |tokenizer: &Tokenizer| match tokenizer.token_type(token.chosen.token) {
                    Ok(ty) => matches!(ty, TokenType::Normal | TokenType::Byte),
                    Err(_) => false,
                };
                if tokenizer.is_none_or(of_text) {
                    self.tokens.push(Likelihood::of(token, tokenizer));
                }
                None
            }
            Event::Done(stats) => {
                let thinking_tokens = self.thinking_tokens(tokenizer).min(stats.generated);
                let (ending, warnings) = (self.ending(&stats), std::mem::take(&mut self.warnings));
                Some(Piece::End(Box::new(Outcome { ending, stats, warnings, thinking_tokens })))
            }
            _ => None,
        }
    }

    fn thinking_tokens(&self, tokenizer: Option<&Tokenizer>) -> usize {
        if self.thinking.is_empty() {
            return 0;
        }
        tokenizer.and_then(|tokenizer| tokenizer.encode(&self.thinking, false).ok()).map_or(0, |tokens| tokens.len())
    }

    fn ending(&mut self, stats: &Stats) -> Ending {
        match stats.stop {
            Stop::Cancelled if self.has_enough() => Ending::Calls,
            Stop::End if self.calls > 0 => Ending::Calls,
            Stop::End => Ending::Done,
            Stop::StopString => Ending::StopString,
            Stop::Loop => {
                self.warn("the reply was ended because it repeated itself");
                Ending::Cut
            }
            _ => Ending::Cut,
        }
    }
}

/// Waits for the ends of all replies to a request.
pub async fn collect(mut job: Job, engine: &Engine, choices: usize, one_call: bool) -> Result<Vec<Whole>, Failure> {
    let mut pieces: Vec<(Pieces, Whole)> = (0..choices).map(|_| (Pieces::new(one_call), Whole::default())).collect();
    while let Some((index, event)) = job.next().await? {
        let Some((of, whole)) = pieces.get_mut(index) else { continue };
        if let Some(piece) = of.heard(&job, index, event, engine) {
            whole.add(piece);
        }
    }
    Ok(pieces.into_iter().map(|(_, whole)| whole).collect())
}

/// A whole reply.
#[derive(Debug, Clone, Default)]
pub struct Whole {
    pub thinking: String,
    pub text: String,
    pub calls: Vec<ToolCall>,
    pub tokens: Vec<Likelihood>,
    pub outcome: Option<Outcome>,
}

impl Whole {
    /// How each of some replies ended, and the outcomes that they have, which are taken out of them.
    pub fn take_outcomes(wholes: &mut [Self]) -> Vec<(Ending, Option<Outcome>)> {
        let take = |whole: &mut Self| {
            let outcome = whole.outcome.take();
            (outcome.as_ref().map_or(Ending::Cut, |outcome| outcome.ending), outcome)
        };
        wholes.iter_mut().map(take).collect()
    }

    pub fn add(&mut self, piece: Piece) {
        match piece {
            Piece::Prompt { .. } => {}
            Piece::Thinking(text) => self.thinking.push_str(&text),
            Piece::Text { text, tokens } => {
                self.text.push_str(&text);
                self.tokens.extend(tokens);
            }
            Piece::Call(call) => self.calls.push(call),
            Piece::End(outcome) => self.outcome = Some(*outcome),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::{Ending, Outcome, Piece, Pieces, Whole};
    use serde_json::json;
    use std::time::Duration;
    use wglm::text::ToolCall;
    use wglm::{Event, Stats, Stop, TokenLogprobs};

    pub fn stats(stop: Stop) -> Stats {
        let mut stats = Stats::new(stop);
        (stats.prompt.cached, stats.prompt.new, stats.generated) = (3, 4, 5);
        (stats.prompt_time, stats.generate_time) = (Duration::from_millis(10), Duration::from_millis(100));
        stats
    }

    fn token(id: u32) -> TokenLogprobs {
        let chosen = json!({"token": id, "logprob": -0.5});
        serde_json::from_value(json!({"chosen": chosen, "bytes": [id], "top": [chosen]})).unwrap()
    }

    fn whole(events: Vec<Event>, one_call: bool) -> (Whole, Outcome) {
        let (mut pieces, mut whole) = (Pieces::new(one_call), Whole::default());
        events.into_iter().filter_map(|event| pieces.piece(event, None)).for_each(|piece| whole.add(piece));
        let outcome = whole.outcome.clone().unwrap();
        (whole, outcome)
    }

    #[test]
    fn a_malformed_call_is_text_with_a_warning() {
        let failed = Event::ToolCallFailed { text: "<tool_call>x".into(), cut: false };
        let events = vec![Event::Text("Well, ".into()), failed, Event::Done(stats(Stop::End))];
        let (whole, outcome) = whole(events, false);
        assert_eq!(whole.text, "Well, <tool_call>x");
        assert_eq!((outcome.ending, outcome.warnings.len()), (Ending::Done, 1));
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
        let (whole, outcome) = whole(events, false);
        let told: Vec<u8> = whole.tokens.iter().map(|token| token.chosen.0[0]).collect();
        assert_eq!((told, outcome.ending), (vec![2, 3], Ending::Cut));
    }

    #[test]
    fn calls_get_ids_and_one_may_be_enough() {
        let call = || Event::ToolCall(ToolCall::new("f", Default::default()));
        let (both, outcome) = whole(vec![call(), call(), Event::Done(stats(Stop::End))], false);
        assert_eq!((both.calls.len(), outcome.ending), (2, Ending::Calls));
        assert_ne!(both.calls[0].id, both.calls[1].id);
        let (one, outcome) = whole(vec![call(), call(), Event::Done(stats(Stop::Cancelled))], true);
        assert_eq!((one.calls.len(), outcome.ending, outcome.warnings.len()), (1, Ending::Calls, 0));
    }

    #[test]
    fn the_prompt_is_told_once() {
        let mut pieces = Pieces::new(false);
        let told = pieces.piece(Event::Prompt { done: 3, total: 7 }, None);
        assert_eq!(told, Some(Piece::Prompt { cached: 3 }));
        assert_eq!(pieces.piece(Event::Prompt { done: 7, total: 7 }, None), None);
    }
}
