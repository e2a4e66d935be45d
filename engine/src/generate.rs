//! Generates a reply to the tokens of a prompt, one token at a time, on the calling thread, and reports it as events.
//!
//! A generation uses sessions and is used by the scheduler, but does not know about slots and queues.
//! `generate/task.rs` has the host's part of a step, whether a generation runs alone or in a shared step.

mod choose;
mod chooser;
#[cfg(feature = "constrain")]
mod constraining;
mod event_builder;
mod loops;
mod partial_reply;
mod rule;
mod scoring;
mod seconds;
mod task;

pub use chooser::Chooser;
pub(crate) use partial_reply::PartialReply;
pub(crate) use task::{GenerationTask, Phase};

use crate::cancel::Cancel;
#[cfg(feature = "constrain")]
use crate::constrain::{Calls, Constraint};
use crate::error::{Error, Result};
use crate::model::Model;
use crate::sample::{Logprob, SamplerParams};
use crate::session::{Reuse, Session};
use crate::speculate::{DraftStats, Speculation};
use crate::text::{Message, ReplyParser, ToolCall};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The options of generation. With serde an app can save them next to a conversation; missing fields have their
/// defaults.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GenerateOptions {
    /// How each token is sampled.
    pub sampling: SamplerParams,
    /// The maximum number of tokens to generate; `None` for as many as the context holds.
    pub max_tokens: Option<usize>,
    /// Stop strings: the answer ends just before the first one that appears in it, and no event contains any part of
    /// that string. Stop strings are not searched for in thinking or in function calls, and none spans a call.
    pub stop: Vec<String>,
    /// How many of the most likely tokens each [`Event::Token`] lists; `None` for no such events. They require all
    /// logits of every token to be read back, while the GPU waits.
    pub logprobs: Option<usize>,
    /// Tokens that each [`Event::Token`] lists in any case, in this order after the most likely ones.
    pub logprob_tokens: Vec<u32>,
    /// Which of the prompt's own tokens get an [`Event::PromptToken`]; `None` for none. The tokens from there on are
    /// computed even if the cache has them, because their logits have to be read back.
    pub prompt_logprobs: Option<PromptLogprobs>,
    /// Whether and how tokens are guessed ahead. This changes the speed of a reply and not its text. Nothing is guessed
    /// with log-probabilities or a [`Chooser`], and while a constraint holds, guesses come from the text only.
    pub speculation: Speculation,
    /// Whether a reply ends, with [`Stop::Loop`], once it repeats itself endlessly: if the same sequence of at most 512
    /// tokens came at least five times in a row, and these repetitions have at least 512 tokens together.
    pub stop_loops: bool,
    /// Whether the tokens that end a reply are banned, so that it ends only at a limit, a stop string, the end of the
    /// context or a [`Cancel`], as for measurements. It is refused with a constraint, and with functions unless
    /// `calls` excludes them, because such a reply has to end by itself.
    pub ignore_eos: bool,
    /// A constraint that the answer has to match, from its first letter to its end; the thinking before it is free.
    /// With functions the answer matches it or consists of calls. A reply that ends for another reason than
    /// [`Stop::End`] is the beginning of an answer that would match. If the model would end its reply while it thinks,
    /// its thinking ends instead.
    #[cfg(feature = "constrain")]
    pub constraint: Option<Constraint>,
    /// Whether functions may or must be called. In any case the arguments of each call are valid against the function's
    /// schema, as far as it can be enforced. In GLM's form of calls the `format` of a string is not enforced.
    #[cfg(feature = "constrain")]
    pub calls: Calls,
}

/// Which tokens of a prompt get log-probabilities: see [`GenerateOptions::prompt_logprobs`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PromptLogprobs {
    /// The index of the first token of the prompt that gets one. The first token of all follows nothing and gets none,
    /// so 0 means the same as 1.
    pub from: usize,
    /// How many of the most likely tokens each event lists.
    pub top: usize,
}

