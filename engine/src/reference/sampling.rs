//! The choice of the next token, beginning with the adjustment of logits. Tokens are compared exactly. If two are so
//! close that rounding may decide between them, the choice is not checked in a model; in cases it is.

use super::drafting::drafting_of;
use super::{VALUES, VECTORS, exact, sample, within};
use crate::error::Result;
use crate::kernels::computes::{Accepted, Adjusted, Drawn, Histogram, Masked, Maxima};
use crate::kernels::errors::deficit;
use crate::kernels::histogram::{BINS, scale};
use crate::kernels::sampling::pcg4d;
use crate::kernels::slice_max::SLICE;
use crate::kernels::{Adjustment, NO_TOKEN, Penalties, Sampling, mask_words};
use crate::plan::{BufferRef, OutputPlace, Plan, Probe, Reference, RowHeader, Sample};
use std::cmp::Ordering;

/// The bits of minus infinity, the logit of a token that must not be chosen.
const BANNED: u32 = f32::NEG_INFINITY.to_bits();

impl Reference for Adjusted {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        let mut samples = Vec::new();
        for row in probe.some(probe.count, VECTORS) {
            let header = probe.row_header(row)?;
            let start = row * self.logits.stride;
            let logits = probe.values(self.logits.buffer, start, self.logits.shape[0])?;
            let newest = if header.token >= RowHeader::SAMPLED { Some(probe.token(&header)?) } else { None };
            let Some(Sampling { penalties, .. }) = sampling_of(probe, &header)? else { return Ok(vec![]) };
            let each = size_of::<Adjustment>() / 4;
            let [first, count] = [header.first_adjustment, header.adjustments].map(|n| each * n as usize);
            let entries = probe.words(BufferRef::Local(self.adjustments), first, count)?;
            let entries: Vec<Adjustment> = entries.chunks_exact(each).filter_map(of_words).collect();
            let (after, sizes) = adjusted_logits(&logits, &penalties, &entries, newest);
            let listed: Vec<usize> = entries.iter().map(|entry| entry.token as usize).collect();
            let mut places: Vec<usize> = probe.some(listed.len(), VALUES).into_iter().map(|at| listed[at]).collect();
            places.extend(probe.some(after.len(), VALUES));
            for place in places {
                samples.push(match after[place].is_finite() {
                    true => {
                        let output = OutputPlace::F32(self.logits.buffer, start + place);
                        sample(probe, output, after[place], sizes[place], 1e-6)
                    }
                    false => exact(OutputPlace::U32(self.logits.buffer, start + place), f64::from(BANNED)),
                });
            }
        }
        Ok(samples)
    }
}

/// How tokens of a row's sequence are sampled.
fn sampling_of(probe: &mut Probe<'_>, row: &RowHeader) -> Result<Option<Sampling>> {
    let words = size_of::<Sampling>() / 4;
    Ok(of_words(&probe.words(BufferRef::Local(Plan::SAMPLING), row.sequence as usize * words, words)?))
}

/// The logits after bias and penalties, and for each the sum of the magnitudes that were added.
fn adjusted_logits(
    logits: &[f32],
    penalties: &Penalties,
    listed: &[Adjustment],
    newest: Option<u32>,
) -> (Vec<f64>, Vec<f64>) {
    let [repeat, presence, frequency] = [penalties.repeat, penalties.presence, penalties.frequency].map(f64::from);
    let after = |(&logit, token): (&f32, u32)| {
        let entries = listed.iter().filter(|it| it.token == token);
        let (count, bias) = entries.fold((0, 0.0), |sum, it| (sum.0 + it.count, sum.1 + f64::from(it.bias)));
        let count = f64::from(count + u32::from(newest == Some(token)));
        let biased = f64::from(logit) + bias;
        let factor = if count == 0.0 {
            1.0
        } else if biased <= 0.0 {
            repeat
        } else {
            1.0 / repeat
        };
        let once = if count > 0.0 { presence } else { 0.0 };
        let parts = [f64::from(logit) * factor, bias * factor, -count * frequency, -once];
        (parts.iter().sum::<f64>(), parts.iter().map(|part| part.abs()).sum::<f64>())
    };
    logits.iter().zip(0..).map(after).unzip()
}

