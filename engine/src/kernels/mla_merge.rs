//! Merges the splits of attention into each head's output.

use super::computes::Merge;
use super::mla_attention::{AttentionSplits, MAX_SPLITS};
use super::{Kernel, expect_most, expect_shape};
use crate::error::Result;
use crate::plan::{Bound, Builder, Cost, Tensor, VariantBuilder};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/mla_merge.wgsl");
const WORKGROUP: usize = 256;

pub(super) const KERNEL: Kernel = Kernel { name: "mla_merge", op: OP, params: &[], matrices: &[] };

impl Builder {
    /// y {rank, heads of every row} = the output of attention, merged from its splits.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn mla_merge(&mut self, label: &str, parts: &AttentionSplits, y: &Tensor) -> Result<()> {
        expect_shape(KERNEL.name, "y", y.shape[0], parts.sums.shape[0])?;
        expect_shape(KERNEL.name, "y's vectors", y.shape[1] * parts.splits, parts.sums.shape[1])?;
        expect_most(KERNEL.name, "splits", parts.splits, MAX_SPLITS)?;
        let variant = VariantBuilder::new(KERNEL.name, OP, WORKGROUP).usual_team(self.target_for(KERNEL.name));
        let variant = self.merge_files(variant, parts).constant("Y_STRIDE", "y", y.stride);
        let mut bindings = self.bound_parts(parts);
        bindings.push(self.bound("y", y.buffer));
        let cost = Cost::of_activations(parts.bytes() + y.bytes());
        let reference = Merge { parts: parts.into(), y: *y };
        self.computes(KERNEL.name, reference);
        self.step(label, variant, bindings, &(), [parts.heads, self.rows(), 1], cost)
    }

    /// Adds the files that merge splits.
    pub(super) fn merge_files(&self, variant: VariantBuilder, parts: &AttentionSplits) -> VariantBuilder {
        self.known_split_files(variant, parts.splits)
            .constant("RANK", "c", parts.sums.shape[0])
            .constant("HEADS", "h", parts.heads)
            .constant("MAX_SPLITS", "", MAX_SPLITS)
            .file(source!("lib/merge.wgsl"))
    }

    /// The bindings of these files.
    pub(super) fn bound_parts(&self, parts: &AttentionSplits) -> Vec<Bound> {
        let mut bindings = vec![self.bound_batch()];
        bindings.extend(self.bound_between(parts));
        bindings
    }
}

impl AttentionSplits {
    /// The bytes that are read and written. For a single row, those of one split, because most splits are idle at
    /// first.
    pub(super) fn bytes(&self) -> u64 {
        let [rank, slots] = self.sums.shape;
        let used = if slots == self.splits * self.heads { self.heads } else { slots };
        4 * (used * (rank + 2)) as u64
    }
}
