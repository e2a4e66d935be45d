//! How many tokens lie how far below the likeliest, and what they weigh: what top-k and top-p are told by.

use super::case::ValueType;
use super::reference;
use super::slice_max::{EDGES, Edit, Slices, likeliest};
use super::{Case, CaseBuilder, Kernel, params};
use crate::error::Result;
use crate::plan::{Builder, Cost, Target, Tensor, VariantBuilder};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/histogram.wgsl");
const WORKGROUP: usize = 256;
/// Four logits for each invocation, so many times.
const CHUNKS: usize = 4;
/// Bins: a digit of a token's place in the order of logits.
pub(super) const BINS: usize = 1024;

params! { count: u32, slices: u32, scale: f32 }

pub(super) const KERNEL: Kernel =
    Kernel { name: "histogram", op: OP, params: Params::FIELDS, matrices: &[], several: false, cases };

/// What a deficit of 1 counts as: as much as leaves room for all of `count` tokens in one bin, each of which lacks
/// up to 0.22, and no more than f32 has digits for.
pub(super) fn scale(count: usize) -> f32 {
    let digits = usize::BITS - count.next_power_of_two().leading_zeros() - 1;
    (1u32 << 34u32.saturating_sub(digits).min(22)) as f32
}

impl Builder {
    /// Adds each of logits {n} to the slices' histogram: of each bin of gaps the tokens, then, of each bin, what they
    /// weigh less than as many at its start.
    ///
    /// # Errors
    /// See [`Builder::step`].
    pub fn histogram(&mut self, label: &str, logits: &Tensor, slices: &Slices) -> Result<()> {
        let count = logits.shape[0];
        let variant = VariantBuilder::new(KERNEL.name, OP, WORKGROUP)
            .constant("BINS", "", BINS)
            .constant("CHUNKS", "", CHUNKS)
            .file(source!("lib/candidates.wgsl"))
            .file(source!("lib/maxima.wgsl"))
            .file(source!("lib/order.wgsl"));
        let bindings = vec![
            self.bound("logits", logits.buffer),
            self.bound("maxima", slices.maxima.buffer),
            self.bound("histogram", slices.histogram.buffer),
        ];
        let params = Params { count: count as u32, slices: slices.count() as u32, scale: scale(count) };
        let workgroups = count.div_ceil(4 * WORKGROUP * CHUNKS);
        let read = logits.bytes() + workgroups as u64 * slices.maxima.bytes();
        let cost = Cost::of_activations(read + slices.histogram.bytes());
        self.computes(KERNEL.name, reference::Histogram { logits: *logits, histogram: slices.histogram.buffer });
        self.step(label, variant, bindings, &params, [workgroups, 1, 1], cost)
    }
}

/// Of each bin the tokens, and what they lack.
pub(super) fn expected(logits: &[f32]) -> [Vec<f64>; 2] {
    let top = f64::from(likeliest(logits).0);
    let (mut counts, mut deficits) = (vec![0.0; BINS], vec![0.0; BINS]);
    for logit in logits.iter().filter(|logit| logit.is_finite()) {
        let gap = (0.5 * (top - f64::from(*logit))).min(127.9999);
        let bin = (gap * 8.0) as usize;
        counts[bin] += 1.0;
        deficits[bin] += ((1.0 - (-2.0 * gap + 0.25 * bin as f64).exp()) * f64::from(scale(logits.len()))).round();
    }
    [counts, deficits]
}

/// Of each bin the tokens that rounding may count there or not.
pub(super) fn close(logits: &[f32]) -> Vec<f64> {
    let top = f64::from(likeliest(logits).0);
    let mut close = vec![0.0; BINS];
    for logit in logits.iter().filter(|logit| logit.is_finite()) {
        let eighths = (4.0 * (top - f64::from(*logit))).min(BINS as f64);
        let edge = eighths.round();
        if (eighths - edge).abs() < 1e-4 * edge.max(1.0) {
            close.iter_mut().skip((edge as usize).saturating_sub(1)).take(2).for_each(|bin| *bin += 1.0);
        }
    }
    close
}

fn cases(target: Target) -> Result<Vec<Case>> {
    let case = |(name, count, edit): (&str, usize, Edit)| {
        let mut case = CaseBuilder::new(target, 1);
        let logits = case.plan.tensor("logits", [count, 1]);
        let mut values: Vec<f32> = case.noise(count).into_iter().map(|v| 20.0 * v).collect();
        edit(&mut values);
        case.fill(&logits, &values);
        let slices = case.plan.slice_max("slices", &logits)?;
        case.allow(slices.maxima.buffer);
        case.plan.histogram("histogram", &logits, &slices)?;
        let [counts, deficits] = expected(&values);
        case.expect_at(slices.histogram.buffer, ValueType::U32, 0, counts, 0.0);
        case.expect_at(slices.histogram.buffer, ValueType::U32, BINS, deficits, 1e-4);
        Ok(case.finish(format!("{name}, {count}")))
    };
    EDGES.into_iter().map(case).collect()
}