impl GenerateOptions {
    /// Returns an error for the first option that is out of range.
    pub(crate) fn check(&self) -> Result<()> {
        if self.stop.iter().any(String::is_empty) {
            return Err(Error::argument("stop", "strings of at least one character", "an empty one"));
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
    /// The reply repeats itself endlessly: see [`GenerateOptions::stop_loops`].
    Loop,
}

/// Statistics of a generation. Times are serialized as seconds, named `prompt_seconds` and `generate_seconds`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Stats {
    /// How many tokens of the prompt were in the cache, and how many were computed.
    pub prompt: Reuse,
    /// The number of generated tokens.
    pub generated: usize,
    /// The seed of the sampler, with which the same reply can be generated again; `None` if the most likely token was
    /// always taken.
    pub seed: Option<u64>,
    /// Why it ended.
    pub stop: Stop,
    /// The stop string that ended it, as an index into [`GenerateOptions::stop`], if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_string: Option<usize>,
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
    /// The statistics of a generation that ended for this reason, with all counts at zero, for an app's own tests.
    ///
    /// ```
    /// use wglm::{Stats, Stop};
    ///
    /// let mut stats = Stats::new(Stop::Length);
    /// stats.generated = 5;
    /// assert_eq!((stats.stop, stats.prompt.new), (Stop::Length, 0));
    /// ```
    pub fn new(stop: Stop) -> Self {
        let (prompt, none) = (Reuse { cached: 0, new: 0 }, Duration::ZERO);
        let (stop_string, drafts) = (None, DraftStats::default());
        Self { prompt, generated: 0, seed: None, stop, stop_string, prompt_time: none, generate_time: none, drafts }
    }

    /// How many times faster the tokens came than they would have without guesses; `None` if nothing was guessed, or if
    /// the time of a token without guesses was not measured.
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

/// A step of a reply that is being generated. Serialized as `{"text": "…"}`, `{"prompt": {"done": …, "total": …}}` and
/// so on.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// The oldest messages of a conversation that outgrew its context were dropped, as [`Overflow`](crate::Overflow)
    /// asked for: the model does not see them. This is the first event, if it comes at all.
    Dropped {
        /// The dropped messages, oldest first.
        messages: Vec<Message>,
    },
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
    /// The model has begun a function call. Pieces of the call follow, and then either the whole call or its failure.
    ToolCallStart {
        /// The call's id, which the complete call has as well. Replies of a conversation give every call one; a
        /// [`Generation`] has only those that the model wrote.
        id: Option<String>,
        /// The function's name.
        name: String,
    },
    /// A piece of the arguments of the call that has begun, as JSON, whatever the form in which the model writes them.
    /// Strings come as they are written, and other values once it is known which JSON they are. All pieces of a
    /// complete call add up to its arguments. Those of a call that fails add up to the beginning of an object, never to
    /// a whole one.
    ToolCallPiece(String),
    /// A complete function call.
    ToolCall(ToolCall),
    /// The end of a call that is not valid. It is part of neither the answer nor the conversation. If the reply ended
    /// before the function's name was complete, no [`Event::ToolCallStart`] preceded it.
    ToolCallFailed {
        /// The whole text of the call, as the model wrote it.
        text: String,
        /// Whether the reply ended inside the call, for the reason in [`Stats::stop`]. Otherwise the model made a
        /// mistake in the call.
        cut: bool,
    },
    /// A token of the prompt, in order, if [`GenerateOptions::prompt_logprobs`] asks for it.
    PromptToken(TokenLogprobs),
    /// A generated token, reported before the text that it completes, if [`GenerateOptions::logprobs`] asks for it. The
    /// token with which the model ends its reply is reported as well, although it is not counted as generated.
    Token(TokenLogprobs),
    /// The mean {width} of the hidden states of a text's tokens, instead of a reply: see
    /// [`Scheduler::embed_tokens`](crate::Scheduler::embed_tokens).
    Embedding(Vec<f32>),
    /// The end of the reply. This is always the last event.
    Done(Stats),
}

/// The log-probability of a token and of its most likely alternatives, by the unmodified logits: see
/// [`logprobs`](crate::sample::logprobs).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TokenLogprobs {
    /// The token that was generated or is part of the prompt.
    pub chosen: Logprob,
    /// The bytes of the token, which need not be whole characters.
    pub bytes: Vec<u8>,
    /// The most likely tokens, in descending order.
    pub top: Vec<Logprob>,
}

