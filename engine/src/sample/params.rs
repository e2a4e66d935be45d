//! The parameters of a sampler.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::hash::{BuildHasher, Hasher, RandomState};

/// How the next token is sampled from its logits z {vocab}.
///
/// The steps are those of llama.cpp's samplers, in this order: bias, penalties, `top_k`, `top_p`, `min_p`, temperature,
/// one draw. Probabilities are softmax(z) over the tokens that the earlier filters kept.
///
/// With serde an app can save them; missing fields have their defaults. A number that is out of range can be saved and
/// read like any other, and is refused when it is used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SamplerParams {
    /// Flattens (above 1) or sharpens (below 1) the distribution, which is softmax(z / temperature) over the tokens
    /// that the filters kept. At 0 the most likely token is always taken. A finite number, at least 0.
    #[serde(with = "super::saved::number")]
    pub temperature: f32,
    /// Keep only this many of the most likely tokens (Fan et al., "Hierarchical Neural Story Generation", 2018); 0
    /// keeps all.
    pub top_k: usize,
    /// Keep the fewest of the most likely tokens that together reach this probability (Holtzman et al., "The Curious
    /// Case of Neural Text Degeneration", 2019); 1 keeps all. From 0 to 1.
    #[serde(with = "super::saved::number")]
    pub top_p: f32,
    /// Keep tokens whose probability is at least this share of the most likely one's, p ≥ min_p · max p (Nguyen et al.,
    /// "Turning Up the Heat: Min-p Sampling for Creative and Coherent LLM Outputs", 2024); 0 keeps all. From 0 to 1.
    #[serde(with = "super::saved::number")]
    pub min_p: f32,
    /// The seed of the draws; `None` picks a random one every time, below 2^53, so that programs which read JSON's
    /// numbers as doubles can repeat it.
    pub seed: Option<u64>,
    /// Divides the positive logits of tokens that occur among the last [`repeat_last_n`](Self::repeat_last_n), and
    /// multiplies their other logits (Keskar et al., "CTRL", 2019, with llama.cpp's treatment of negative logits); 1
    /// changes nothing. A finite number above 0.
    #[serde(with = "super::saved::number")]
    pub repeat_penalty: f32,
    /// How many of the last tokens, those of the prompt included, the three penalties take into account; 0 for none,
    /// `usize::MAX` for all.
    pub repeat_last_n: usize,
    /// Subtracted from the logits of tokens that occur among the last ones, as in OpenAI's API and llama.cpp; a
    /// negative value favours them.
    #[serde(with = "super::saved::number")]
    pub presence_penalty: f32,
    /// Subtracted from a token's logit once for each of its occurrences among the last ones, as in OpenAI's API and
    /// llama.cpp.
    #[serde(with = "super::saved::number")]
    pub frequency_penalty: f32,
    /// Added to the logits of tokens before the penalties; minus infinity bans a token. Several biases of one token add
    /// up.
    #[serde(with = "super::saved::biases")]
    pub logit_bias: Vec<(u32, f32)>,
}

impl Default for SamplerParams {
    /// The parameters that Z.ai recommends for GLM-4.7-Flash: temperature 1, `top_p` 0.95, nothing else.
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
    /// Parameters that always take the most likely token.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }

    /// Returns an error for the first parameter that is out of range.
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
                return Err(Error::argument(argument, expected, value.to_string()));
            }
        }
        Ok(())
    }

    /// The seed, or a random one below 2^53 if there is none: programs that read JSON's numbers as doubles can
    /// represent it.
    pub(crate) fn seed(&self) -> u64 {
        // The standard library's hash keys are random: no other source of randomness is needed.
        self.seed.unwrap_or_else(|| RandomState::new().build_hasher().finish() >> (u64::BITS - f64::MANTISSA_DIGITS))
    }
}