impl Reference for Masked {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        let count = self.logits.shape[0];
        let mut samples = Vec::new();
        for row in probe.some(probe.count, VECTORS) {
            let start = row * self.logits.stride;
            for token in probe.some(count, VALUES) {
                let word = row * mask_words(count) + token / 32;
                let mask = probe.words(BufferRef::Local(self.mask), word, 1)?;
                let logit = probe.words(self.logits.buffer, start + token, 1)?;
                let allowed = mask.first().is_some_and(|word| word >> (token % 32) & 1 == 1);
                let want = if allowed { logit.first().copied().unwrap_or_default() } else { BANNED };
                samples.push(exact(OutputPlace::U32(self.masked.buffer, start + token), f64::from(want)));
            }
        }
        Ok(samples)
    }
}

impl Reference for Maxima {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        let [count, rows] = self.logits.shape;
        let slices = count.div_ceil(SLICE);
        let mut samples = Vec::new();
        for at in probe.some(rows * slices, VALUES) {
            let (row, first) = (at / slices, at % slices * SLICE);
            let start = row * self.logits.stride + first;
            let logits = probe.values(self.logits.buffer, start, SLICE.min(count - first))?;
            for (word, want) in slice_words(&logits, first).into_iter().enumerate() {
                samples.push(exact(OutputPlace::U32(self.maxima, 2 * at + word), f64::from(want)));
            }
        }
        let empty = probe.some(2 * BINS * rows, VALUES);
        samples.extend(empty.into_iter().map(|bin| exact(OutputPlace::U32(self.histogram, bin), 0.0)));
        Ok(samples)
    }
}

/// The two words that `slice_max` writes for a slice whose first logit is that of token `first`.
fn slice_words(slice: &[f32], first: usize) -> [u32; 2] {
    let (logit, token) = likeliest(slice);
    [logit.to_bits(), if token == NO_TOKEN { token } else { token + first as u32 }]
}

/// Larger gaps count as this one.
const LARGEST_GAP: f32 = 127.9999;
/// The logit of [`NO_TOKEN`].
const LOWEST: f32 = -3.4e38;

/// The largest logit and its token; of equal logits the first one.
fn likeliest(logits: &[f32]) -> (f32, u32) {
    let numbers = logits.iter().copied().zip(0..).filter(|(logit, _)| logit.is_finite());
    numbers.reduce(|best, other| if other.0 > best.0 { other } else { best }).unwrap_or((LOWEST, NO_TOKEN))
}

impl Reference for Histogram {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        let mut samples = Vec::new();
        for row in probe.some(self.logits.shape[1], 1) {
            let logits = probe.values(self.logits.buffer, row * self.logits.stride, self.logits.shape[0])?;
            let [counts, deficits, close] = binned(&logits);
            let busy: Vec<usize> = (0..BINS).filter(|&bin| counts[bin] > 0.0).collect();
            let mut bins: Vec<usize> = probe.some(busy.len(), VALUES).into_iter().map(|at| busy[at]).collect();
            bins.extend(probe.some(BINS, 1));
            let scale = f64::from(scale(logits.len()));
            for bin in bins {
                let place = 2 * BINS * row + bin;
                let [count, lacks] = [place, place + BINS].map(|place| OutputPlace::U32(self.histogram, place));
                // For each token, the error of an exponential in f32 and its rounding; for a close one, its whole
                // deficit.
                let size = counts[bin] * (1.0 + probe.slack() * deficit(bin) * scale);
                let off = size + close[bin] * 0.25 * scale;
                samples.extend([
                    within(count, counts[bin], close[bin], counts[bin].max(1.0)),
                    within(lacks, deficits[bin], off, size),
                ]);
            }
        }
        Ok(samples)
    }
}

/// For each bin of the histogram the number of tokens, how much less they weigh than as many at its start, and the
/// number of tokens that may be in it or in the next one, depending on how their gaps are rounded.
fn binned(logits: &[f32]) -> [Vec<f64>; 3] {
    let (top, scale) = (likeliest(logits).0, f64::from(scale(logits.len())));
    let [mut counts, mut deficits, mut close] = [(); 3].map(|()| vec![0.0; BINS]);
    for &logit in logits.iter().filter(|logit| logit.is_finite()) {
        let (gap, [bin, other]) = (0.5 * (f64::from(top) - f64::from(logit)), gaps(top, logit).map(bin_of));
        counts[bin] += 1.0;
        deficits[bin] += ((1.0 - (-2.0 * gap.min(LARGEST_GAP.into()) + 0.25 * bin as f64).exp()) * scale).round();
        if other != bin {
            close[bin] += 1.0;
            close[other] += 1.0;
        }
    }
    [counts, deficits, close]
}