/// A generation in progress: an iterator of events. It ends after an error or [`Event::Done`]. After
/// [`Error::DeviceLost`] it can continue on another device: see [`Generation::move_to`].
pub struct Generation<'a> {
    session: &'a mut Session,
    task: GenerationTask<'a>,
    /// Whether the device was lost, so that nothing more comes before the generation is moved.
    lost: bool,
}

impl<'a> Generation<'a> {
    /// Prepares a generation that brings the session to `prompt` and continues from there. `parser` separates thinking
    /// from the answer and finds calls; without one all text is the answer.
    ///
    /// # Errors
    /// [`Error::Argument`] if a sampling parameter is out of range, a stop string is empty, or the reply has to end by
    /// itself although [`GenerateOptions::ignore_eos`] is set; [`Error::Constraint`] if nothing that the model can
    /// write matches the constraint. All other errors arrive as events, among them [`Error::TokenOutOfRange`] if a
    /// logit bias names no token, and [`Error::Argument`] if the biases ban all tokens.
    pub fn new(
        session: &'a mut Session,
        prompt: Vec<u32>,
        parser: Option<ReplyParser>,
        options: GenerateOptions,
    ) -> Result<Self> {
        let task = GenerationTask::new(session.model(), prompt, parser, options)?;
        Ok(Self::of(session, task))
    }

    pub(crate) fn of(session: &'a mut Session, task: GenerationTask<'a>) -> Self {
        Self { session, task, lost: false }
    }

    /// Continues the generation on another device after [`Error::DeviceLost`], with a `model` loaded from the same
    /// file. [`Gpu::reopen`](crate::Gpu::reopen) opens the device. The session [moves](Session::move_to), and the next
    /// events come after its tokens have been computed again. No event comes twice and none is missing; [`Stats`] and
    /// [`max_tokens`](GenerateOptions::max_tokens) count the whole reply, but [`Stats::drafts`] only counts drafts on
    /// the new device. A [`Chooser`] may be asked again for the token that was being computed.
    ///
    /// # Errors
    /// The errors of [`Session::move_to`]. After an error it can be called again with another model.
    pub fn move_to(&mut self, model: &Model) -> Result<()> {
        let needed = self.task.needed_tokens(self.session);
        self.session.move_to(model)?;
        self.task.compute_again(needed);
        self.task.moved(self.session)?;
        self.lost = false;
        Ok(())
    }

    /// Lets `cancel` stop this generation, even if it was cancelled before this call.
    pub fn with_cancel(mut self, cancel: &Cancel) -> Self {
        self.set_cancel(cancel);
        self
    }

    pub(crate) fn set_cancel(&mut self, cancel: &Cancel) {
        self.task.set_cancel(cancel);
    }

    /// Lets `chooser` take part in the choice of tokens. Tokens that it leaves to the sampler are then drawn on the
    /// host, so a seed gives other tokens than without a chooser, where they are drawn on the GPU.
    pub fn with_chooser(mut self, chooser: impl Chooser + Send + 'a) -> Self {
        self.set_chooser(Box::new(chooser));
        self
    }

    pub(crate) fn set_chooser(&mut self, chooser: Box<dyn Chooser + Send + 'a>) {
        self.task.set_chooser(chooser);
    }

    /// A handle that stops this generation from any thread.
    pub fn cancel(&self) -> Cancel {
        self.task.cancel()
    }
}

impl Drop for Generation<'_> {
    fn drop(&mut self) {
        self.task.drop_pending(self.session);
        self.session.set_masked(false);
    }
}

impl std::fmt::Debug for Generation<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.task.fmt(f)
    }
}

impl Iterator for Generation<'_> {
    type Item = Result<Event>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(event) = self.task.pop() {
                return Some(Ok(event));
            }
            if self.lost || self.task.phase() == Phase::Over {
                return None;
            }
            if let Err(error) = self.task.advance(self.session) {
                self.lost = matches!(error, Error::DeviceLost { .. });
                if !self.lost {
                    self.task.fail();
                }
                return Some(Err(error));
            }
        }
    }
}
