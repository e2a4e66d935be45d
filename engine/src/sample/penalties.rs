//! Logit bias and penalties, which change logits before they are filtered.
//!
//! The order is that of llama.cpp. First the bias is added. Then, for a token that occurs among the last ones, a
//! positive logit is divided by the repetition penalty and any other multiplied by it, so that it always falls; the
//! frequency penalty is subtracted once for each occurrence, and the presence penalty once. Sessions do this on the GPU
//! (`wgsl/op/adjust.wgsl`), the [`Sampler`](super::Sampler) does it here.

use super::SamplerParams;
use std::collections::BTreeMap;

/// The change to the logit of one token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LogitAdjustment {
    pub token: u32,
    /// How often the token occurs among the last ones.
    pub count: u32,
    /// The sum of its biases.
    pub bias: f32,
}

impl SamplerParams {
    /// Whether penalties are on, so that earlier tokens change the logits of the next one.
    pub(crate) fn penalises(&self) -> bool {
        let neutral = self.repeat_penalty == 1.0 && self.presence_penalty == 0.0 && self.frequency_penalty == 0.0;
        !neutral && self.repeat_last_n > 0
    }

    /// Whether any logit is changed at all.
    pub(crate) fn adjusts(&self) -> bool {
        self.penalises() || !self.logit_bias.is_empty()
    }

    /// The changes to the logits of the token that follows `tokens`; the penalties count the last `last` of them. One
    /// change for each token id, in ascending order.
    pub(crate) fn adjustments(&self, tokens: &[u32], last: usize) -> Vec<LogitAdjustment> {
        let mut found: BTreeMap<u32, LogitAdjustment> = BTreeMap::new();
        let recent = if self.penalises() { &tokens[tokens.len().saturating_sub(last)..] } else { &[] };
        let counts = recent.iter().map(|&token| LogitAdjustment { token, count: 1, bias: 0.0 });
        let biases = self.logit_bias.iter().map(|&(token, bias)| LogitAdjustment { token, count: 0, bias });
        for LogitAdjustment { token, count, bias } in counts.chain(biases) {
            let sum = found.entry(token).or_insert(LogitAdjustment { token, count: 0, bias: 0.0 });
            sum.count += count;
            sum.bias += bias;
        }
        found.into_values().collect()
    }

    /// A logit after its change.
    pub(super) fn adjusted(&self, logit: f32, LogitAdjustment { count, bias, .. }: LogitAdjustment) -> f32 {
        let logit = logit + bias;
        if count == 0 {
            return logit;
        }
        let repeated = if logit <= 0.0 { logit * self.repeat_penalty } else { logit / self.repeat_penalty };
        repeated - (count as f32 * self.frequency_penalty + self.presence_penalty)
    }
}
