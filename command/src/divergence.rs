//! The difference between predictions with two types of cache: the Kullback-Leibler divergence of the next token's
//! probabilities, as llama.cpp measures it between models.

use serde::Serialize;

/// Compares predictions with those of a base, token by token.
#[derive(Default)]
pub struct DivergenceSum {
    /// The divergence of each token, in nats.
    values: Vec<f64>,
    same_top: usize,
}

/// The result, with the field names of JSON and CSV.
#[derive(Serialize)]
pub struct Divergence {
    /// The type of cache that is compared with, and the perplexity with it.
    pub base_cache_type: &'static str,
    pub base_ppl: f64,
    /// The mean divergence from the base in nats and its standard error, the median, and the largest one.
    pub kl_mean: f64,
    pub kl_error: f64,
    pub kl_median: f64,
    pub kl_max: f64,
    /// The fraction of tokens for which the same prediction is the most likely.
    pub same_top: f64,
}

impl DivergenceSum {
    pub fn add(&mut self, base: &[f32], logits: &[f32]) {
        let (bases, others) = (log_probabilities(base), log_probabilities(logits));
        let pairs = || bases.iter().zip(&others);
        self.values.push(pairs().map(|(base, other)| base.exp() * (base - other)).sum());
        self.same_top += usize::from(top(base) == top(logits));
    }

    pub fn result(mut self, base_cache_type: &'static str, base_ppl: f64) -> Divergence {
        let count = self.values.len().max(1) as f64;
        let kl_mean = self.values.iter().sum::<f64>() / count;
        let squares = self.values.iter().map(|value| (value - kl_mean).powi(2)).sum::<f64>();
        self.values.sort_by(f64::total_cmp);
        Divergence {
            base_cache_type,
            base_ppl,
            kl_mean,
            kl_error: (squares / count / (count - 1.0).max(1.0)).sqrt(),
            kl_median: self.values.get(self.values.len() / 2).copied().unwrap_or_default(),
            kl_max: self.values.last().copied().unwrap_or_default(),
            same_top: self.same_top as f64 / count,
        }
    }
}

impl Divergence {
    /// A sentence with all statistics.
    pub fn sentence(&self) -> String {
        let Self { base_cache_type, base_ppl, kl_mean, kl_error, kl_median, kl_max, same_top } = self;
        format!(
            "Against a cache in {base_cache_type}, PPL = {base_ppl:.4}: KL divergence {kl_mean:.2e} +/- {kl_error:.1e}, median \
             {kl_median:.2e}, at most {kl_max:.2e}; {:.2} % have the same most likely token",
            100.0 * same_top
        )
    }
}

/// The logarithms of the probabilities given by logits.
fn log_probabilities(logits: &[f32]) -> Vec<f64> {
    let top = logits.iter().copied().fold(f32::MIN, f32::max);
    let sum = logits.iter().map(|logit| f64::from(logit - top).exp()).sum::<f64>().ln();
    logits.iter().map(|logit| f64::from(logit - top) - sum).collect()
}

/// The index of the largest logit.
fn top(logits: &[f32]) -> Option<usize> {
    logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map(|(place, _)| place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_divergence_is_that_of_the_probabilities() {
        let mut sum = DivergenceSum::default();
        sum.add(&[1.0, 2.0, 3.0], &[5.0, 6.0, 7.0]); // the same probabilities
        let two = |p: f32| [p.ln(), (1.0 - p).ln()];
        sum.add(&two(0.75), &two(0.25));
        let result = sum.result("base", 1.0);
        let want = 0.75 * (0.75f64 / 0.25).ln() + 0.25 * (0.25f64 / 0.75).ln();
        assert!((result.kl_max - want).abs() < 1e-6 && (result.kl_mean - want / 2.0).abs() < 1e-6, "{want}");
        assert!((result.same_top - 0.5).abs() < 1e-9);
    }
}
