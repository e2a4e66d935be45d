//! Tokens, times and probabilities of replies, and the arguments of their calls, as JSON.

use super::reply::{Finish, Progress, TokenProbability};
use serde::ser::{Serialize, SerializeStruct, Serializer};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use wglm_engine::Stats;

/// The logarithm of a probability of 0, since JSON has no infinity.
const NEVER: f32 = -9999.0;

/// Tokens of a request's replies together.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    pub prompt: usize,
    pub cached: usize,
    pub generated: usize,
    pub thinking: usize,
}

impl Usage {
    pub fn of(finish: &Finish) -> Self {
        let Stats { prompt, generated, .. } = finish.stats;
        let thinking = finish.thinking_tokens;
        Self { prompt: prompt.cached + prompt.new, cached: prompt.cached, generated, thinking }
    }

    /// Adds a reply. Only the first reply to a prompt counts the prompt, as in OpenAI's API.
    pub fn add(&mut self, other: Self, is_first: bool) {
        if is_first {
            self.prompt += other.prompt;
            self.cached += other.cached;
        }
        self.generated += other.generated;
        self.thinking += other.thinking;
    }

    pub fn openai(&self) -> Value {
        json!({
            "prompt_tokens": self.prompt,
            "completion_tokens": self.generated,
            "total_tokens": self.prompt + self.generated,
            "prompt_tokens_details": {"cached_tokens": self.cached},
            "completion_tokens_details": {"reasoning_tokens": self.thinking},
        })
    }

    pub fn responses(&self) -> Value {
        json!({
            "input_tokens": self.prompt,
            "input_tokens_details": {"cached_tokens": self.cached},
            "output_tokens": self.generated,
            "output_tokens_details": {"reasoning_tokens": self.thinking},
            "total_tokens": self.prompt + self.generated,
        })
    }

    /// Anthropic counts the tokens that the cache had separately.
    pub fn anthropic(&self) -> Value {
        json!({
            "input_tokens": self.prompt.saturating_sub(self.cached),
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": self.cached,
            "output_tokens": self.generated,
        })
    }
}

/// Adds the times and the warnings of a reply to an answer or an event.
pub fn add_figures(finish: &Finish, to: &mut Value) {
    to["timings"] = timings(&finish.stats);
    if !finish.warnings.is_empty() {
        to["warnings"] = finish.warnings.clone().into();
    }
}

/// How much of a prompt is computed, in the form of llama.cpp's server.
pub fn prompt_progress(progress: Progress) -> Value {
    let Progress { cached, done, total, time, .. } = progress;
    json!({"total": total, "cache": cached, "processed": done, "time_ms": time.as_millis() as u64})
}

/// The times of a reply, in the form of llama.cpp's server.
pub fn timings(stats: &Stats) -> Value {
    let ms = |time: std::time::Duration| time.as_secs_f64() * 1e3;
    let (prompt, reply) = (ms(stats.prompt_time), ms(stats.generate_time));
    let each = |ms: f64, count: usize| ms / count.max(1) as f64;
    json!({
        "cache_n": stats.prompt.cached,
        "prompt_n": stats.prompt.new,
        "prompt_ms": prompt,
        "prompt_per_token_ms": each(prompt, stats.prompt.new),
        "prompt_per_second": stats.prompt_speed(),
        "predicted_n": stats.generated,
        "predicted_ms": reply,
        "predicted_per_token_ms": each(reply, stats.generated),
        "predicted_per_second": stats.speed(),
        "draft_n": stats.drafts.drafted,
        "draft_n_accepted": stats.drafts.accepted,
    })
}

/// A token and its probability, in the form of chat completions.
#[derive(serde::Serialize)]
struct LikelyToken<'a> {
    token: Cow<'a, str>,
    logprob: f64,
    bytes: &'a [u8],
    #[serde(skip_serializing_if = "Option::is_none")]
    top_logprobs: Option<Vec<LikelyToken<'a>>>,
}

impl<'a> LikelyToken<'a> {
    fn of((bytes, logprob): &'a (Vec<u8>, f32)) -> Self {
        Self { token: String::from_utf8_lossy(bytes), logprob: finite(*logprob), bytes, top_logprobs: None }
    }

    fn with_top(token: &'a TokenProbability) -> Self {
        Self { top_logprobs: Some(token.top.iter().map(Self::of).collect()), ..Self::of(&token.chosen) }
    }
}

/// Log-probabilities in the form of chat completions. They are serialised one by one: as a tree of values they would
/// take many times as much memory.
pub struct ChatLogprobs<'a>(pub &'a [TokenProbability]);

impl Serialize for ChatLogprobs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut logprobs = serializer.serialize_struct("logprobs", 2)?;
        logprobs.serialize_field("content", &Each(self.0, LikelyToken::with_top))?;
        logprobs.serialize_field("refusal", &())?;
        logprobs.end()
    }
}

/// Log-probabilities in the form of completions; `offset` is the number of characters before them.
pub struct CompletionLogprobs<'a> {
    pub tokens: &'a [TokenProbability],
    pub offset: usize,
}

impl Serialize for CompletionLogprobs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut next = self.offset;
        let offset = |token: &TokenProbability| {
            let at = next;
            next += name(token).chars().count();
            at
        };
        let offsets: Vec<usize> = self.tokens.iter().map(offset).collect();
        let mut logprobs = serializer.serialize_struct("logprobs", 4)?;
        logprobs.serialize_field("tokens", &Each(self.tokens, name))?;
        logprobs
            .serialize_field("token_logprobs", &Each(self.tokens, |token: &TokenProbability| finite(token.chosen.1)))?;
        logprobs.serialize_field("top_logprobs", &Each(self.tokens, top))?;
        logprobs.serialize_field("text_offset", &offsets)?;
        logprobs.end()
    }
}

fn name(token: &TokenProbability) -> Cow<'_, str> {
    String::from_utf8_lossy(&token.chosen.0)
}

fn top(token: &TokenProbability) -> Map<String, Value> {
    let one =
        |(bytes, logprob): &(Vec<u8>, f32)| (String::from_utf8_lossy(bytes).into_owned(), finite(*logprob).into());
    token.top.iter().map(one).collect()
}

/// A list with the result of a function for each token.
struct Each<'a, F>(&'a [TokenProbability], F);

impl<'a, T: Serialize, F: Fn(&'a TokenProbability) -> T> Serialize for Each<'a, F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(&self.1))
    }
}

/// A number with the fewest digits that mean the same `f32`: 0.7 and not 0.699999988079071.
pub fn decimal(number: f32) -> Value {
    number.to_string().parse::<f64>().map_or(Value::Null, Value::from)
}

fn finite(logprob: f32) -> f64 {
    f64::from(if logprob.is_finite() { logprob } else { NEVER })
}

#[cfg(test)]
mod tests {
    use super::decimal;
    use serde_json::json;

    #[test]
    fn numbers_have_the_digits_of_the_request() {
        for (number, text) in [(0.7, "0.7"), (0.95, "0.95"), (1.0, "1.0"), (0.0, "0.0")] {
            assert_eq!(decimal(number).to_string(), text);
        }
        assert_eq!(decimal(f32::INFINITY), json!(null), "which JSON does not have");
    }
}
