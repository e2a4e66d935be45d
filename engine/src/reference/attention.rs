//! The references of attention over the KV cache and of the merge of its splits.

use super::{MEANS, VALUES, VECTORS, sample, start};
use crate::error::Result;
use crate::kernels::computes::{Attended, Attention, Merge, Merged};
use crate::kernels::errors::ATTENDED;
use crate::kernels::kv_blocks::BlockRow;
use crate::kernels::mla_attention::SPAN;
use crate::kernels::{Cache, CacheType};
use crate::plan::{OutputPlace, PAGE, Probe, Reference, Sample};
use half::f16;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;

/// The number of tokens of a split of a cache with `tokens` tokens: `split_length` of `lib/splits.wgsl`.
fn split_length(splits: usize, tokens: usize) -> usize {
    SPAN * tokens.div_ceil(SPAN).div_ceil(splits)
}

impl Merged {
    /// The attention of a token's head, and for each value the sum of the magnitudes that were added.
    pub(super) fn vector(&self, probe: &mut Probe<'_>, token: usize, head: usize) -> Result<Vec<(f64, f64)>> {
        let row = probe.row_header(token)?;
        let length = split_length(self.splits, row.longest as usize);
        let busy = (row.position as usize + 1).div_ceil(length).min(self.splits);
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
                samples.push(sample(probe, output, merged[value].0, merged[value].1, ATTENDED));
            }
        }
        Ok(samples)
    }
}

/// How much a query attends to each KV row.
pub(super) struct Weights {
    /// The softmax of the scores.
    values: Vec<f64>,
    /// The largest score, and the sum of weights relative to it.
    top: f64,
    total: f64,
    /// The largest root of the sum of squares of a score's terms. It is multiplied by the relative rounding errors of
    /// the terms, which rarely have the same sign.
    spread: f64,
}

