//! What a sampler can be told.

use crate::error::{Error, Result};
use std::hash::{BuildHasher, Hasher, RandomState};

/// How the next token is chosen.
#[derive(Debug, Clone, PartialEq)]
pub struct SamplerParams {
    /// Flattens (above 1) or sharpens (below 1) the distribution; 0 always takes the likeliest token.
    pub temperature: f32,
    /// Keep only this many of the likeliest tokens; 0 keeps all.
    pub top_k: usize,
    /// Keep the likeliest tokens that together reach this probability; 1 keeps all.
    pub top_p: f32,
    /// Keep tokens at least this probable relative to the likeliest; 0 keeps all.
    pub min_p: f32,
    /// What determines the draws; `None` takes a different one every time.
    pub seed: Option<u64>,
}

impl Default for SamplerParams {
    /// What Z.ai recommends for GLM-4.7-Flash: temperature 1, `top_p` 0.95, nothing else.
    fn default() -> Self {
        Self { temperature: 1.0, top_k: 0, top_p: 0.95, min_p: 0.0, seed: None }
    }
}

impl SamplerParams {
    /// Always the likeliest token.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }

    /// Names the first parameter that is out of range.
    pub(crate) fn check(&self) -> Result<()> {
        let Self { temperature, top_p, min_p, .. } = *self;
        let share = |value: f32| (0.0..=1.0).contains(&value);
        for (argument, expected, value, fine) in [
            ("temperature", "0 or a finite number above", temperature, temperature >= 0.0 && temperature.is_finite()),
            ("top_p", "a number from 0 to 1", top_p, share(top_p)),
            ("min_p", "a number from 0 to 1", min_p, share(min_p)),
        ] {
            if !fine {
                return Err(Error::Argument { argument, expected: expected.into(), found: value.to_string() });
            }
        }
        Ok(())
    }

    /// The seed, or one that is different every time.
    pub(crate) fn seed(&self) -> u64 {
        // The standard library's hash keys are random: no other source of randomness is needed.
        self.seed.unwrap_or_else(|| RandomState::new().build_hasher().finish())
    }
}
