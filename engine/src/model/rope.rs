//! How positions become the angles of rotary values, and what stretching them to a longer context changes of attention:
//! read from the file's metadata, and computed in f64 on the host.
//!
//! YaRN (Peng et al., "YaRN", 2023) stretches slow pairs and leaves fast ones alone. The details are llama.cpp's for
//! this architecture, so that files mean the same in both: the magnitude of rotated values (`llama-context.cpp`,
//! `yarn_attn_factor`), the frequencies (ggml's `rope_yarn`), the factor of scores (`models/deepseek2.cpp`), and the
//! defaults of missing keys. There is one difference: `yarn_beta_fast` and `yarn_beta_slow` are used here. llama.cpp
//! reads them only for other architectures, and uses 32 and 1 for this one, which published files contain.

use super::config::{Keys, metadata, unsupported};
use crate::error::Result;

/// How positions become angles: pair i of the rotary values {rotary} is rotated by position · f_i radians, where f_i is
/// base^(−2i / rotary) (Su et al., "RoFormer", 2021), slowed down by `factor`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RopeScaling {
    /// The rotary base.
    pub base: f64,
    /// The factor by which the context is stretched: positions are divided by it, with YaRN only those of slow pairs.
    pub factor: f64,
    /// YaRN; `None` for plain rotary angles and for linear scaling, which divides all positions.
    pub yarn: Option<Yarn>,
    /// The factor of rotated queries and keys (`rope.scaling.attn_factor`); usually 1.
    pub attention_factor: f64,
}

/// The parameters of YaRN.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Yarn {
    /// The context in tokens before it was stretched.
    pub original_context: usize,
    /// Pairs that turn more often than this within the original context keep their frequency.
    pub beta_fast: f64,
    /// Pairs that turn less often than this within the original context are slowed down by the whole factor.
    pub beta_slow: f64,
    /// The multiplier of the factor's logarithm in the scale of scores: 0.1 · `mscale_all_dim` of the model's
    /// configuration. Without it (0) rotated values are scaled instead.
    pub log_multiplier: f64,
}

impl RopeScaling {
    /// Reads the keys `rope.*`. Adds sentences about those that have no effect.
    pub(super) fn read(keys: &Keys<'_>, notices: &mut Vec<String>) -> Result<Self> {
        let base = keys.number("rope.freq_base", 10_000.0)?;
        let base = keys.positive("rope.freq_base", base)?;
        let attention_factor = keys.number("rope.scaling.attn_factor", 1.0)?;
        let attention_factor = keys.positive("rope.scaling.attn_factor", attention_factor)?;
        let kind = keys.file.opt_string(&keys.key("rope.scaling.type"))?;
        let plain = Self { base, factor: 1.0, yarn: None, attention_factor };
        match kind {
            Some("none" | "") => Ok(plain),
            // As in llama.cpp, a factor without a type is that of linear scaling.
            None | Some("linear") => Ok(Self { factor: factor(keys)?, ..plain }),
            Some("yarn") => Ok(Self { factor: factor(keys)?, yarn: Some(Yarn::read(keys, base, notices)?), ..plain }),
            Some(other) => Err(unsupported(&keys.key("rope.scaling.type"), other, "use `none`, `linear` or `yarn`")),
        }
    }

    /// The frequency of each rotary pair {rotary / 2}, in radians per position.
    pub fn frequencies(&self, rotary: usize) -> Vec<f64> {
        let frequency = |pair: usize| {
            let kept = self.yarn.map_or(0.0, |yarn| yarn.kept(pair, rotary, self.base));
            self.base.powf(-((2 * pair) as f64) / rotary as f64) * (kept + (1.0 - kept) / self.factor)
        };
        (0..rotary / 2).map(frequency).collect()
    }

    /// The factor of rotated values.
    pub fn magnitude(&self) -> f64 {
        let stretched = match self.yarn {
            Some(yarn) if yarn.log_multiplier == 0.0 && self.factor > 1.0 => 1.0 + 0.1 * self.factor.ln(),
            _ => 1.0,
        };
        stretched * self.attention_factor
    }

    /// The factor of attention scores besides 1 / √(key width).
    ///
    /// With linear scaling these are the model's own scores. llama.cpp multiplies them by (1 + 0.1 · ln factor)² there,
    /// a correction of YaRN that it leaves on.
    pub fn score_factor(&self) -> f64 {
        let multiplier = self.yarn.map_or(0.0, |yarn| yarn.log_multiplier);
        (self.magnitude() * (1.0 + multiplier * self.factor.ln())).powi(2)
    }
}

/// The factor, which files from before `rope.scaling.*` have under another name. As in llama.cpp, it is 1 if it is
/// absent or 0.
fn factor(keys: &Keys<'_>) -> Result<f64> {
    let [name, early] = ["rope.scaling.factor", "rope.scale_linear"];
    let present = |name| keys.file.get(&keys.key(name)).is_some();
    let name = if present(early) && !present(name) { early } else { name };
    match keys.number(name, 0.0)? {
        0.0 => Ok(1.0),
        factor => keys.positive(name, factor),
    }
}

