//! The router's selection of experts, and the order of their slots. Experts are compared exactly. If two experts or two
//! groups of them are so close that rounding may decide between them, the selection is not checked in a model; in cases
//! it is.

use super::vectors::summed;
use super::{VALUES, VECTORS, exact, sample};
use crate::error::Result;
use crate::kernels::computes::{Grouped, SelectedExperts};
use crate::kernels::errors::expert_weights;
use crate::kernels::{ExpertGroups, Gating, Routing};
use crate::plan::{OutputPlace, Probe, Reference, Sample};

/// The smallest difference between the selection scores of two experts, or between the scores of two groups, for which
/// the choice is clear.
const CLEAR: f64 = 1e-5;

impl SelectedExperts {
    /// The router's logits of a token.
    pub(super) fn logits(&self, probe: &mut Probe<'_>, token: usize) -> Result<Vec<f32>> {
        let sums = summed(probe, &self.logits, (token, 0), 0, self.logits.tensor.shape[0])?;
        Ok(sums.into_iter().map(|(logit, _)| logit as f32).collect())
    }

    /// The experts of a token and their weights; `None` if the choice is close.
    pub(super) fn of(&self, probe: &mut Probe<'_>, token: usize) -> Result<Option<(Vec<usize>, Vec<f64>)>> {
        let logits = self.logits(probe, token)?;
        let bias = probe.row(&self.bias, 0, 0)?;
        let top_k = self.routing.top_k;
        // One more than are selected, if there is one, and without the factors on weights: only the order is needed.
        let more = Routing { top_k: (top_k + 1).min(logits.len()), normalise: false, scale: 1.0, ..self.routing };
        let (order, scores) = routed_experts(&logits, &bias, more);
        let selection: Vec<f64> = order.iter().zip(&scores).map(|(&e, score)| score + f64::from(bias[e])).collect();
        let clear = selection.windows(2).all(|pair| pair[0] - pair[1] > CLEAR)
            && group_margin(&selection_scores(&logits, &bias, self.routing.gating), self.routing.groups) > CLEAR;
        Ok((clear || probe.picks_all()).then(|| routed_experts(&logits, &bias, self.routing)))
    }
}

impl Reference for SelectedExperts {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        let mut samples = Vec::new();
        for token in probe.some(probe.count, VECTORS) {
            let Some((ids, weights)) = self.of(probe, token)? else { continue };
            let logits = self.logits(probe, token)?;
            let errors = expert_weights(&logits, &ids, self.routing);
            for (rank, ((id, weight), error)) in ids.into_iter().zip(weights).zip(errors).enumerate() {
                let place = token * self.routing.top_k + rank;
                samples.push(exact(OutputPlace::U32(self.ids, place), id as f64));
                let weights = self.weights.map(|buffer| OutputPlace::F32(buffer, place));
                samples.extend(weights.map(|output| sample(probe, output, weight, weight.abs(), error)));
            }
        }
        Ok(samples)
    }
}

/// The experts' scores for these logits.
fn scores(logits: &[f32], gating: Gating) -> Vec<f64> {
    let top = logits.iter().fold(f64::MIN, |m, &z| m.max(z as f64));
    let sum: f64 = logits.iter().map(|&z| (z as f64 - top).exp()).sum();
    let score = |z: f64| match gating {
        Gating::Sigmoid => 1.0 / (1.0 + (-z).exp()),
        Gating::Softmax => (z - top).exp() / sum,
    };
    logits.iter().map(|&z| score(z as f64)).collect()
}

/// The scores by which experts are selected.
fn selection_scores(logits: &[f32], bias: &[f32], gating: Gating) -> Vec<f64> {
    scores(logits, gating).into_iter().zip(bias).map(|(score, &bias)| score + f64::from(bias)).collect()
}

/// The groups of experts with these selection scores, best first, and their scores.
fn ranked_groups(selection: &[f64], groups: ExpertGroups) -> Vec<(usize, f64)> {
    let score = |experts: &[f64]| {
        let mut sorted = experts.to_vec();
        sorted.sort_by(|a, b| b.total_cmp(a));
        sorted.iter().take(2).sum()
    };
    let mut ranked: Vec<_> = selection.chunks(selection.len() / groups.count).map(score).enumerate().collect();
    ranked.sort_by(|(_, a): &(usize, f64), (_, b)| b.total_cmp(a));
    ranked
}

