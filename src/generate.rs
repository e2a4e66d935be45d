//! Generation: a prompt's tokens in, events out, one token at a time, on the caller's thread.

mod cancel;
mod chooser;
mod event_builder;
mod partial_reply;
mod seconds;

pub use cancel::Cancel;
use cancel::Cancels;
pub use chooser::Chooser;
pub(crate) use partial_reply::PartialReply;

use crate::error::{Error, Result};
use crate::sample::{Logprob, SamplerParams, logprobs};
use crate::session::{Reuse, Session};
use crate::text::{ReplyParser, ToolCall};
use chooser::Steering;
use event_builder::EventBuilder;
use serde::{Deserialize, Serialize};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// How to generate. Serde keeps it beside a conversation; what is missing where it was kept is as by default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GenerateOptions {
    /// How tokens are chosen.
    pub sampling: SamplerParams,
    /// Tokens at most; none for as many as the context holds.
    pub max_tokens: Option<usize>,
    /// Strings that end the generation where they first appear in the answer; they are no part of it, and no part of
    /// them is ever told. Thinking and calls of functions do not end by them, and none reaches across a call.
    pub stop: Vec<String>,
    /// How many of the likeliest tokens [`Event::Token`] tells beside each one generated; none for no such events.
    /// They take reading all logits for every token, and the GPU waits meanwhile.
    pub logprobs: Option<usize>,
}

impl GenerateOptions {
    /// Names the first option that is out of range.
    pub(crate) fn check(&self) -> Result<()> {
        if self.stop.iter().any(String::is_empty) {
            let expected = "strings of at least one character".to_owned();
            return Err(Error::Argument { argument: "stop", expected, found: "an empty one".into() });
        }
        self.sampling.check()
    }
}

/// Why a generation ended. Serde writes `"end"`, `"length"`, `"stop_string"` and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Stop {
    /// The model ended its reply.
    End,
    /// As many tokens as were asked for.
    Length,
    /// The context is full.
    Context,
    /// Cancelled.
    Cancelled,
    /// One of [`GenerateOptions::stop`] appeared.
    StopString,
}

/// What a generation took. Serde writes times as numbers of seconds, `prompt_seconds` and `generate_seconds`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// The prompt's tokens: found in the cache, and computed.
    pub prompt: Reuse,
    /// Tokens generated.
    pub generated: usize,
    /// The seed of the draws, to have the same reply again; none if the likeliest tokens were taken.
    pub seed: Option<u64>,
    /// Why it ended.
    pub stop: Stop,
    /// Time on the prompt, up to the first token.
    #[serde(rename = "prompt_seconds", with = "seconds")]
    pub prompt_time: Duration,
    /// Time from the first token to the end.
    #[serde(rename = "generate_seconds", with = "seconds")]
    pub generate_time: Duration,
}

impl Stats {
    /// Prompt tokens computed per second.
    pub fn prompt_speed(&self) -> f64 {
        self.prompt.new as f64 / self.prompt_time.as_secs_f64().max(1e-9)
    }

    /// Tokens generated per second, the first one aside, which belongs to the prompt.
    pub fn speed(&self) -> f64 {
        self.generated.saturating_sub(1) as f64 / self.generate_time.as_secs_f64().max(1e-9)
    }
}

/// Tokens of a prompt between two tellings of how far it is, where they are computed one by one.
const ONE_BY_ONE: usize = 16;

/// What a generation yields. Serde writes `{"text": "…"}`, `{"prompt": {"done": …, "total": …}}` and so on.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// The prompt is being read: tokens in the cache so far, and tokens of the prompt. The first such event comes before
    /// anything is computed and tells what the cache held, the last one tells that all of it is read.
    Prompt {
        /// Tokens in the cache.
        done: usize,
        /// Tokens of the prompt.
        total: usize,
    },
    /// A piece of the model's thinking: whole characters.
    Thinking(String),
    /// A piece of the answer: whole characters.
    Text(String),
    /// The model begins to call a function: its call is told by pieces from here on, and then whole, or that it failed.
    ToolCallStart {
        /// The function's name.
        name: String,
    },
    /// A piece of the arguments of the call that began, as the model writes them, tags and all.
    ToolCallPiece(String),
    /// A function that the model calls, as soon as the call is complete.
    ToolCall(ToolCall),
    /// A call that is none: it is no part of the answer, nor of the conversation. One that the reply ended in the name of
    /// was not told to begin.
    ToolCallFailed {
        /// All of the call, as the model wrote it.
        text: String,
        /// Whether the reply ended before the call did, as [`Stats::stop`] tells why; otherwise the model made a mistake.
        cut: bool,
    },
    /// A token as it was generated, before the text that it completes: where [`GenerateOptions::logprobs`] asks for it.
    Token(TokenLogprobs),
    /// The end, always the last event.
    Done(Stats),
}

