//! A histogram of how far logits are below the largest, and of their tokens' weights, for top-k and top-p.

use super::computes;
use super::slice_max::{Slices, candidate_files};
use super::{Kernel, params};
use crate::error::Result;
use crate::plan::{Builder, Cost, Tensor, VariantBuilder};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/histogram.wgsl");
const WORKGROUP: usize = 256;
/// How many times each invocation takes four logits.
const CHUNKS: usize = 4;
/// The number of bins: one digit of the position of a token in the order of logits.
pub(crate) const BINS: usize = 1024;

params! { count: u32, pitch: u32, slices: u32, scale: f32 }

pub(super) const KERNEL: Kernel = Kernel { name: "histogram", op: OP, params: Params::FIELDS, matrices: &[] };

/// The factor that converts deficits to integers: the largest with which the sum cannot overflow even if all `count`
/// tokens are in one bin, each with a deficit of up to 0.22, but no larger than the precision of f32 allows.
pub(crate) fn scale(count: usize) -> f32 {
    let digits = usize::BITS - count.next_power_of_two().leading_zeros() - 1;
    (1u32 << 34u32.saturating_sub(digits).min(22)) as f32
}

impl Builder {
    /// Adds logits {n, rows} to their rows' histograms in `slices`: for each bin of gaps the number of tokens, then for
    /// each bin how much less they weigh than as many tokens at its start.
    ///
    /// # Errors
    /// See [`Builder::step`].
    pub fn histogram(&mut self, label: &str, logits: &Tensor, slices: &Slices) -> Result<()> {
        let count = logits.shape[0];
        let variant = candidate_files(VariantBuilder::new(KERNEL.name, OP, WORKGROUP))
            .constant("BINS", "", BINS)
            .constant("CHUNKS", "", CHUNKS)
            .file(source!("lib/maxima.wgsl"))
            .file(source!("lib/order.wgsl"));
        let bindings = vec![
            self.bound("logits", logits.buffer),
            self.bound("maxima", slices.maxima.buffer),
            self.bound("histogram", slices.histogram.buffer),
        ];
        let params = Params {
            count: count as u32,
            pitch: logits.stride as u32 / 4,
            slices: slices.count() as u32,
            scale: scale(count),
        };
        let workgroups = count.div_ceil(4 * WORKGROUP * CHUNKS);
        let read = logits.bytes() + workgroups as u64 * slices.maxima.bytes();
        let cost = Cost::of_activations(read + slices.histogram.bytes());
        self.computes(KERNEL.name, computes::Histogram { logits: *logits, histogram: slices.histogram.buffer });
        self.step(label, variant, bindings, &params, [workgroups, slices.rows, 1], cost)
    }
}
