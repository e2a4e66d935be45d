//! Logit bias and penalties, which change logits before they are filtered.
//!
//! The order is that of llama.cpp. First the bias is added. Then, for a token that occurs among the last ones, a
//! positive logit is divided by the repetition penalty and any other multiplied by it, so that it always falls; the
//! frequency penalty is subtracted once for each occurrence, and the presence penalty once. Sessions do this on the GPU
//! (`wgsl/op/adjust.wgsl`), the [`Sampler`](super::Sampler) does it here.

use super::SamplerParams;

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

    /// The changes to the logits of the next token, one for each token id, in ascending order. `counts` are tokens that
    /// the penalties take into account, and how often each occurs; a token may be listed several times.
    pub(crate) fn adjustments(&self, counts: impl IntoIterator<Item = (u32, u32)>) -> Vec<LogitAdjustment> {
        let counts = counts.into_iter().map(|(token, count)| LogitAdjustment { token, count, bias: 0.0 });
        // A bias is added to zero, so that the sum is never negative zero.
        let biases = self.logit_bias.iter().map(|&(token, bias)| LogitAdjustment { token, count: 0, bias: 0.0 + bias });
        let mut all: Vec<LogitAdjustment> = counts.chain(biases).collect();
        all.sort_by_key(|adjustment| adjustment.token); // stable: the biases of a token are added in their order
        all.dedup_by(|next, sum| {
            let is_same = next.token == sum.token;
            if is_same {
                (sum.count, sum.bias) = (sum.count + next.count, sum.bias + next.bias);
            }
            is_same
        });
        all
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