/// How likely a token was, by the logits as the model left them: see [`logprobs`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TokenLogprobs {
    /// The token that was chosen.
    pub chosen: Logprob,
    /// The bytes that it stands for: not always whole characters.
    pub bytes: Vec<u8>,
    /// The likeliest tokens, the likeliest first.
    pub top: Vec<Logprob>,
}

/// A running generation: an iterator of events. After an error, or [`Event::Done`], it is over.
pub struct Generation<'a> {
    session: &'a mut Session,
    prompt: Vec<u32>,
    options: GenerateOptions,
    cancels: Cancels,
    steering: Option<Steering<'a>>,
    events: EventBuilder,
    state: GenerationState,
}

#[derive(Debug, Clone, Copy)]
enum GenerationState {
    Start,
    Prompt { start: Instant, cached: usize },
    Tokens(GenerationProgress),
    Over,
}

/// How far a generation has come.
#[derive(Debug, Clone, Copy)]
struct GenerationProgress {
    prompt: Reuse,
    prompt_time: Duration,
    since: Instant,
    generated: usize,
}

impl<'a> Generation<'a> {
    /// Will bring the session to `prompt` and generate from there. `parser` separates thinking from answer;
    /// without one all text is answer.
    ///
    /// # Errors
    /// [`Error::Argument`] for sampling parameters out of range, or an empty stop string; all others arrive as events,
    /// [`Error::TokenOutOfRange`] for a bias on no token and [`Error::Argument`] for one that bans them all among them.
    pub fn new(
        session: &'a mut Session,
        prompt: Vec<u32>,
        parser: Option<ReplyParser>,
        mut options: GenerateOptions,
    ) -> Result<Self> {
        options.check()?;
        options.sampling.seed = Some(options.sampling.seed());
        let events = EventBuilder::new(session.model(), parser, options.stop.clone());
        let (cancels, steering, state) = (Cancels::default(), None, GenerationState::Start);
        Ok(Self { session, prompt, options, cancels, steering, events, state })
    }

    /// Will bring the session to `prompt`, the end of which is a reply that has begun, and go on with that.
    ///
    /// # Errors
    /// As [`Generation::new`].
    pub(crate) fn resumed(
        session: &'a mut Session,
        prompt: Vec<u32>,
        partial_reply: PartialReply,
        options: GenerateOptions,
    ) -> Result<Self> {
        let events = partial_reply.go_on(options.stop.clone());
        Ok(Self { events, ..Self::new(session, prompt, None, options)? })
    }

    /// The same generation, which `cancel` stops: also if that was asked before.
    pub fn with_cancel(mut self, cancel: &Cancel) -> Self {
        self.set_cancel(cancel);
        self
    }

    pub(crate) fn set_cancel(&mut self, cancel: &Cancel) {
        self.cancels.others.push(cancel.clone());
    }

    /// The same generation, whose tokens `chooser` has a say in. What it leaves to the usual sampling is drawn on the
    /// host: with the same seed other tokens than on the GPU.
    pub fn with_chooser(mut self, chooser: impl Chooser + Send + 'a) -> Self {
        self.set_chooser(Box::new(chooser));
        self
    }

    pub(crate) fn set_chooser(&mut self, chooser: Box<dyn Chooser + Send + 'a>) {
        self.steering = Some(Steering::new(chooser));
    }

    /// What stops this generation, from any thread.
    pub fn cancel(&self) -> Cancel {
        self.cancels.own.clone()
    }

    /// One step further: the prompt, or a token. Its events, if it completes any, are in `events` afterwards.
    fn advance(&mut self) -> Result<()> {
        match self.state {
            GenerationState::Start => {
                let cached = self.session.keep_common(&self.prompt)?;
                self.session.set_sampling(&self.options.sampling)?;
                self.events.push(Event::Prompt { done: cached, total: self.prompt.len() });
                self.state = GenerationState::Prompt { start: Instant::now(), cached };
                Ok(())
            }
            GenerationState::Prompt { start, cached } => self.read_prompt(start, cached),
            GenerationState::Tokens(progress) => self.next_token(progress),
            GenerationState::Over => Ok(()),
        }
    }

