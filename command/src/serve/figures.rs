//! Tokens, times and probabilities of replies, and the arguments of their calls, as JSON.

use super::reply::{Finish, Likelihood, Progress, TokenProbability};
use serde::ser::{Serialize, SerializeStruct, Serializer};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use wglm_engine::Stats;

/// The logarithm of a probability of 0, since JSON has no infinity.
const NEVER: f32 = -9999.0;

/// The tokens of all replies to a request.
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

    /// No interface reports tokens as written to the cache, because clients expect to be charged more for those.
    pub fn openai(&self) -> Value {
        json!({
            "prompt_tokens": self.prompt,
            "completion_tokens": self.generated,
            "total_tokens": self.prompt + self.generated,
            "prompt_tokens_details": {"cached_tokens": self.cached, "cache_write_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": self.thinking},
        })
    }

    pub fn responses(&self) -> Value {
        json!({
            "input_tokens": self.prompt,
            "input_tokens_details": {"cached_tokens": self.cached, "cache_write_tokens": 0},
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

/// How much of a prompt has been computed, in the form of llama.cpp's server.
pub fn prompt_progress(progress: Progress) -> Value {
    let Progress { cached, done, total, time, .. } = progress;
    json!({"total": total, "cache": cached, "processed": done, "time_ms": time.as_millis() as u64})
}

/// The times of a reply, in the form of llama.cpp's server.
pub fn timings(stats: &Stats) -> Value {
    let ms = |time: std::time::Duration| time.as_secs_f64() * 1e3;
    let (prompt, reply) = (ms(stats.prompt_time), ms(stats.generate_time));
    let each = |ms: f64, count: usize| if count == 0 { 0.0 } else { ms / count as f64 };
    let steps = stats.generated.saturating_sub(1); // the time of the first token belongs to the prompt
    json!({
        "cache_n": stats.prompt.cached,
        "prompt_n": stats.prompt.new,
        "prompt_ms": prompt,
        "prompt_per_token_ms": each(prompt, stats.prompt.new),
        "prompt_per_second": stats.prompt_speed(),
        "predicted_n": stats.generated,
        "predicted_ms": reply,
        "predicted_per_token_ms": each(reply, steps),
        "predicted_per_second": stats.speed(),
        "draft_n": stats.drafts.drafted,
        "draft_n_accepted": stats.drafts.accepted,
    })
}

/// A token and its probability, in the form of chat completions; with its id, in that of llama.cpp's completions.
#[derive(serde::Serialize)]
struct LikelyToken<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u32>,
    token: Cow<'a, str>,
    logprob: f64,
    bytes: &'a [u8],
    #[serde(skip_serializing_if = "Option::is_none")]
    top_logprobs: Option<Vec<LikelyToken<'a>>>,
}

impl<'a> LikelyToken<'a> {
    fn of(Likelihood { id, bytes, logprob }: &'a Likelihood, with_id: bool) -> Self {
        let (token, logprob) = (String::from_utf8_lossy(bytes), finite(*logprob));
        Self { id: with_id.then_some(*id), token, logprob, bytes, top_logprobs: None }
    }

    fn with_top(TokenProbability { chosen, top }: &'a TokenProbability, with_id: bool) -> Self {
        let top = top.iter().map(|token| Self::of(token, with_id)).collect();
        Self { top_logprobs: Some(top), ..Self::of(chosen, with_id) }
    }
}

/// Log-probabilities in the form of chat completions. They are serialised one by one: as a tree of values they would
/// take many times as much memory.
pub struct ChatLogprobs<'a>(pub &'a [TokenProbability]);

impl Serialize for ChatLogprobs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut logprobs = serializer.serialize_struct("logprobs", 2)?;
        let content = self.0.iter().map(|token| LikelyToken::with_top(token, false));
        logprobs.serialize_field("content", &Each(content))?;
        logprobs.serialize_field("refusal", &())?;
        logprobs.end()
    }
}

/// Log-probabilities in the form of llama.cpp's completions, serialised one by one as well.
pub struct LlamaLogprobs<'a>(pub Vec<&'a TokenProbability>);

impl Serialize for LlamaLogprobs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|token| LikelyToken::with_top(token, true)))
    }
}

/// Log-probabilities in the form of completions.
pub struct CompletionLogprobs<'a> {
    /// The first token of a prompt that is repeated: nothing precedes it, so it has no probability.
    pub first: Option<&'a [u8]>,
    pub tokens: Vec<&'a TokenProbability>,
    /// The number of characters before them.
    pub offset: usize,
}

impl CompletionLogprobs<'_> {
    /// The texts of the tokens.
    fn names(&self) -> impl Iterator<Item = Cow<'_, str>> + Clone {
        let tokens = self.tokens.iter().map(|token| token.chosen.bytes.as_slice());
        self.first.into_iter().chain(tokens).map(String::from_utf8_lossy)
    }

    /// A value for each token; none for the first one of a prompt.
    fn each<T: Clone>(
        &self,
        value: impl Fn(&TokenProbability) -> T + Clone,
    ) -> impl Iterator<Item = Option<T>> + Clone {
        let first = self.first.map(|_| None);
        first.into_iter().chain(self.tokens.iter().map(move |token| Some(value(token))))
    }
}

impl Serialize for CompletionLogprobs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let offsets = self.names().scan(self.offset, |next, name| {
            let at = *next;
            *next += name.chars().count();
            Some(at)
        });
        let mut logprobs = serializer.serialize_struct("logprobs", 4)?;
        logprobs.serialize_field("tokens", &Each(self.names()))?;
        logprobs.serialize_field("token_logprobs", &Each(self.each(|token| finite(token.chosen.logprob))))?;
        logprobs.serialize_field("top_logprobs", &Each(self.each(top)))?;
        logprobs.serialize_field("text_offset", &Each(offsets))?;
        logprobs.end()
    }
}

/// The most likely tokens by their texts, and the one that was chosen, even if it is not among them. Of several with
/// the same text, which is always an incomplete character, only the most likely one.
fn top(token: &TokenProbability) -> Map<String, Value> {
    let mut all = Map::new();
    for Likelihood { bytes, logprob, .. } in token.top.iter().chain([&token.chosen]) {
        all.entry(String::from_utf8_lossy(bytes)).or_insert_with(|| finite(*logprob).into());
    }
    all
}

/// A list of the items of an iterator.
struct Each<I>(I);

impl<T: Serialize, I: Iterator<Item = T> + Clone> Serialize for Each<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.clone())
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
    use super::{Likelihood, TokenProbability, decimal, top};
    use serde_json::json;

    /// As OpenAI's API has it: up to one more than were asked for.
    #[test]
    fn the_chosen_token_is_among_the_likely_ones() {
        let token = |id: u32, text: &str, logprob| Likelihood { id, bytes: text.into(), logprob };
        let of = |chosen| TokenProbability { chosen, top: vec![token(1, "a", -0.5), token(2, "b", -1.0)] };
        let with_other = json!({"a": -0.5, "b": -1.0, "c": -2.0});
        assert_eq!(json!(top(&of(token(3, "c", -2.0)))), with_other);
        assert_eq!(json!(top(&of(token(2, "b", -1.0)))), json!({"a": -0.5, "b": -1.0}));
    }

    #[test]
    fn numbers_have_the_digits_of_the_request() {
        for (number, text) in [(0.7, "0.7"), (0.95, "0.95"), (1.0, "1.0"), (0.0, "0.0")] {
            assert_eq!(decimal(number).to_string(), text);
        }
        assert_eq!(decimal(f32::INFINITY), json!(null), "which JSON does not have");
    }
}