/// How much better the last group that is used is than the first that is not.
fn group_margin(selection: &[f64], groups: Option<ExpertGroups>) -> f64 {
    let Some(groups) = groups.filter(|groups| groups.used < groups.count) else { return f64::INFINITY };
    let ranked = ranked_groups(selection, groups);
    ranked[groups.used - 1].1 - ranked[groups.used].1
}

/// The experts that can be selected, in their order.
fn selectable(selection: &[f64], groups: Option<ExpertGroups>) -> Vec<usize> {
    let experts = 0..selection.len();
    let Some(groups) = groups else { return experts.collect() };
    let size = selection.len() / groups.count;
    let ranked = ranked_groups(selection, groups);
    let used = |group| ranked[..groups.used].iter().any(|(known, _)| *known == group);
    experts.filter(|e| used(e / size)).collect()
}

/// The experts selected for these logits and biases, best first, and their weights.
pub(super) fn routed_experts(logits: &[f32], bias: &[f32], routing: Routing) -> (Vec<usize>, Vec<f64>) {
    let scores = scores(logits, routing.gating);
    let selection = selection_scores(logits, bias, routing.gating);
    let mut order = selectable(&selection, routing.groups);
    order.sort_by(|&a, &b| selection[b].total_cmp(&selection[a]));
    order.truncate(routing.top_k);
    let total: f64 = order.iter().map(|&e| scores[e]).sum();
    let factor = routing.scale as f64 / if routing.normalise { total.max(Routing::SMALLEST_SUM as f64) } else { 1.0 };
    let weights = order.iter().map(|&e| scores[e] * factor).collect();
    (order, weights)
}

impl Reference for Grouped {
    fn samples(&self, probe: &mut Probe<'_>) -> Result<Vec<Sample>> {
        let ids = probe.words(self.ids.buffer, 0, self.ids.shape[0] * probe.count)?;
        let shared = (self.shared_tiles > 0).then_some(self.experts as u32);
        let of_row = |row: &[u32]| shared.into_iter().chain(row.to_vec());
        let chosen: Vec<u32> = ids.chunks(self.ids.shape[0].max(1)).flat_map(of_row).collect();
        let (slots, of_experts) = by_expert(&chosen, self.experts + usize::from(shared.is_some()), self.places);
        let (mut tiles, mut others): (Vec<_>, Vec<_>) =
            of_experts.into_iter().partition(|tile| tile[0] == self.experts);
        tiles.resize(self.shared_tiles, [0; 4]);
        tiles.append(&mut others);
        tiles.resize(self.room, [0; 4]);
        let head = shared.map(|_| [self.shared_tiles, self.room, 0, 0]);
        let tiles: Vec<usize> = head.into_iter().chain(tiles).flatten().collect();
        let mut samples = Vec::new();
        for place in probe.some(slots.len(), 2 * VALUES) {
            samples.push(exact(OutputPlace::U32(self.slots, place), slots[place] as f64));
        }
        for place in probe.some(tiles.len(), 2 * VALUES) {
            samples.push(exact(OutputPlace::U32(self.tiles, place), tiles[place] as f64));
        }
        Ok(samples)
    }
}

/// The slots of these selected experts ordered by expert, and the tiles of `places` slots that they are divided into.
fn by_expert(chosen: &[u32], experts: usize, places: usize) -> (Vec<usize>, Vec<[usize; 4]>) {
    let (mut slots, mut tiles) = (Vec::new(), Vec::new());
    for expert in 0..experts {
        let own: Vec<usize> = (0..chosen.len()).filter(|&slot| chosen[slot] as usize == expert).collect();
        for (n, tile) in own.chunks(places).enumerate() {
            tiles.push([expert, slots.len() + n * places, tile.len(), 0]);
        }
        slots.extend(own);
    }
    (slots, tiles)
}