    /// Reads the next part of the prompt: what is computed together. The session reads the whole rest and is stopped at
    /// the end of a part, so that it knows what belongs to one prompt; not every stop is the caller's.
    fn read_prompt(&mut self, start: Instant, cached: usize) -> Result<()> {
        let rest = &self.prompt[self.session.tokens().len()..];
        let part = if self.session.prompt_options().together() > 1 { 1 } else { ONE_BY_ONE };
        let cancel = &self.cancels;
        let mut go_on = |read| match cancel.is_cancelled() || (part..rest.len()).contains(&read) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
        let read = self.session.feed_with(rest, &mut go_on).and_then(|()| self.session.wait());
        let (done, total) = (self.session.tokens().len(), self.prompt.len());
        let since = Instant::now();
        let prompt = Reuse { cached, new: done.saturating_sub(cached) }; // lost results may have taken some of it
        let progress = GenerationProgress { prompt, prompt_time: since - start, since, generated: 0 };
        match read {
            Ok(()) => {
                self.events.push(Event::Prompt { done, total });
                self.state = GenerationState::Tokens(progress);
            }
            Err(Error::Cancelled) if self.cancels.is_cancelled() => self.finish(progress, Stop::Cancelled),
            Err(Error::Cancelled) => self.events.push(Event::Prompt { done, total }),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn next_token(&mut self, progress: GenerationProgress) -> Result<()> {
        if let Some(stop) = self.limit(&progress) {
            self.finish(progress, stop);
            return Ok(());
        }
        let room = self.session.tokens().len() < self.session.context();
        let wanted = self.options.logprobs.is_some() || self.steering.is_some();
        let logits = wanted.then(|| self.session.logits()).transpose()?;
        let before = self.session.tokens().len();
        let token = self.choose(room, logits.as_deref())?;
        if self.session.model().tokenizer()?.is_end(token) {
            self.session.rewind(before); // the end was fed before anyone knew that it was one
            self.finish(progress, Stop::End);
            return Ok(());
        }
        self.emit(token, logits.as_deref())?;
        let progress = GenerationProgress { generated: progress.generated + 1, ..progress };
        self.state = GenerationState::Tokens(progress);
        if self.events.stopped() {
            self.finish(progress, Stop::StopString);
        } else if !room {
            self.finish(progress, Stop::Context);
        }
        Ok(())
    }

    /// The next token, which is fed if there is `room`.
    fn choose(&mut self, room: bool, logits: Option<&[f32]>) -> Result<u32> {
        let (Some(steering), Some(logits)) = (&mut self.steering, logits) else {
            return if room { self.session.feed_chosen() } else { self.session.chosen() };
        };
        let token = steering.choose(&mut logits.to_vec(), self.session.tokens(), &self.options.sampling)?;
        if room {
            self.session.feed(&[token])?;
        }
        Ok(token)
    }

    /// Why the next token is not to be generated, if it is not.
    fn limit(&self, progress: &GenerationProgress) -> Option<Stop> {
        let enough = self.options.max_tokens.is_some_and(|most| progress.generated >= most);
        let cancelled = self.cancels.is_cancelled().then_some(Stop::Cancelled);
        cancelled.or(enough.then_some(Stop::Length))
    }

    fn emit(&mut self, token: u32, logits: Option<&[f32]>) -> Result<()> {
        let tokenizer = self.session.model().tokenizer()?;
        if let (Some(logits), Some(top)) = (logits, self.options.logprobs) {
            let (chosen, top) = logprobs(logits, token, top);
            let bytes = tokenizer.token_bytes(token)?.to_owned();
            self.events.push(Event::Token(TokenLogprobs { chosen, bytes, top }));
        }
        self.events.token(tokenizer, token)
    }

    fn finish(&mut self, progress: GenerationProgress, stop: Stop) {
        self.events.finish();
        let GenerationProgress { prompt, prompt_time, since, generated } = progress;
        let generate_time = since.elapsed();
        let seed = self.options.sampling.seed.filter(|_| self.options.sampling.temperature > 0.0);
        self.events.push(Event::Done(Stats { prompt, generated, seed, stop, prompt_time, generate_time }));
        self.state = GenerationState::Over;
    }
}

impl std::fmt::Debug for Generation<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Generation")
            .field("prompt", &self.prompt.len())
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl Iterator for Generation<'_> {
    type Item = Result<Event>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(event) = self.events.pop() {
                return Some(Ok(event));
            }
            if matches!(self.state, GenerationState::Over) {
                return None;
            }
            if let Err(error) = self.advance() {
                self.state = GenerationState::Over;
                return Some(Err(error));
            }
        }
    }
}
