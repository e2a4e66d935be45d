//! Generates a reply to the tokens of a prompt, one token at a time, on the calling thread, and reports it as events.

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
use crate::speculate::{DraftStats, Speculation};
use crate::text::{ReplyParser, ToolCall};
use chooser::Steering;
use event_builder::EventBuilder;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// The options of generation. With serde an app can save them next to a conversation; missing fields have their
/// defaults.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GenerateOptions {
    /// How each token is sampled.
    pub sampling: SamplerParams,
    /// The most tokens to generate; `None` for as many as the context has room for.
    pub max_tokens: Option<usize>,
    /// Stop strings: the answer ends just before the first one that appears in it, and no part of that string is in any
    /// event. Stop strings are not looked for in thinking or in calls of functions, and none spans a call.
    pub stop: Vec<String>,
    /// How many of the likeliest tokens each [`Event::Token`] lists; `None` for no such events. They require all logits
    /// of every token to be read back, while the GPU waits.
    pub logprobs: Option<usize>,
    /// Whether and how tokens are guessed ahead. It changes how fast a reply comes, and not which one. Nothing is guessed
    /// where log-probabilities are asked for, or where a [`Chooser`] takes part.
    pub speculation: Speculation,
}

impl GenerateOptions {
    /// Returns an error for the first option that is out of range.
    pub(crate) fn check(&self) -> Result<()> {
        if self.stop.iter().any(String::is_empty) {
            let expected = "strings of at least one character".to_owned();
            return Err(Error::Argument { argument: "stop", expected, found: "an empty one".into() });
        }
        self.speculation.check()?;
        self.sampling.check()
    }
}

/// Why a generation ended. Serialized as `"end"`, `"length"`, `"stop_string"` and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Stop {
    /// The model ended its reply.
    End,
    /// [`GenerateOptions::max_tokens`] tokens were generated.
    Length,
    /// The context is full.
    Context,
    /// A [`Cancel`] stopped it.
    Cancelled,
    /// One of [`GenerateOptions::stop`] appeared.
    StopString,
}

/// Statistics of a generation. Times are serialized as seconds, named `prompt_seconds` and `generate_seconds`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// How many tokens of the prompt were in the cache, and how many were computed.
    pub prompt: Reuse,
    /// The number of generated tokens.
    pub generated: usize,
    /// The seed of the sampler, with which the same reply can be generated again; `None` if the likeliest token was
    /// always taken.
    pub seed: Option<u64>,
    /// Why it ended.
    pub stop: Stop,
    /// The time from the start to the first token.
    #[serde(rename = "prompt_seconds", with = "seconds")]
    pub prompt_time: Duration,
    /// The time from the first token to the end.
    #[serde(rename = "generate_seconds", with = "seconds")]
    pub generate_time: Duration,
    /// The tokens that were guessed ahead, and how many of the guesses were right.
    #[serde(default)]
    pub drafts: DraftStats,
}

impl Stats {
    /// How many times as fast the tokens came as they would have without guesses; `None` where nothing was guessed, or
    /// where it was not measured how long a token takes without.
    pub fn draft_gain(&self) -> Option<f64> {
        let (took, saved) = (self.generate_time.as_secs_f64().max(1e-9), self.drafts.saved_seconds);
        (self.drafts.steps > 0 && saved != 0.0).then_some((took + saved) / took)
    }

    /// The prefill speed: prompt tokens computed per second.
    pub fn prompt_speed(&self) -> f64 {
        self.prompt.new as f64 / self.prompt_time.as_secs_f64().max(1e-9)
    }

    /// The decode speed: tokens generated per second. The first token is not counted, since its time belongs to the
    /// prompt.
    pub fn speed(&self) -> f64 {
        self.generated.saturating_sub(1) as f64 / self.generate_time.as_secs_f64().max(1e-9)
    }
}

/// How many tokens of a prompt are computed between two [`Event::Prompt`], if the prompt is computed token by token.
const ONE_BY_ONE: usize = 16;

