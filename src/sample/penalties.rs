//! Logit bias and penalties: what happens to logits before anything is filtered.
//!
//! As llama.cpp has it: the bias is added first. Then the logit of a token that stands among the last ones is
//! divided by the repetition penalty, or multiplied with it where it is not above zero, so that it always falls;
//! the frequency penalty is taken off once for each time that the token stands there, and the presence penalty once.
//! The session does this on the GPU (`wgsl/op/adjust.wgsl`), the [`Sampler`](super::Sampler) here.

use super::SamplerParams;
use std::collections::BTreeMap;

/// What is to happen to the logit of one token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LogitAdjustment {
    pub token: u32,
    /// How often it stands among the last tokens.
    pub count: u32,
    /// What is added to its logit.
    pub bias: f32,
}

impl SamplerParams {
    /// Whether what came before weighs on what comes next.
    pub(crate) fn penalises(&self) -> bool {
        let neutral = self.repeat_penalty == 1.0 && self.presence_penalty == 0.0 && self.frequency_penalty == 0.0;
        !neutral && self.repeat_last_n > 0
    }

    /// Whether any logit is changed.
    pub(crate) fn adjusts(&self) -> bool {
        self.penalises() || !self.logit_bias.is_empty()
    }

    /// What is to happen after `tokens`, of which the last `last` count, by token: each stands there once.
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

    /// A logit after its adjustment.
    pub(super) fn adjusted(&self, logit: f32, LogitAdjustment { count, bias, .. }: LogitAdjustment) -> f32 {
        let logit = logit + bias;
        if count == 0 {
            return logit;
        }
        let repeated = if logit <= 0.0 { logit * self.repeat_penalty } else { logit / self.repeat_penalty };
        repeated - (count as f32 * self.frequency_penalty + self.presence_penalty)
    }
}
