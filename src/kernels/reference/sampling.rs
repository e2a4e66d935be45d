//! Choices: of experts, and of the next token. They are compared exactly; where one is so close that rounding decides,
//! nothing is looked at.

use super::super::adjust::{self, Adjustment, Penalties};
use super::super::group_slots::Groups;
use super::super::histogram::{self, BINS};
use super::super::route::{self, Routing};
use super::super::sampling::{self, Sampling};
use super::super::slice_max::{self, SLICE, Slices};
use super::{SLACK, VALUES, VECTORS, exact, sample};
use crate::error::Result;
use crate::plan::{BufferRef, OutputPlace, Plan, Probe, Reference, Sample, Tensor, Weight};

/// What the host wrote.
fn of_words<T: bytemuck::AnyBitPattern>(words: &[u32]) -> Option<T> {
    bytemuck::try_pod_read_unaligned(bytemuck::cast_slice(words)).ok()
}

/// The router's choice of experts for every token.
#[derive(Clone)]
pub(in super::super) struct SelectedExperts {
    /// The router's logits {experts, tokens}.
    pub logits: Tensor,
    pub bias: Weight,
    pub routing: Routing,
    /// The chosen {`top_k`, tokens}, u32.
    pub ids: BufferRef,
    /// Their weights, where they are left.
    pub weights: Option<BufferRef>,
}

/// How far apart the chances of experts are at least, for the choice to be clear.
const CLEAR: f64 = 1e-5;

impl SelectedExperts {
    /// The chosen of a token and their weights; none if the choice is a close one.
    pub fn of(&self, probe: &mut Probe<'_>, token: usize) -> Result<Option<(Vec<usize>, Vec<f64>)>> {
        let logits = probe.values(self.logits.buffer, token * self.logits.stride, self.logits.shape[0])?;
        let bias = probe.row(&self.bias, 0, 0)?;
        let top_k = self.routing.top_k;
        // One more than are chosen, if there is one, and without the factors on weights: the order alone is wanted.
        let more = Routing { top_k: (top_k + 1).min(logits.len()), normalise: false, scale: 1.0, ..self.routing };
        let (order, scores) = route::expected(&logits, &bias, more);
        let chances: Vec<f64> = order.iter().zip(&scores).map(|(&e, score)| score + f64::from(bias[e])).collect();
        let clear = chances.windows(2).all(|pair| pair[0] - pair[1] > CLEAR);
        Ok(clear.then(|| route::expected(&logits, &bias, self.routing)))
    }
}

impl Reference for SelectedExperts {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        let mut samples = Vec::new();
        for token in probe.some(probe.count, VECTORS) {
            let Some((ids, weights)) = self.of(probe, token)? else { continue };
            for (rank, (id, weight)) in ids.into_iter().zip(weights).enumerate() {
                let place = token * self.routing.top_k + rank;
                samples.push(exact(OutputPlace::U32(self.ids, place), id as f64));
                let weights = self.weights.map(|buffer| OutputPlace::F32(buffer, place));
                samples.extend(weights.map(|output| sample(output, weight, weight.abs(), 1e-5)));
            }
        }
        Ok(samples)
    }
}

/// Slots in order of their experts, and the tiles they are cut into.
pub(in super::super) struct Grouped {
    /// {`top_k`, tokens}, u32.
    pub ids: Tensor,
    pub experts: usize,
    pub slots: BufferRef,
    pub tiles: BufferRef,
    pub places: usize,
    /// Tiles there is room for.
    pub room: usize,
}

impl Grouped {
    pub fn new(ids: Tensor, experts: usize, groups: &Groups) -> Self {
        let Groups { slots, tiles, places } = groups;
        Self { ids, experts, slots: slots.buffer, tiles: tiles.buffer, places: *places, room: tiles.shape[1] }
    }
}

impl Reference for Grouped {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        let ids = probe.words(self.ids.buffer, 0, self.ids.shape[0] * probe.count)?;
        let (slots, tiles) = super::super::group_slots::grouped(&ids, self.experts, self.places, self.room);
        let mut samples = Vec::new();
        for place in probe.some(slots.len(), 2 * VALUES) {
            samples.push(exact(OutputPlace::U32(self.slots, place), slots[place] as f64));
        }
        for place in probe.some(3 * tiles.len() / 4, 2 * VALUES) {
            let place = place / 3 * 4 + place % 3; // what a tile's fourth word is nobody asks
            samples.push(exact(OutputPlace::U32(self.tiles, place), tiles[place] as f64));
        }
        Ok(samples)
    }
}

/// The largest of each slice of the logits.
pub(in super::super) struct Maxima {
    pub logits: Tensor,
    pub maxima: BufferRef,
    pub histogram: BufferRef,
}