/// A step of a reply that is being generated. Serialized as `{"text": "…"}`, `{"prompt": {"done": …, "total": …}}` and
/// so on.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// How much of the prompt is computed. The first such event comes before any computation and says how many tokens
    /// the cache held; the last one says that the prompt is complete.
    Prompt {
        /// The tokens of the prompt that are in the cache.
        done: usize,
        /// All tokens of the prompt.
        total: usize,
    },
    /// A piece of the model's thinking, made of whole characters.
    Thinking(String),
    /// A piece of the answer, made of whole characters.
    Text(String),
    /// The model has begun a call of a function. Pieces of the call follow, and then either the whole call or its
    /// failure.
    ToolCallStart {
        /// The function's name.
        name: String,
    },
    /// A piece of the arguments of the call that has begun, as the model writes them, with their tags.
    ToolCallPiece(String),
    /// A complete call of a function.
    ToolCall(ToolCall),
    /// The end of a call that is not valid. It is part of neither the answer nor the conversation. If the reply ended
    /// inside the function's name, no [`Event::ToolCallStart`] preceded it.
    ToolCallFailed {
        /// The whole text of the call, as the model wrote it.
        text: String,
        /// Whether the reply ended inside the call, for the reason in [`Stats::stop`]. Otherwise the model made a
        /// mistake in the call.
        cut: bool,
    },
    /// A generated token, reported before the text that it completes, if [`GenerateOptions::logprobs`] asks for it.
    Token(TokenLogprobs),
    /// The end of the reply. This is always the last event.
    Done(Stats),
}

/// The log-probability of a generated token and of its likeliest alternatives, by the unmodified logits: see
/// [`logprobs`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TokenLogprobs {
    /// The generated token.
    pub chosen: Logprob,
    /// The bytes of the token, which need not be whole characters.
    pub bytes: Vec<u8>,
    /// The likeliest tokens, in descending order.
    pub top: Vec<Logprob>,
}

/// A generation in progress: an iterator of events. It ends after an error or [`Event::Done`].
pub struct Generation<'a> {
    session: &'a mut Session,
    prompt: Vec<u32>,
    options: GenerateOptions,
    cancels: Cancels,
    steering: Option<Steering<'a>>,
    events: EventBuilder,
    /// Tokens that the session holds already and that were not reported yet: those behind the first of a step.
    pending: VecDeque<u32>,
    /// What guessing had come to in the session before.
    drafts_before: DraftStats,
    state: GenerationState,
}

/// What the next call of [`Generation::next`] does.
#[derive(Debug, Clone, Copy)]
enum GenerationState {
    Start,
    Prompt { start: Instant, cached: usize },
    Tokens(GenerationProgress),
    Over,
}

/// The figures of a generation that is past its prompt.
#[derive(Debug, Clone, Copy)]
struct GenerationProgress {
    prompt: Reuse,
    prompt_time: Duration,
    since: Instant,
    generated: usize,
}

