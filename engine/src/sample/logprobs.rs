//! Log-probabilities of tokens.

use super::{Candidate, sort_first};

/// A token and the natural logarithm of its probability. JSON has no minus infinity, which is written as null.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct Logprob {
    /// The token.
    pub token: u32,
    /// The natural logarithm of the token's probability, which is the softmax at temperature 1 over all finite logits.
    /// Minus infinity for a token whose logit is not finite.
    #[serde(with = "super::saved::logarithm")]
    pub logprob: f32,
}

/// The log-probability of `chosen`, and those of the `top` most likely tokens in descending order. Tokens of equal
/// probability are ordered by id.
///
/// They are computed from the unmodified logits {vocab}, before bias, penalties, filters and temperature, which is also
/// the default of llama.cpp's server.
pub fn logprobs(logits: &[f32], chosen: u32, top: usize) -> (Logprob, Vec<Logprob>) {
    let numbers = logits.iter().copied().zip(0..).filter(|(logit, _)| logit.is_finite());
    let mut tokens: Vec<Candidate> = numbers.map(|(logit, token)| Candidate { logit, token }).collect();
    let max = tokens.iter().map(|token| token.logit).fold(f32::NEG_INFINITY, f32::max);
    let mass: f64 = tokens.iter().map(|token| token.weight(max)).sum();
    let log = |logit: f32| (f64::from(logit) - f64::from(max) - mass.ln()) as f32;
    let logit = logits.get(chosen as usize).copied().filter(|logit| logit.is_finite());
    let chosen = Logprob { token: chosen, logprob: logit.map_or(f32::NEG_INFINITY, log) };
    sort_first(&mut tokens, top);
    let likeliest = tokens.iter().take(top).map(|token| Logprob { token: token.token, logprob: log(token.logit) });
    (chosen, likeliest.collect())
}
