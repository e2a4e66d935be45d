//! What a sampler can be told.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::hash::{BuildHasher, Hasher, RandomState};

/// How the next token is chosen, from its logits z {vocab}.
///
/// The chain is that of llama.cpp's samplers, in this order: bias, penalties, `top_k`, `top_p`, `min_p`, temperature,
/// one draw. Probabilities are softmax(z) over what the filters before left.
///
/// Serde keeps it, in settings say; what is missing where it was kept is as by default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SamplerParams {
    /// Flattens (above 1) or sharpens (below 1) the distribution, softmax(z / temperature) of what the filters leave; 0
    /// always takes the likeliest token. 0 or a finite number above.
    pub temperature: f32,
    /// Keep only this many of the likeliest tokens (Fan et al., "Hierarchical Neural Story Generation", 2018); 0 keeps
    /// all.
    pub top_k: usize,
    /// Keep the fewest of the likeliest tokens that together reach this probability (Holtzman et al., "The Curious Case
    /// of Neural Text Degeneration", 2019); 1 keeps all. From 0 to 1.
    pub top_p: f32,
    /// Keep tokens whose probability is at least this share of the likeliest one's, p ≥ min_p · max p (Nguyen et al.,
    /// "Turning Up the Heat: Min-p Sampling for Creative and Coherent LLM Outputs", 2024); 0 keeps all. From 0 to 1.
    pub min_p: f32,
    /// What determines the draws; `None` takes a different one every time.
    pub seed: Option<u64>,
    /// Divides the logits above zero of tokens among the last [`repeat_last_n`](Self::repeat_last_n), and multiplies
    /// the others of them (Keskar et al., "CTRL", 2019, with llama.cpp's care for negative logits); 1 leaves them as
    /// they are. A finite number above 0.
    pub repeat_penalty: f32,
    /// How many of the last tokens, those of the prompt too, the three penalties look at; 0 for none, `usize::MAX`
    /// for all.
    pub repeat_last_n: usize,
    /// Taken off the logits of tokens among the last ones, as OpenAI's interface and llama.cpp have it; below zero it
    /// favours them.
    pub presence_penalty: f32,
    /// Taken off a logit for each time that its token stands among the last ones, as there.
    pub frequency_penalty: f32,
    /// Added to the logits of tokens, before the penalties; minus infinity bans a token. What a token is given twice
    /// adds up.
    #[serde(with = "super::kept")]
    pub logit_bias: Vec<(u32, f32)>,
}

impl Default for SamplerParams {
    /// What Z.ai recommends for GLM-4.7-Flash: temperature 1, `top_p` 0.95, nothing else.
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: 0,
            top_p: 0.95,
            min_p: 0.0,
            seed: None,
            repeat_penalty: 1.0,
            repeat_last_n: 64,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
        }
    }
}

impl SamplerParams {
    /// Always the likeliest token.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }

    /// Names the first parameter that is out of range.
    pub(crate) fn check(&self) -> Result<()> {
        let Self { temperature, top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty, .. } = *self;
        let share = |value: f32| (0.0..=1.0).contains(&value);
        let worst = self.logit_bias.iter().map(|(_, bias)| *bias).find(|bias| bias.is_nan() || *bias == f32::INFINITY);
        for (argument, expected, value, fine) in [
            ("temperature", "0 or a positive number", temperature, temperature >= 0.0 && temperature.is_finite()),
            ("top_p", "a number from 0 to 1", top_p, share(top_p)),
            ("min_p", "a number from 0 to 1", min_p, share(min_p)),
            (
                "repeat_penalty",
                "a finite number above 0",
                repeat_penalty,
                repeat_penalty > 0.0 && repeat_penalty.is_finite(),
            ),
            ("presence_penalty", "a finite number", presence_penalty, presence_penalty.is_finite()),
            ("frequency_penalty", "a finite number", frequency_penalty, frequency_penalty.is_finite()),
            ("logit_bias", "a finite number or minus infinity", worst.unwrap_or(0.0), worst.is_none()),
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