impl Maxima {
    pub fn new(logits: &Tensor, slices: &Slices) -> Self {
        Self { logits: *logits, maxima: slices.maxima.buffer, histogram: slices.histogram.buffer }
    }
}

impl Reference for Maxima {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        let count = self.logits.shape[0];
        let mut samples = Vec::new();
        for slice in probe.some(count.div_ceil(SLICE), VALUES) {
            let first = slice * SLICE;
            let logits = probe.values(self.logits.buffer, first, SLICE.min(count - first))?;
            for (word, want) in slice_max::words(&logits, first).into_iter().enumerate() {
                samples.push(exact(OutputPlace::U32(self.maxima, 2 * slice + word), f64::from(want)));
            }
        }
        let empty = probe.some(2 * BINS, VALUES);
        samples.extend(empty.into_iter().map(|bin| exact(OutputPlace::U32(self.histogram, bin), 0.0)));
        Ok(samples)
    }
}

/// How many tokens lie how far below the likeliest, and what they lack.
pub(in super::super) struct Histogram {
    pub logits: Tensor,
    pub histogram: BufferRef,
}

impl Reference for Histogram {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        let logits = probe.values(self.logits.buffer, 0, self.logits.shape[0])?;
        let [counts, deficits] = histogram::expected(&logits);
        let close = histogram::close(&logits);
        let busy: Vec<usize> = (0..BINS).filter(|&bin| counts[bin] > 0.0).collect();
        let mut bins: Vec<usize> = probe.some(busy.len(), VALUES).into_iter().map(|at| busy[at]).collect();
        bins.push(probe.pick(BINS));
        let scale = f64::from(histogram::scale(logits.len()));
        let of_bin = |bin: usize| {
            let (count, lacks) = (OutputPlace::U32(self.histogram, bin), OutputPlace::U32(self.histogram, BINS + bin));
            // Of each token what an exponential in f32 and its rounding may be off by; of a close one all it may lack.
            let off = counts[bin] * (1.0 + SLACK * 1e-6 * scale) + close[bin] * 0.25 * scale;
            [
                Sample { output: count, want: counts[bin], tolerance: close[bin] },
                Sample { output: lacks, want: deficits[bin], tolerance: off },
            ]
        };
        Ok(bins.into_iter().flat_map(of_bin).collect())
    }
}

/// The next token.
pub(in super::super) struct Drawn {
    pub logits: Tensor,
    /// A [`Sampling`].
    pub sampling: BufferRef,
}

impl Reference for Drawn {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        let logits = probe.values(self.logits.buffer, 0, self.logits.shape[0])?;
        let words = probe.words(self.sampling, 0, size_of::<Sampling>() / 4)?;
        let ticket = probe.words(BufferRef::Local(Plan::STATE), 3, 1)?;
        let Some(sampling) = of_words::<Sampling>(&words) else { return Ok(vec![]) };
        let Some(choice) = sampling::clear_choice(&logits, &sampling, probe.position as u32) else { return Ok(vec![]) };
        let words = choice.into_iter().chain(ticket).enumerate();
        Ok(words.map(|(i, word)| exact(OutputPlace::U32(BufferRef::Local(Plan::TOKEN), i), f64::from(word))).collect())
    }
}

/// Logits with bias and penalties.
pub(in super::super) struct Adjusted {
    pub logits: Tensor,
    /// [`Penalties`], and behind them [`Adjustment`]s.
    pub adjustments: usize,
}

impl Reference for Adjusted {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        let logits = probe.values(self.logits.buffer, 0, self.logits.shape[0])?;
        let newest = probe.words(BufferRef::Local(Plan::TOKEN), 0, 1)?;
        let adjustments = BufferRef::Local(self.adjustments);
        let head = probe.words(adjustments, 0, size_of::<Penalties>() / 4)?;
        let Some(penalties) = of_words::<Penalties>(&head) else { return Ok(vec![]) };
        let each = size_of::<Adjustment>() / 4;
        let entries = probe.words(adjustments, head.len(), each * penalties.count as usize)?;
        let entries: Vec<Adjustment> = entries.chunks_exact(each).filter_map(of_words).collect();
        let (after, sizes) =
            adjust::expected(&logits, &penalties, &entries, newest.first().copied().unwrap_or_default());
        let listed: Vec<usize> = entries.iter().map(|entry| entry.token as usize).collect();
        let mut places: Vec<usize> = probe.some(listed.len(), VALUES).into_iter().map(|at| listed[at]).collect();
        places.extend(probe.some(after.len(), VALUES));
        places.retain(|&place| after[place].is_finite());
        let of = |place: usize| sample(OutputPlace::F32(self.logits.buffer, place), after[place], sizes[place], 1e-6);
        Ok(places.into_iter().map(of).collect())
    }
}