impl Yarn {
    fn read(keys: &Keys<'_>, base: f64, notices: &mut Vec<String>) -> Result<Self> {
        if base <= 1.0 {
            return Err(metadata(&keys.key("rope.freq_base"), "more than 1, for YaRN", &base.to_string()));
        }
        // The extent of the stretching; less than 0 means unset. Like `yarn_attn_factor`, which llama.cpp replaces with
        // a value that it computes from the factor, it has no effect: llama.cpp reads it for another architecture only.
        let name = "rope.scaling.yarn_ext_factor";
        let extent = keys.number(name, 1.0)?;
        if extent != 1.0 && extent >= 0.0 {
            notices.push(format!("`{}` is {extent}, and is ignored as in llama.cpp: using 1", keys.key(name)));
        }
        let positive = |name: &str, usual| keys.positive(name, keys.number(name, usual)?);
        let multiplier = "rope.scaling.yarn_log_multiplier";
        let log_multiplier = keys.number(multiplier, 0.0)?;
        if log_multiplier < 0.0 {
            return Err(metadata(&keys.key(multiplier), "0 or more", &log_multiplier.to_string()));
        }
        let original_context = match keys.optional("rope.scaling.original_context_length")? {
            0 => keys.count("context_length")?,
            tokens => tokens,
        };
        Ok(Self {
            original_context,
            beta_fast: positive("rope.scaling.yarn_beta_fast", 32.0)?,
            beta_slow: positive("rope.scaling.yarn_beta_slow", 1.0)?,
            log_multiplier,
        })
    }

    /// The part of its own frequency that a pair keeps, 0 to 1. The ends of the ramp are whole pairs; they are computed
    /// in f32, as ggml does, so that rounding never chooses another pair.
    fn kept(&self, pair: usize, rotary: usize, base: f64) -> f64 {
        let turns = |beta: f64| {
            let ratio = self.original_context as f32 / (beta as f32 * 2.0 * std::f32::consts::PI);
            rotary as f32 * ratio.ln() / (2.0 * (base as f32).ln())
        };
        let low = turns(self.beta_fast).floor().max(0.0);
        let high = turns(self.beta_slow).ceil().min(rotary as f32 - 1.0);
        let ramp = (pair as f32 - low) / (high - low).max(0.001);
        1.0 - f64::from(ramp.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const YARN: Yarn = Yarn { original_context: 4096, beta_fast: 32.0, beta_slow: 1.0, log_multiplier: 0.0707 };
    const LITE: RopeScaling = RopeScaling { base: 1e4, factor: 40.0, yarn: Some(YARN), attention_factor: 1.0 };

    /// The shape of DeepSeek-V2-Lite: pairs 0 to 10 keep their frequency, those from 23 on are slowed down forty times.
    #[test]
    fn fast_pairs_are_kept_and_slow_ones_stretched() {
        let plain = RopeScaling { factor: 1.0, yarn: None, ..LITE }.frequencies(64);
        let stretched = LITE.frequencies(64);
        for pair in 0..32 {
            let slower = plain[pair] / stretched[pair];
            let expected = match pair {
                0..=10 => 1.0,
                23.. => 40.0,
                _ => 1.0 / (1.0 - (pair - 10) as f64 / 13.0 * (1.0 - 1.0 / 40.0)),
            };
            assert!((slower / expected - 1.0).abs() < 1e-6, "{pair}: {slower} for {expected}");
        }
    }

    #[test]
    fn scores_or_rotated_values_are_scaled() {
        assert_eq!(LITE.magnitude(), 1.0);
        assert!((LITE.score_factor() - (1.0 + 0.0707 * 40f64.ln()).powi(2)).abs() < 1e-12);
        let without = RopeScaling { yarn: Some(Yarn { log_multiplier: 0.0, ..YARN }), ..LITE };
        let magnitude = 1.0 + 0.1 * 40f64.ln();
        assert!((without.magnitude() - magnitude).abs() < 1e-12);
        assert!((without.score_factor() - magnitude.powi(2)).abs() < 1e-12);
        let halved = RopeScaling { attention_factor: 0.5, ..LITE };
        assert_eq!((halved.magnitude(), halved.score_factor()), (0.5, LITE.score_factor() / 4.0));
        let linear = RopeScaling { yarn: None, ..LITE };
        assert_eq!((linear.magnitude(), linear.score_factor()), (1.0, 1.0));
        assert_eq!(linear.frequencies(4), [1.0 / 40.0, 1e4f64.powf(-0.5) / 40.0]);
    }

    /// If all pairs are faster or all are slower than the ramp, it has no width, and nothing is divided by zero.
    #[test]
    fn ramps_without_width() {
        for (original_context, beta) in [(1, 1.0), (usize::from(u16::MAX), 1.0), (4096, 1e30), (4096, 1e-30)] {
            let yarn = Yarn { original_context, beta_fast: beta, beta_slow: beta, ..YARN };
            let frequencies = RopeScaling { yarn: Some(yarn), ..LITE }.frequencies(8);
            assert!(frequencies.iter().all(|f| f.is_finite() && *f > 0.0), "{beta}: {frequencies:?}");
        }
    }
}
