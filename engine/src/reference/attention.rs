//! The references of attention over the KV cache and of the merge of its splits.

use super::{VALUES, VECTORS, sample, start};
use crate::error::Result;
use crate::kernels::computes::{Attended, Attention, Merge, Merged};
use crate::kernels::errors::ATTENDED;
use crate::kernels::kv_blocks::BlockRow;
use crate::kernels::mla_attention::SPAN;
use crate::kernels::{Cache, CacheType};
use crate::plan::{OutputPlace, PAGE, Probe, Reference, Sample};
use half::f16;
use std::ops::Range;

/// The number of tokens of a split of a cache with `tokens` tokens: `split_length` of `lib/splits.wgsl`.
fn split_length(splits: usize, tokens: usize) -> usize {
    SPAN * tokens.div_ceil(SPAN).div_ceil(splits)
}

impl Merged {
    /// The attention of a token's head, and for each value the sum of the magnitudes that were added.
    pub(super) fn vector(&self, probe: &mut Probe<'_>, token: usize, head: usize) -> Result<Vec<(f64, f64)>> {
        let length = split_length(self.splits, probe.position + probe.count);
        let busy = (probe.position + token + 1).div_ceil(length).min(self.splits);
        let first = (token * self.heads + head) * self.splits;
        let stats: Vec<f64> = probe.values(self.stats, 2 * first, 2 * busy)?.into_iter().map(f64::from).collect();
        let largest = stats.chunks_exact(2).fold(f64::MIN, |most, split| most.max(split[0]));
        let total: f64 = stats.chunks_exact(2).map(|split| (split[0] - largest).exp() * split[1]).sum();
        let mut values = vec![(0.0, 0.0); self.rank];
        let sums = probe.values(self.sums, first * self.rank, busy * self.rank)?;
        for (split, sums) in stats.chunks_exact(2).zip(sums.chunks_exact(self.rank)) {
            let share = (split[0] - largest).exp() / total;
            for ((value, size), sum) in values.iter_mut().zip(sums) {
                *value += share * f64::from(*sum);
                *size += share * f64::from(sum.abs());
            }
        }
        Ok(values)
    }
}

impl Reference for Merge {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        let mut samples = Vec::new();
        for vector in probe.some(probe.count * self.y.per_row(), VECTORS) {
            let (token, head) = (vector / self.y.per_row(), vector % self.y.per_row());
            let merged = self.parts.vector(probe, token, head)?;
            for value in probe.some(self.y.shape[0], VALUES) {
                let output = OutputPlace::F32(self.y.buffer, start(&self.y, token, head) + value);
                samples.push(sample(output, merged[value].0, merged[value].1, ATTENDED));
            }
        }
        Ok(samples)
    }
}

/// The scores of a query.
pub(super) struct Scores {
    pub values: Vec<f64>,
    /// The largest root of the sum of squares of a score's terms. It is multiplied with the relative rounding errors of
    /// the terms, which rarely have the same sign.
    pub spread: f64,
}

impl Reference for Attention {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        let heads = self.q.per_row();
        let mut samples = Vec::new();
        for vector in probe.some(probe.count * heads, VECTORS) {
            let (token, head) = (vector / heads, vector % heads);
            let seen = 0..probe.position + token + 1;
            match &self.y {
                Attended::Whole(y) => {
                    let kv_rows = kv_rows(probe, &self.cache, seen)?;
                    let scores = self.scores(probe, token, head, &kv_rows)?;
                    for c in probe.some(self.cache.rank, VALUES) {
                        let (want, size) = mean(&scores.values, &kv_rows, c);
                        let output = OutputPlace::F32(y.buffer, start(y, token, head) + c);
                        samples.push(sample(output, want, size * (1.0 + scores.spread), self.bound));
                    }
                }
                Attended::Splits(parts) => {
                    let length = split_length(parts.splits, probe.position + probe.count);
                    let split = probe.pick(seen.end.div_ceil(length));
                    let kv_rows = kv_rows(probe, &self.cache, split * length..seen.end.min((split + 1) * length))?;
                    let scores = self.scores(probe, token, head, &kv_rows)?;
                    let slot = vector * parts.splits + split;
                    samples.extend(self.of_split(probe, parts, slot, &scores, &kv_rows));
                }
            }
        }
        Ok(samples)
    }
}

