//! Samples the next token from logits on the host.
//!
//! A generation usually samples on the GPU; this module is for callers who work on the logits themselves, and for
//! choosers.
//!
//! The steps are those of llama.cpp: logit bias, penalties, `top_k`, `top_p`, `min_p`, temperature, then one draw.
//! Every filter keeps the most likely tokens, so each only shortens one list. The module guarantees that a seed
//! determines the draws, that equal logits are ordered by id, that a logit which is NaN or minus infinity is never
//! chosen, that nothing is allocated after the first call unless bias or penalties are on, and that only as much of the
//! vocabulary is sorted as the filters need.

mod logprobs;
mod params;
mod penalties;
mod saved;

pub use logprobs::{Logprob, logprobs};
pub use params::SamplerParams;

use crate::error::{Error, Result};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::cmp::Ordering;
use std::collections::VecDeque;

/// How many of the most likely tokens `top_p` sorts first. As long as they do not reach its probability, it sorts eight
/// times as many.
const FIRST_LOOK: usize = 128;

/// A token and its logit.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Candidate {
    logit: f32,
    token: u32,
}

impl Candidate {
    /// Orders by descending logit, then by ascending id. Logits are never NaN here.
    fn order(&self, other: &Self) -> Ordering {
        other.logit.partial_cmp(&self.logit).unwrap_or(Ordering::Equal).then(self.token.cmp(&other.token))
    }

    /// The probability relative to a token with logit `max`.
    fn weight(&self, max: f32) -> f64 {
        // For two equal infinities the difference below would be NaN.
        if self.logit == max { 1.0 } else { f64::from(self.logit - max).exp() }
    }
}

/// Samples tokens, one after the other.
///
/// ```
/// use wglm::{Sampler, SamplerParams};
///
/// # fn main() -> wglm::Result<()> {
/// let logits = [0.1, 2.0, f32::NAN, 1.9]; // as Session::logits has them, {vocab}
/// assert_eq!(Sampler::new(SamplerParams::greedy())?.sample(&logits)?, 1);
///
/// let params = SamplerParams { top_k: 2, repeat_penalty: 1.5, seed: Some(7), ..SamplerParams::default() };
/// let mut sampler = Sampler::new(params)?;
/// sampler.accept(1); // token 1 was in the prompt: its logit is divided by 1.5
/// let token = sampler.sample(&logits)?;
/// sampler.accept(token);
/// assert!(token == 1 || token == 3);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Sampler {
    params: SamplerParams,
    seed: u64,
    random: Pcg64,
    /// The last tokens, as many as the penalties take into account.
    recent: VecDeque<u32>,
    /// The logits after bias and penalties. Their memory is reused.
    adjusted: Vec<f32>,
    /// The tokens that the filters keep. Their memory is reused.
    candidates: Vec<Candidate>,
}

impl Sampler {
    /// Creates a sampler.
    ///
    /// # Errors
    /// [`Error::Argument`] for the first parameter that is out of range.
    pub fn new(params: SamplerParams) -> Result<Self> {
        params.check()?;
        let seed = params.seed();
        let random = Pcg64::seed_from_u64(seed);
        Ok(Self { params, seed, random, recent: VecDeque::new(), adjusted: Vec::new(), candidates: Vec::new() })
    }

    /// The parameters.
    pub fn params(&self) -> &SamplerParams {
        &self.params
    }

    /// The seed in use, whether it was given or generated. With it the same draws can be repeated.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Adds a token to those that the penalties take into account. Call it for every token of the prompt, and for every
    /// chosen token, in order.
    pub fn accept(&mut self, token: u32) {
        if self.params.penalises() {
            self.recent.push_back(token);
            if self.recent.len() > self.params.repeat_last_n {
                self.recent.pop_front();
            }
        }
    }

    /// Samples the next token from its logits {vocab}, which are not changed.
    ///
    /// # Errors
    /// [`Error::Argument`] if no logit is a number above minus infinity, [`Error::TokenOutOfRange`] if a token with a
    /// bias or a penalty has no logit.
    pub fn sample(&mut self, logits: &[f32]) -> Result<u32> {
        if !self.params.adjusts() {
            return self.choose(logits);
        }
        let mut adjusted = std::mem::take(&mut self.adjusted);
        adjusted.clear();
        adjusted.extend_from_slice(logits);
        let chosen = self.adjust(&mut adjusted).and_then(|()| self.choose(&adjusted));
        self.adjusted = adjusted;
        chosen
    }