/// The gap that a kernel computes for a token, which is half a difference of logits rounded to the nearest f32, and the
/// result of rounding it in the other direction: the same if the gap is an f32.
fn gaps(top: f32, logit: f32) -> [f32; 2] {
    let exact = 0.5 * (f64::from(top) - f64::from(logit));
    let nearest = exact as f32;
    let other = match f64::from(nearest).total_cmp(&exact) {
        Ordering::Less => nearest.next_up(),
        Ordering::Equal => nearest,
        Ordering::Greater => nearest.next_down(),
    };
    [nearest, other]
}

/// The bin of a gap: an eighth is one.
fn bin_of(gap: f32) -> usize {
    (gap.min(LARGEST_GAP) * 8.0) as usize
}

impl Reference for Drawn {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        let mut samples = Vec::new();
        for row in probe.some(probe.count, VECTORS) {
            let header = probe.row_header(row)?;
            let logits = probe.values(self.logits.buffer, row * self.logits.stride, self.logits.shape[0])?;
            let Some(sampling) = sampling_of(probe, &header)? else { return Ok(vec![]) };
            let clear = match probe.picks_all() {
                true => Some(choice(&logits, &sampling, header.position)),
                false => clear_choice(&logits, &sampling, header.position),
            };
            let Some(choice) = clear else { continue };
            for (word, place) in choice.into_iter().zip(header.result as usize * Plan::SAMPLED_WORDS..) {
                samples.push(exact(OutputPlace::U32(BufferRef::Local(Plan::SAMPLED), place), f64::from(word)));
            }
        }
        Ok(samples)
    }
}

impl Reference for Accepted {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        let buffer = BufferRef::Local(Plan::SAMPLED);
        let mut rows: Vec<(RowHeader, u32, Vec<u32>)> = Vec::new();
        for row in 0..probe.count {
            let header = probe.row_header(row)?;
            let words = probe.words(buffer, header.result as usize * Plan::SAMPLED_WORDS, Plan::SAMPLED_WORDS)?;
            rows.push((header, probe.token(&header)?, words));
        }
        let (first, mut samples) = (rows.first().map_or(0, |(header, ..)| header.result), Vec::new());
        for of_sequence in rows.chunk_by(|(before, ..), (after, ..)| before.sequence == after.sequence) {
            let sequence = of_sequence[0].0.sequence;
            let drafts: Vec<u32> = of_sequence.iter().skip(1).map(|(_, token, _)| *token).collect();
            let accepted = accepted(&drafts, of_sequence.iter().map(|(.., words)| words[0]));
            let drafting = drafting_of(first, sequence);
            samples.push(exact(OutputPlace::U32(buffer, drafting), accepted as f64));
            samples.push(exact(OutputPlace::U32(buffer, drafting + 1), 0.0));
            for (word, at) in of_sequence[accepted].2.iter().zip(sequence as usize * Plan::SAMPLED_WORDS..) {
                samples.push(exact(OutputPlace::U32(buffer, at), f64::from(*word)));
            }
        }
        Ok(samples)
    }
}

/// How many of the first drafts equal the sampled tokens.
fn accepted(drafts: &[u32], sampled: impl Iterator<Item = u32>) -> usize {
    drafts.iter().zip(sampled).take_while(|(draft, sampled)| *draft == sampled).count()
}

/// The words that the kernels write: the chosen token, the likeliest, and the number of tokens that passed `top_k` and
/// `top_p`.
fn choice(logits: &[f32], sampling: &Sampling, position: u32) -> [u32; 3] {
    let (_, first) = likeliest(logits);
    if first == NO_TOKEN || sampling.sharpness == 0.0 {
        return [first, first, 1];
    }
    let order = in_order(logits);
    let kept = sampling.kept(&order, sampling.top_p.into());
    let chosen = sampling.scores(&order[..kept], position).into_iter().fold((f64::NEG_INFINITY, first), best);
    let count = if sampling.filters() { kept } else { logits.len() };
    [chosen.1, first, count as u32]
}