impl Reference for Attention {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        let (heads, rank) = (self.q.per_row(), self.cache.rank);
        let (mut samples, mut of_sequences) = (Vec::new(), HashMap::new());
        for vector in probe.some(probe.count * heads, VECTORS) {
            let (token, head) = (vector / heads, vector % heads);
            let row = probe.row_header(token)?;
            let kv_rows = match of_sequences.entry(row.first_page) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(unknown) => {
                    unknown.insert(kv_rows(probe, &self.cache, row.first_page as usize, 0..row.longest as usize)?)
                }
            };
            let q = probe.values(self.q.buffer, start(&self.q, token, head), rank + self.cache.rotary)?;
            let q: Vec<f64> = q.into_iter().map(f64::from).collect();
            let (seen, unseen) = kv_rows.split_at(row.position as usize + 1);
            if !are_numbers(unseen) {
                continue;
            }
            match &self.y {
                Attended::Whole(y) => {
                    let weights = Weights::of(&q, seen, self.scale);
                    let means = weights.means(seen, rank);
                    for c in probe.some(rank, MEANS) {
                        let output = OutputPlace::F32(y.buffer, start(y, token, head) + c);
                        samples.push(weights.sample(probe, output, means[c], (1.0, self.bound)));
                    }
                }
                Attended::Splits(parts) => {
                    let length = split_length(parts.splits, kv_rows.len());
                    for split in probe.some(seen.len().div_ceil(length), 1) {
                        let of_split = &seen[split * length..seen.len().min((split + 1) * length)];
                        let weights = Weights::of(&q, of_split, self.scale);
                        samples.extend(self.of_split(probe, parts, vector * parts.splits + split, &weights, of_split));
                    }
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
        weights: &Weights,
        kv_rows: &[Vec<f64>],
    ) -> Vec<Sample> {
        let log = weights.top + (self.unit * weights.total).ln();
        let sum = OutputPlace::LogSum(parts.stats, 2 * slot);
        let size = match probe.picks_all() {
            true => weights.spread.max(1.0),
            false => 1.0 + weights.spread + log.abs() * 1e-2,
        };
        let (mut samples, means) =
            (vec![sample(probe, sum, log, size, self.bound)], weights.means(kv_rows, parts.rank));
        for c in probe.some(parts.rank, MEANS) {
            let output = OutputPlace::Mean([parts.sums, parts.stats], [slot * parts.rank + c, 2 * slot + 1]);
            samples.push(weights.sample(probe, output, means[c], (1.0, self.bound)));
        }
        samples
    }
}

/// Whether KV rows are numbers. Kernels multiply some of those that a query does not see by a weight of zero, which
/// makes the result NaN if they are not.
pub(super) fn are_numbers(kv_rows: &[Vec<f64>]) -> bool {
    kv_rows.iter().flatten().all(|value| value.is_finite())
}

/// KV rows of the cache, without padding, of the sequence whose list of pages begins at `first_page`.
pub(super) fn kv_rows(
    probe: &mut Probe<'_>,
    cache: &Cache,
    first_page: usize,
    tokens: Range<usize>,
) -> Result<Vec<Vec<f64>>> {
    let Cache { buffer, ty, rank, rotary } = *cache;
    let words = ty.row_bytes(rank, rotary) / 4;
    let mut all = Vec::with_capacity(tokens.len() * words);
    let mut next = tokens.start;
    while next < tokens.end {
        let of_page = tokens.end.min((next / PAGE + 1) * PAGE) - next;
        let place = probe.kv_index(first_page, next)?;
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

impl Weights {
    /// The weights of KV rows for a query.
    pub(super) fn of(q: &[f64], kv_rows: &[Vec<f64>], scale: f32) -> Self {
        let (mut values, mut spread) = (Vec::with_capacity(kv_rows.len()), 0f64);
        for kv_row in kv_rows {
            let (mut score, mut squares, mut at, end) = (0.0, 0.0, 0, q.len().min(kv_row.len()));
            while at < end {
                let term = f64::from(scale) * q[at] * kv_row[at];
                (score, squares, at) = (score + term, squares + term * term, at + 1);
            }
            values.push(score);
            spread = spread.max(squares.sqrt());
        }
        let top = values.iter().copied().fold(f64::MIN, f64::max);
        let total: f64 = values.iter().map(|score| (score - top).exp()).sum();
        values.iter_mut().for_each(|score| *score = (*score - top).exp() / total);
        Self { values, top, total, spread }
    }

    /// The means of the first `count` values of KV rows, and those of their magnitudes.
    pub(super) fn means(&self, kv_rows: &[Vec<f64>], count: usize) -> Vec<(f64, f64)> {
        let mut means = vec![(0.0, 0.0); count];
        for (weight, kv_row) in self.values.iter().zip(kv_rows) {
            let (mut at, end) = (0, count.min(kv_row.len()));
            while at < end {
                let term = weight * kv_row[at];
                means[at] = (means[at].0 + term, means[at].1 + term.abs());
                at += 1;
            }
        }
        means
    }

    /// A mean and the size of its terms, as an output. `bound` is that of outputs of about `usual`, as those of cases
    /// are; a model's may be of any size.
    pub(super) fn sample(
        &self,
        probe: &Probe<'_>,
        output: OutputPlace,
        (want, size): (f64, f64),
        (usual, bound): (f64, f64),
    ) -> Sample {
        let size = if probe.picks_all() { usual } else { size * (1.0 + self.spread) };
        sample(probe, output, want, size, bound)
    }
}

#[cfg(test)]
mod tests {
    use super::super::CaseBuilder;
    use super::*;
    use crate::plan::Target;

    /// Cases and the check at load both compare with the reference. So it is compared with a softmax of its own over
    /// the whole cache, for rows whose splits end within pages and between them.
    #[test]
    fn splits_join_to_the_softmax_over_the_whole_cache() -> Result<()> {
        const HEADS: usize = 2;
        const TOKENS: usize = 300;
        const ROWS: usize = 2;
        const SPLITS: usize = 3;
        const RANK: usize = 8;
        const ROTARY: usize = 8;
        const WIDTH: usize = RANK + ROTARY;
        const SCALE: f32 = 0.5;
        let mut case = CaseBuilder::for_tokens(&Target::default(), 1, ROWS);
        let cache = case.cache(CacheType::F32, RANK, ROTARY, TOKENS);
        let [keys, queries] = [TOKENS, HEADS * ROWS].map(|count| case.noise(WIDTH * count));
        let mut pool = vec![0f32; WIDTH * (TOKENS.div_ceil(PAGE) + 1) * PAGE];
        for (t, key) in keys.chunks_exact(WIDTH).enumerate() {
            pool[WIDTH * CaseBuilder::kv_index(t, TOKENS)..][..WIDTH].copy_from_slice(key);
        }
        case.fill_bytes(cache.buffer, bytemuck::cast_slice(&pool).to_vec());
        let q = case.plan.tensor_with_stride("q", [WIDTH, HEADS * ROWS], WIDTH);
        case.fill_first(&q, &queries);
        case.consecutive((TOKENS - ROWS) as u32, ROWS);
        case.plan.mla_attention("attention", &q, &cache, SCALE, SPLITS)?;
        let case = case.finish("attention");
        let outputs = case.outputs(&case.plan.steps[0], &case.locals)?;
        let mut splits = outputs.chunks_exact(1 + RANK);
        for (vector, query) in queries.chunks_exact(WIDTH).enumerate() {
            let seen = TOKENS - ROWS + vector / HEADS + 1;
            let (mut total, mut want) = (0.0, [0.0; RANK]);
            for key in keys.chunks_exact(WIDTH).take(seen) {
                let score: f64 = key.iter().zip(query).map(|(k, q)| f64::from(*k) * f64::from(*q)).sum();
                let weight = (score * f64::from(SCALE)).exp();
                total += weight;
                want.iter_mut().zip(key).for_each(|(want, k)| *want += weight * f64::from(*k));
            }
            let (mut joined, mut got) = (0.0, [0.0; RANK]);
            for split in splits.by_ref().take(SPLITS) {
                let weight = split[0].want.exp();
                joined += weight;
                got.iter_mut().zip(&split[1..]).for_each(|(got, mean)| *got += weight * mean.want);
            }
            assert!((joined - total).abs() < 1e-10 * total, "{vector}: {joined} instead of {total}");
            for (got, want) in got.into_iter().zip(want) {
                assert!((got - want).abs() < 1e-10 * total, "{vector}: {got} instead of {want}");
            }
        }
        assert_eq!(splits.len(), 0);
        Ok(())
    }
}
