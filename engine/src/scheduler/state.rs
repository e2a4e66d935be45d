//! The state of a scheduler, for apps.

use serde::Serialize;

/// The state of a [`Scheduler`](super::Scheduler) at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SchedulerState {
    /// The slots of conversations, as many as [`SchedulerOptions::sessions`](super::SchedulerOptions::sessions).
    pub slots: Vec<SlotState>,
    /// How many requests wait for a slot.
    pub waiting: usize,
    /// Counts since the start.
    pub counts: SchedulerCounts,
}

/// The state of a slot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SlotState {
    /// Whether a reply is being generated in it.
    pub busy: bool,
    /// How many tokens its KV cache holds, including those of a conversation whose reply has ended.
    pub tokens: usize,
    /// How many tokens it can hold.
    pub context: usize,
    /// How many tokens of the prompt are computed, including those that were in the cache.
    pub prompt_done: usize,
    /// All tokens of the prompt.
    pub prompt_total: usize,
    /// How many tokens of its reply were generated.
    pub generated: usize,
}

/// Counts of a [`Scheduler`](super::Scheduler) since its start. The statistics of a reply are added when it has ended.
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
    /// Tokens whose cache was dropped because memory ran out while their reply was being generated. They were computed
    /// again, or will be; the other counts include them once.
    pub given_up: u64,
    /// Rounds of work. It grows while replies are being generated and their events are taken.
    pub rounds: u64,
}