/// As [`choice`]; `None` if it is so close that rounding may decide it.
fn clear_choice(logits: &[f32], sampling: &Sampling, position: u32) -> Option<[u32; 3]> {
    const CLOSE: f64 = 1e-3;
    let words = choice(logits, sampling, position);
    if words[0] == NO_TOKEN || sampling.sharpness == 0.0 {
        return Some(words);
    }
    let (order, top_p) = (in_order(logits), f64::from(sampling.top_p));
    let kept = sampling.kept(&order, top_p);
    let alike = [1.0 - CLOSE, 1.0 + CLOSE].iter().all(|factor| sampling.kept(&order, top_p * factor) == kept);
    let next = order.get(kept).map_or(f64::INFINITY, |(logit, _)| f64::from(order[kept - 1].0 - logit));
    let reach = |&(logit, _): &(f32, u32)| (0.5 * f64::from(order[0].0 - logit) - f64::from(sampling.reach)).abs();
    let scores = sampling.scores(&order[..kept], position);
    let ahead = |&(score, token): &(f64, u32)| token == words[0] || score < scores_of(&scores, words[0]) - CLOSE;
    let filters = !sampling.filters() || (top_p >= 1.0 || alike) && (next == 0.0 || next > CLOSE);
    (filters && order[..kept].iter().all(|it| reach(it) > CLOSE) && scores.iter().all(ahead)).then_some(words)
}

impl Sampling {
    /// How many of the first tokens in order pass the filters, with this `top_p`.
    fn kept(&self, order: &[(f32, u32)], top_p: f64) -> usize {
        let order = if self.filters() { &order[..order.len().min(self.top_k as usize)] } else { order };
        if self.top_p >= 1.0 {
            return order.len();
        }
        let weight = |&(logit, _): &(f32, u32)| (f64::from(logit) - f64::from(order[0].0)).exp();
        let enough = top_p * order.iter().map(weight).sum::<f64>();
        let mut mass = 0.0;
        let before = |it: &&(f32, u32)| {
            let goes_on = mass < enough;
            mass += weight(it);
            goes_on
        };
        order.iter().take_while(before).count().max(1)
    }

    /// The scores of the first tokens in order, the largest of which is drawn.
    fn scores(&self, order: &[(f32, u32)], position: u32) -> Vec<(f64, u32)> {
        let score = |&(logit, token): &(f32, u32)| {
            let gap = 0.5 * (f64::from(order[0].0) - f64::from(logit));
            let score = gumbel(noise(self.seed, position, token)) - gap * f64::from(self.sharpness);
            (if gap <= f64::from(self.reach) { score } else { f64::NEG_INFINITY }, token)
        };
        order.iter().map(score).collect()
    }
}

fn scores_of(scores: &[(f64, u32)], token: u32) -> f64 {
    scores.iter().find(|it| it.1 == token).map_or(f64::NEG_INFINITY, |it| it.0)
}

fn best(best: (f64, u32), other: (f64, u32)) -> (f64, u32) {
    if other.0 > best.0 { other } else { best }
}

/// Finite logits and their tokens, the largest first, equal ones by their tokens.
fn in_order(logits: &[f32]) -> Vec<(f32, u32)> {
    let mut order: Vec<(f32, u32)> = logits.iter().copied().zip(0..).filter(|(l, _)| l.is_finite()).collect();
    order.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    order
}

/// The random word of a token: `lib/noise.wgsl`.
fn noise(seed: [u32; 2], position: u32, token: u32) -> u32 {
    pcg4d([token / 4, position, seed[0], seed[1]])[token as usize % 4]
}

/// Minus the logarithm of −log(1 − u), in f64.
fn gumbel(bits: u32) -> f64 {
    let u = (f64::from(bits) + 0.5) / 4_294_967_296.0;
    -(-(-u).ln_1p()).ln()
}

/// A value that the host wrote to a buffer, from its words.
fn of_words<T: bytemuck::AnyBitPattern>(words: &[u32]) -> Option<T> {
    bytemuck::try_pod_read_unaligned(bytemuck::cast_slice(words)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only tokens whose gaps are within a rounding of a bin's edge may be counted on either side of it. A gap that is
    /// an edge, and needs no rounding, may not.
    #[test]
    fn counts_are_open_where_rounding_decides() {
        let top = 24.0f32;
        let [counts, _, close] = binned(&[top, 0.0, 1e-9, -1e-9, 1e-5, -1e-5]);
        let at = |bins: &[f64], places: [usize; 4]| places.map(|bin| bins[bin]);
        assert_eq!(at(&counts, [0, 95, 96, 97]), [1.0, 1.0, 4.0, 0.0]);
        assert_eq!(at(&close, [0, 95, 96, 97]), [0.0, 1.0, 1.0, 0.0]);
        assert_eq!(counts.iter().sum::<f64>(), 6.0);
    }
}