    /// Applies bias and penalties.
    fn adjust(&mut self, logits: &mut [f32]) -> Result<()> {
        for adjustment in self.params.adjustments(self.recent.iter().map(|token| (*token, 1))) {
            let (token, vocab) = (adjustment.token, logits.len());
            let logit = logits.get_mut(token as usize).ok_or(Error::TokenOutOfRange { token, vocab })?;
            *logit = self.params.adjusted(*logit, adjustment);
        }
        Ok(())
    }

    fn choose(&mut self, logits: &[f32]) -> Result<u32> {
        if self.params.temperature == 0.0 {
            return greedy(logits);
        }
        self.filter(logits)?;
        Ok(self.draw())
    }

    /// Collects in `candidates` the tokens that the filters keep. They are sorted, unless no filter is on.
    fn filter(&mut self, logits: &[f32]) -> Result<()> {
        let SamplerParams { top_k, top_p, min_p, .. } = self.params;
        let tokens = &mut self.candidates;
        tokens.clear();
        tokens.extend(
            logits
                .iter()
                .zip(0..)
                .filter(|(logit, _)| **logit > f32::NEG_INFINITY)
                .map(|(&logit, token)| Candidate { logit, token }),
        );
        let max = tokens.iter().map(|token| token.logit).fold(f32::NEG_INFINITY, f32::max);
        if tokens.is_empty() {
            return Err(nothing_to_choose(logits));
        }
        if top_k > 0 {
            sort_first(tokens, top_k);
            tokens.truncate(top_k);
        }
        if top_p < 1.0 {
            let mass: f64 = tokens.iter().map(|token| token.weight(max)).sum();
            keep_mass(tokens, max, f64::from(top_p) * mass);
        }
        if min_p > 0.0 {
            tokens.retain(|token| token.weight(max) >= f64::from(min_p));
        }
        Ok(())
    }

    /// Draws one of the candidates, weighted by their probabilities at the temperature.
    fn draw(&mut self) -> u32 {
        let max = self.candidates.iter().map(|token| token.logit).fold(f32::NEG_INFINITY, f32::max);
        let temperature = f64::from(self.params.temperature);
        let weight = |token: &Candidate| {
            if token.logit == max { 1.0 } else { (f64::from(token.logit - max) / temperature).exp() }
        };
        let mass: f64 = self.candidates.iter().map(weight).sum();
        // 53 random bits: every multiple of 2^-53 below 1.
        let mut left = (self.random.next_u64() >> 11) as f64 * (-53f64).exp2() * mass;
        let mut chosen = 0;
        for token in &self.candidates {
            let weight = weight(token);
            if weight > 0.0 {
                chosen = token.token;
                left -= weight;
            }
            if left < 0.0 {
                break;
            }
        }
        chosen
    }
}

/// The most likely token; among equals the one with the lowest id.
fn greedy(logits: &[f32]) -> Result<u32> {
    let candidates = logits.iter().zip(0..).map(|(&logit, token)| Candidate { logit, token });
    let best = candidates
        .filter(|token| token.logit > f32::NEG_INFINITY)
        .reduce(|best, token| if token.logit > best.logit { token } else { best });
    best.map(|best| best.token).ok_or_else(|| nothing_to_choose(logits))
}

/// Moves the `count` most likely tokens to the front, sorted.
fn sort_first(tokens: &mut [Candidate], count: usize) {
    if (1..tokens.len()).contains(&count) {
        tokens.select_nth_unstable_by(count - 1, Candidate::order);
    }
    let count = count.min(tokens.len());
    tokens[..count].sort_unstable_by(Candidate::order);
}

/// Keeps the fewest of the most likely tokens whose weights add up to `enough`, at least one.
fn keep_mass(tokens: &mut Vec<Candidate>, max: f32, enough: f64) {
    let (mut mass, mut kept, mut look) = (0.0, 0, FIRST_LOOK);
    while kept < tokens.len() {
        sort_first(&mut tokens[kept..], look);
        for token in &tokens[kept..tokens.len().min(kept + look)] {
            mass += token.weight(max);
            kept += 1;
            if mass >= enough {
                tokens.truncate(kept);
                return;
            }
        }
        look *= 8;
    }
}

fn nothing_to_choose(logits: &[f32]) -> Error {
    Error::argument(
        "logits",
        "at least one number above minus infinity",
        format!("{} logits, of which {} NaN", logits.len(), logits.iter().filter(|logit| logit.is_nan()).count()),
    )
}
