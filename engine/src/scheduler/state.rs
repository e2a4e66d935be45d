//! What a scheduler tells of itself.

use serde::Serialize;

/// What a [`Scheduler`](super::Scheduler) holds and does at a moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SchedulerState {
    /// The slots of conversations, as many as [`SchedulerOptions::sessions`](super::SchedulerOptions::sessions).
    pub slots: Vec<SlotState>,
    /// How many requests wait for a slot.
    pub waiting: usize,
    /// What was done since the start.
    pub counts: SchedulerCounts,
}

/// The state of a slot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SlotState {
    /// Whether a reply is being generated in it.
    pub busy: bool,
    /// How many tokens its KV cache holds, also of a conversation whose reply has ended.
    pub tokens: usize,
    /// How many it can hold.
    pub context: usize,
    /// How many tokens of the prompt are computed, those that were in the cache included.
    pub prompt_done: usize,
    /// All tokens of the prompt.
    pub prompt_total: usize,
    /// How many tokens were generated of its reply.
    pub generated: usize,
}

/// What a [`Scheduler`](super::Scheduler) has done since its start. Figures of a reply count when it has ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SchedulerCounts {
    /// Requests that were accepted.
    pub requests: u64,
    /// Tokens of prompts that were computed.
    pub prompt_tokens: u64,
    /// Tokens of prompts that were in the cache.
    pub cached_tokens: u64,
    /// Tokens that were generated.
    pub generated_tokens: u64,
    /// Tokens whose cache a reply on its way gave up because memory ran out. They were computed again, or will be; the
    /// other counts have them once.
    pub given_up: u64,
    /// Rounds of work: while replies are on their way and their events are taken, it grows.
    pub rounds: u64,
}
