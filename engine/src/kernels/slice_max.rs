//! The largest logit of each slice: the first step of choosing a token.

use super::computes::Maxima;
use super::histogram::BINS;
use super::{Kernel, params};
use crate::error::Result;
use crate::plan::{Builder, Cost, Tensor, VariantBuilder};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/slice_max.wgsl");
const WORKGROUP: usize = 256;
/// The number of logits of a slice: four for each invocation of a workgroup.
pub(crate) const SLICE: usize = 4 * WORKGROUP;

params! { count: u32, pitch: u32, bins: u32 }

pub(super) const KERNEL: Kernel = Kernel { name: "slice_max", op: OP, params: Params::FIELDS, matrices: &[] };

/// Written instead of a token if no logit is a number.
pub const NO_TOKEN: u32 = u32::MAX;

/// Logits divided into slices.
pub struct Slices {
    /// For each slice of each row the bits of the largest logit, and its token: among equals the lowest one,
    /// [`NO_TOKEN`] if none is a number.
    pub maxima: Tensor,
    /// All zeros, for [`Builder::histogram`].
    pub histogram: Tensor,
    /// The number of rows.
    pub rows: usize,
}

/// Adds the file that invocations use to find the best of their tokens.
pub(super) fn candidate_files(variant: VariantBuilder) -> VariantBuilder {
    variant.constant("NO_TOKEN", "", NO_TOKEN as usize).file(source!("lib/candidates.wgsl"))
}

impl Slices {
    /// The number of slices of a row.
    pub fn count(&self) -> usize {
        self.maxima.shape[0] / 2
    }
}

impl Builder {
    /// The slices of logits {n, rows}.
    ///
    /// # Errors
    /// See [`Builder::step`].
    pub fn slice_max(&mut self, label: &str, logits: &Tensor) -> Result<Slices> {
        let [logits_of_row, rows] = logits.shape;
        let count = logits_of_row.div_ceil(SLICE);
        let maxima = self.tensor_with_stride(label, [2 * count, rows], 2 * count);
        let histogram = self.tensor_with_stride("histogram", [2 * BINS, rows], 2 * BINS);
        let variant = candidate_files(VariantBuilder::new(KERNEL.name, OP, WORKGROUP));
        let bindings = vec![
            self.bound("logits", logits.buffer),
            self.bound("maxima", maxima.buffer),
            self.bound("histogram", histogram.buffer),
        ];
        let params = Params { count: logits_of_row as u32, pitch: logits.stride as u32 / 4, bins: 2 * BINS as u32 };
        let cost = Cost::of_activations(logits.bytes() + maxima.bytes() + histogram.bytes());
        let slices = Slices { maxima, histogram, rows };
        self.computes(KERNEL.name, Maxima::new(logits, &slices));
        self.step(label, variant, bindings, &params, [count, rows, 1], cost)?;
        Ok(slices)
    }
}
