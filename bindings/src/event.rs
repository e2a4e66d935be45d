//! The events of a reply.

use crate::count;
use crate::message::{Message, ToolCall};

/// Why a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, uniffi::Enum)]
pub enum Stop {
    /// The model ended its reply.
    End,
    /// `Options.max_tokens` tokens were generated.
    Length,
    /// The context is full.
    Context,
    /// It was stopped.
    Cancelled,
    /// One of `Options.stop` appeared.
    StopString,
    /// The reply repeated itself endlessly.
    Loop,
}

impl From<wglm::Stop> for Stop {
    fn from(stop: wglm::Stop) -> Self {
        match stop {
            wglm::Stop::Length => Self::Length,
            wglm::Stop::Context => Self::Context,
            wglm::Stop::Cancelled => Self::Cancelled,
            wglm::Stop::StopString => Self::StopString,
            wglm::Stop::Loop => Self::Loop,
            _ => Self::End,
        }
    }
}

/// The statistics of a reply.
#[derive(Debug, Clone, PartialEq, uniffi::Record)]
pub struct Stats {
    /// Why it ended.
    pub stop: Stop,
    /// The tokens of the prompt that were in the cache.
    pub cached: u32,
    /// The tokens of the prompt that were computed.
    pub computed: u32,
    /// The generated tokens.
    pub generated: u32,
    /// The seed of the sampler, with which the same reply can be generated again; none if the most likely token was
    /// always taken.
    pub seed: Option<u64>,
    /// The seconds from the start to the first token.
    pub prompt_seconds: f64,
    /// The seconds from the first token to the end.
    pub generate_seconds: f64,
    /// The tokens generated per second.
    pub tokens_per_second: f64,
    /// The tokens that were guessed ahead.
    pub drafted: u32,
    /// How many of the guesses were right.
    pub accepted: u32,
}

impl From<wglm::Stats> for Stats {
    fn from(stats: wglm::Stats) -> Self {
        Self {
            stop: stats.stop.into(),
            cached: count(stats.prompt.cached),
            computed: count(stats.prompt.new),
            generated: count(stats.generated),
            seed: stats.seed,
            prompt_seconds: stats.prompt_time.as_secs_f64(),
            generate_seconds: stats.generate_time.as_secs_f64(),
            tokens_per_second: stats.speed(),
            drafted: count(stats.drafts.drafted),
            accepted: count(stats.drafts.accepted),
        }
    }
}

/// A token and the natural logarithm of its probability.
#[derive(Debug, Clone, Copy, PartialEq, uniffi::Record)]
pub struct Logprob {
    /// The token.
    pub token: u32,
    /// The logarithm; minus infinity for a token that cannot come.
    pub logprob: f32,
}

impl From<wglm::Logprob> for Logprob {
    fn from(wglm::Logprob { token, logprob, .. }: wglm::Logprob) -> Self {
        Self { token, logprob }
    }
}

/// A generated token and its most likely alternatives.
#[derive(Debug, Clone, PartialEq, uniffi::Record)]
pub struct TokenLogprobs {
    /// The token that was generated.
    pub chosen: Logprob,
    /// The bytes of the token, which need not be whole characters.
    pub bytes: Vec<u8>,
    /// The most likely tokens, in descending order.
    pub top: Vec<Logprob>,
}

/// A step of a reply that is being generated.
#[derive(Debug, Clone, PartialEq, uniffi::Enum)]
pub enum Event {
    /// The oldest messages of a conversation that outgrew its context were dropped: the model does not see them. This
    /// is the first event, if it comes at all.
    Dropped {
        /// The dropped messages, oldest first.
        messages: Vec<Message>,
    },
    /// How much of the prompt is computed. The first such event says how many tokens the cache held.
    Prompt {
        /// The tokens of the prompt that are in the cache.
        done: u32,
        /// All tokens of the prompt.
        total: u32,
    },
    /// A piece of the model's thinking, made of whole characters.
    Thinking {
        /// The piece.
        text: String,
    },
    /// A piece of the answer, made of whole characters.
    Text {
        /// The piece.
        text: String,
    },
    /// The model has begun to call a function.
    ToolCallStart {
        /// The call's id.
        id: String,
        /// The function's name.
        name: String,
    },
    /// A piece of the arguments of the call that has begun, as JSON. All pieces of a complete call add up to its
    /// arguments.
    ToolCallPiece {
        /// The piece.
        json: String,
    },
    /// A complete call. Run the function, pass `Message.tool(id, result)` to `Chat.push`, and call `Chat.reply`.
    ToolCall {
        /// The call.
        call: ToolCall,
    },
    /// The end of a call that is not valid, and that is part of neither the answer nor the conversation.
    ToolCallFailed {
        /// The whole text of the call, as the model wrote it.
        text: String,
        /// Whether the reply ended inside the call; otherwise the model made a mistake in it.
        cut: bool,
    },
    /// A generated token, if `Options.logprobs` asks for it.
    Token {
        /// The token and its alternatives.
        token: TokenLogprobs,
    },
    /// The end of the reply. This is always the last event.
    Done {
        /// The statistics.
        stats: Stats,
    },
}

impl Event {
    /// The event for other languages; none for those that the options here cannot ask for.
    pub(crate) fn of(event: wglm::Event) -> Option<Self> {
        Some(match event {
            wglm::Event::Dropped { messages } => {
                Self::Dropped { messages: messages.iter().map(Message::from).collect() }
            }
            wglm::Event::Prompt { done, total } => Self::Prompt { done: count(done), total: count(total) },
            wglm::Event::Thinking(text) => Self::Thinking { text },
            wglm::Event::Text(text) => Self::Text { text },
            wglm::Event::ToolCallStart { id, name } => Self::ToolCallStart { id: id.unwrap_or_default(), name },
            wglm::Event::ToolCallPiece(json) => Self::ToolCallPiece { json },
            wglm::Event::ToolCall(call) => Self::ToolCall { call: ToolCall::from(&call) },
            wglm::Event::ToolCallFailed { text, cut } => Self::ToolCallFailed { text, cut },
            wglm::Event::Token(token) => Self::Token {
                token: TokenLogprobs {
                    chosen: token.chosen.into(),
                    bytes: token.bytes,
                    top: token.top.into_iter().map(Logprob::from).collect(),
                },
            },
            wglm::Event::Done(stats) => Self::Done { stats: stats.into() },
            _ => return None,
        })
    }
}