impl<'a> Generation<'a> {
    /// Prepares a generation that brings the session to `prompt` and continues from there. `parser` separates thinking
    /// from the answer and finds calls; without one all text is the answer.
    ///
    /// # Errors
    /// [`Error::Argument`] if a sampling parameter is out of range or a stop string is empty. All other errors arrive
    /// as events, among them [`Error::TokenOutOfRange`] if a logit bias names no token, and [`Error::Argument`] if the
    /// biases ban all tokens.
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
        let (pending, drafts_before) = (VecDeque::new(), session.draft_stats());
        Ok(Self { session, prompt, options, cancels, steering, events, pending, drafts_before, state })
    }

    /// Prepares a generation that brings the session to `prompt`, which ends with the beginning of a reply, and
    /// continues that reply.
    ///
    /// # Errors
    /// Those of [`Generation::new`].
    pub(crate) fn resumed(
        session: &'a mut Session,
        prompt: Vec<u32>,
        partial_reply: PartialReply,
        options: GenerateOptions,
    ) -> Result<Self> {
        let events = partial_reply.go_on(options.stop.clone());
        let mut generation = Self::new(session, prompt, None, options)?;
        generation.events = events;
        Ok(generation)
    }

    /// Lets `cancel` stop this generation, also if it was cancelled before this call.
    pub fn with_cancel(mut self, cancel: &Cancel) -> Self {
        self.set_cancel(cancel);
        self
    }

    pub(crate) fn set_cancel(&mut self, cancel: &Cancel) {
        self.cancels.others.push(cancel.clone());
    }

    /// Lets `chooser` take part in the choice of tokens. Tokens that it leaves to the sampler are then drawn on the
    /// host, so a seed gives other tokens than without a chooser, where they are drawn on the GPU.
    pub fn with_chooser(mut self, chooser: impl Chooser + Send + 'a) -> Self {
        self.set_chooser(Box::new(chooser));
        self
    }

    pub(crate) fn set_chooser(&mut self, chooser: Box<dyn Chooser + Send + 'a>) {
        self.steering = Some(Steering::new(chooser));
    }

    /// A handle that stops this generation from any thread.
    pub fn cancel(&self) -> Cancel {
        self.cancels.own.clone()
    }

    /// Computes a part of the prompt, or a token. The events that this completes are in `events` afterwards.
    fn advance(&mut self) -> Result<()> {
        match self.state {
            GenerationState::Start => {
                let cached = self.session.keep_common(&self.prompt)?;
                self.session.set_sampling(&self.options.sampling)?;
                self.session.set_speculation(&self.options.speculation)?;
                self.events.push(Event::Prompt { done: cached, total: self.prompt.len() });
                self.state = GenerationState::Prompt { start: Instant::now(), cached };
                Ok(())
            }
            GenerationState::Prompt { start, cached } => self.read_prompt(start, cached),
            GenerationState::Tokens(progress) => self.next_token(progress),
            GenerationState::Over => Ok(()),
        }
    }

    /// Computes the next part of the prompt. The session is given all remaining tokens, so that it can plan for the
    /// whole prompt, and is stopped at the end of a part by a `Break`; therefore not every [`Error::Cancelled`] here
    /// comes from a [`Cancel`].
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
        let prompt = Reuse { cached, new: done.saturating_sub(cached) }; // the session drops tokens whose results were lost
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
        let before = self.session.tokens().len().saturating_sub(self.pending.len());
        let room = before < self.session.context();
        let wanted = self.options.logprobs.is_some() || self.steering.is_some();
        let logits = wanted.then(|| self.session.logits()).transpose()?;
        let token = match self.pending.pop_front() {
            Some(token) => token,
            None => self.choose(room, logits.as_deref(), progress.generated)?,
        };
        // The end of a message is not that of the reply if a call may follow as another message.
        if self.session.model().tokenizer()?.is_end(token) && !self.events.is_tag(token) {
            self.session.rewind(before); // the end token was fed before the host knew it
            self.pending.clear();
            self.finish(progress, Stop::End);
            return Ok(());
        }
        self.emit(token, logits.as_deref())?;
        let progress = GenerationProgress { generated: progress.generated + 1, ..progress };
        self.state = GenerationState::Tokens(progress);
        if self.events.stopped() {
            self.finish(progress, Stop::StopString);
        } else if self.events.ended() {
            self.finish(progress, Stop::End);
        } else if !room {
            self.finish(progress, Stop::Context);
        }
        Ok(())
    }

    /// Chooses the next token, and feeds it to the session if there is `room`, perhaps with others that follow it.
    fn choose(&mut self, room: bool, logits: Option<&[f32]>, generated: usize) -> Result<u32> {
        let Some(logits) = logits else {
            if !room {
                return self.session.sampled_token();
            }
            let most = self.options.max_tokens.map_or(usize::MAX, |most| most - generated);
            let fed = self.session.next_tokens(most)?;
            self.pending.extend(&fed[1..]);
            return Ok(fed[0]);
        };
        let Some(steering) = &mut self.steering else {
            return if room { self.session.next_token() } else { self.session.sampled_token() };
        };
        let token = steering.choose(&mut logits.to_vec(), self.session.tokens(), &self.options.sampling)?;
        if room {
            self.session.feed(&[token])?;
        }
        Ok(token)
    }

    /// The reason not to generate another token, if there is one.
    fn limit(&self, progress: &GenerationProgress) -> Option<Stop> {
        let enough = self.options.max_tokens.is_some_and(|most| progress.generated >= most);
        let cancelled = self.cancels.is_cancelled().then_some(Stop::Cancelled);
        cancelled.or(enough.then_some(Stop::Length))
    }

    /// Adds the events of a generated token.
    fn emit(&mut self, token: u32, logits: Option<&[f32]>) -> Result<()> {
        let tokenizer = self.session.model().tokenizer()?;
        if let (Some(logits), Some(top)) = (logits, self.options.logprobs) {
            let (chosen, top) = logprobs(logits, token, top);
            let bytes = tokenizer.token_bytes(token)?.to_owned();
            self.events.push(Event::Token(TokenLogprobs { chosen, bytes, top }));
        }
        self.events.token(tokenizer, token)
    }

    /// Has the session forget the tokens that were not reported.
    fn drop_pending(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let reported = self.session.tokens().len().saturating_sub(self.pending.len());
        self.pending.clear();
        self.session.rewind(reported);
    }

    /// Adds the last events, and ends the generation.
    fn finish(&mut self, progress: GenerationProgress, stop: Stop) {
        self.drop_pending();
        self.events.finish();
        let GenerationProgress { prompt, prompt_time, since, generated } = progress;
        let generate_time = since.elapsed();
        let seed = self.options.sampling.seed.filter(|_| self.options.sampling.temperature > 0.0);
        let drafts = self.session.draft_stats().since(&self.drafts_before);
        self.events.push(Event::Done(Stats { prompt, generated, seed, stop, prompt_time, generate_time, drafts }));
        self.state = GenerationState::Over;
    }
}

impl Drop for Generation<'_> {
    fn drop(&mut self) {
        self.drop_pending();
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
