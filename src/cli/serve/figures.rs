//! What replies tell of their tokens and times.

use super::pieces::{Likelihood, Outcome};
use serde_json::{Value, json};
use wglm::Stats;

/// A logarithm that JSON can hold, for a probability of 0.
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
    pub fn of(outcome: &Outcome) -> Self {
        let Stats { prompt, generated, .. } = outcome.stats;
        let thinking = outcome.thinking_tokens;
        Self { prompt: prompt.cached + prompt.new, cached: prompt.cached, generated, thinking }
    }

    /// Adds a reply. Of several to one prompt the first counts that prompt, as with OpenAI.
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

    /// Anthropic counts what the cache had apart from what it had not.
    pub fn anthropic(&self) -> Value {
        json!({
            "input_tokens": self.prompt.saturating_sub(self.cached),
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": self.cached,
            "output_tokens": self.generated,
        })
    }
}

/// The times of a reply, as llama.cpp's server tells them.
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

/// Log-probabilities as chat completions tell them.
pub fn chat_logprobs(tokens: &[Likelihood]) -> Value {
    let one = |(bytes, logprob): &(Vec<u8>, f32)| json!({"token": String::from_utf8_lossy(bytes), "logprob": finite(*logprob), "bytes": bytes});
    let content = tokens.iter().map(|token| {
        let mut chosen = one(&token.chosen);
        chosen["top_logprobs"] = token.top.iter().map(one).collect();
        chosen
    });
    json!({"content": content.collect::<Value>(), "refusal": null})
}

/// Log-probabilities as completions tell them. `offset` is the number of characters before.
pub fn completion_logprobs(tokens: &[Likelihood], mut offset: usize) -> Value {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (mut names, mut chosen, mut tops, mut offsets) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for token in tokens {
        let name = text(&token.chosen.0);
        offsets.push(offset);
        offset += name.chars().count();
        names.push(name);
        chosen.push(finite(token.chosen.1));
        let top = |(bytes, logprob): &(Vec<u8>, f32)| (text(bytes), finite(*logprob).into());
        tops.push(Value::Object(token.top.iter().map(top).collect()));
    }
    json!({"tokens": names, "token_logprobs": chosen, "top_logprobs": tops, "text_offset": offsets})
}

/// A number of `f32` with the digits that it was given with: 0.7, and not the 0.699999988079071 that it is.
pub fn decimal(number: f32) -> Value {
    number.to_string().parse::<f64>().map_or(Value::Null, Value::from)
}

fn finite(logprob: f32) -> f32 {
    if logprob.is_finite() { logprob } else { NEVER }
}

#[cfg(test)]
mod tests {
    use super::decimal;
    use serde_json::json;

    #[test]
    fn numbers_are_told_as_they_were_given() {
        for (number, text) in [(0.7, "0.7"), (0.95, "0.95"), (1.0, "1.0"), (0.0, "0.0")] {
            assert_eq!(decimal(number).to_string(), text);
        }
        assert_eq!(decimal(f32::INFINITY), json!(null), "which JSON does not have");
    }
}