impl Attention {
    /// The results of a split, independent of the score that its weights are relative to: their mean, and the logarithm
    /// of their sum.
    fn of_split(
        &self,
        probe: &mut Probe<'_>,
        parts: &Merged,
        slot: usize,
        scores: &Scores,
        kv_rows: &[Vec<f64>],
    ) -> Vec<Sample> {
        let top = scores.values.iter().copied().fold(f64::MIN, f64::max);
        let log = top + (self.unit * scores.values.iter().map(|score| (score - top).exp()).sum::<f64>()).ln();
        let sum = OutputPlace::LogSum(parts.stats, 2 * slot);
        let mut samples = vec![sample(sum, log, 1.0 + scores.spread + log.abs() * 1e-2, self.bound)];
        for c in probe.some(parts.rank, VALUES) {
            let (want, size) = mean(&scores.values, kv_rows, c);
            let output = OutputPlace::Mean([parts.sums, parts.stats], [slot * parts.rank + c, 2 * slot + 1]);
            samples.push(sample(output, want, size * (1.0 + scores.spread), self.bound));
        }
        samples
    }

    fn scores(&self, probe: &mut Probe<'_>, token: usize, head: usize, kv_rows: &[Vec<f64>]) -> Result<Scores> {
        let q = probe.values(self.q.buffer, start(&self.q, token, head), self.cache.rank + self.cache.rotary)?;
        let q: Vec<f64> = q.into_iter().map(f64::from).collect();
        Ok(scores(&q, kv_rows, self.scale))
    }
}

/// KV rows of the cache, without padding.
pub(super) fn kv_rows(probe: &mut Probe<'_>, cache: &Cache, tokens: Range<usize>) -> Result<Vec<Vec<f64>>> {
    let Cache { buffer, ty, rank, rotary } = *cache;
    let words = ty.row_bytes(rank, rotary) / 4;
    let mut all = Vec::with_capacity(tokens.len() * words);
    let mut next = tokens.start;
    while next < tokens.end {
        let of_page = tokens.end.min((next / PAGE + 1) * PAGE) - next;
        let place = probe.kv_index(next)?;
        all.extend(probe.words(buffer, place * words, of_page * words)?);
        next += of_page;
    }
    let halves = |word: &u32| [*word as u16, (word >> 16) as u16].map(|bits| f16::from_bits(bits).to_f64());
    let values = |words: &[u32]| match ty {
        CacheType::F16 => words.iter().flat_map(halves).take(rank + rotary).collect(),
        CacheType::F32 => words.iter().map(|&w| f64::from(f32::from_bits(w))).take(rank + rotary).collect(),
        CacheType::Q8_0 => BlockRow { rank, rotary }.unpacked(bytemuck::cast_slice(words)),
    };
    Ok(all.chunks_exact(words).map(values).collect())
}

/// The scores of a query against KV rows.
pub(super) fn scores(q: &[f64], kv_rows: &[Vec<f64>], scale: f32) -> Scores {
    let mut scores = Scores { values: Vec::new(), spread: 0.0 };
    for kv_row in kv_rows {
        let terms = q.iter().zip(kv_row).map(|(q, k)| f64::from(scale) * q * k);
        let (sum, squares) = terms.fold((0.0, 0.0), |(sum, squares), term| (sum + term, squares + term * term));
        scores.values.push(sum);
        scores.spread = scores.spread.max(squares.sqrt());
    }
    scores
}

/// The mean of value `c` of KV rows, weighted by scores, and that of its magnitudes.
pub(super) fn mean(scores: &[f64], kv_rows: &[Vec<f64>], c: usize) -> (f64, f64) {
    let top = scores.iter().copied().fold(f64::MIN, f64::max);
    let total: f64 = scores.iter().map(|score| (score - top).exp()).sum();
    let terms = scores.iter().zip(kv_rows).map(|(score, kv_row)| (score - top).exp() / total * kv_row[c]);
    terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()))
}
