//! The weighted sum of the selected experts' outputs, added to the residual stream of every row.

use super::computes::WeightedSum;
use super::{Kernel, expect_multiple, expect_shape};
use crate::error::Result;
use crate::plan::{Builder, Cost, Tensor, VariantBuilder};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/moe_combine.wgsl");
const WORKGROUP: usize = 128;

pub(super) const KERNEL: Kernel = Kernel { name: "moe_combine", op: OP, params: &[], matrices: &[] };

impl Builder {
    /// x {n} += `Σ weights[slot] · y[slot]` for every token, for weights {slots, tokens} and y {n, slots}.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn moe_combine(&mut self, label: &str, weights: &Tensor, y: &Tensor, x: &Tensor) -> Result<()> {
        expect_shape(KERNEL.name, "y", y.shape[0], x.shape[0])?;
        expect_shape(KERNEL.name, "weights", weights.shape[0], y.per_row())?;
        for length in [x.pitch, y.stride] {
            expect_multiple(KERNEL.name, "x", length, 4)?;
        }
        let chunks = x.shape[0].div_ceil(4); // padding is zero, and stays zero
        let variant = VariantBuilder::new(KERNEL.name, OP, WORKGROUP)
            .constant("WIDTH", "n", chunks)
            .constant("TOP_K", "k", y.per_row())
            .constant("Y_STRIDE", "y", y.stride / 4)
            .constant("X_PITCH", "x", x.pitch / 4);
        let variant = self.batch_files(variant);
        let buffers = [("weights", weights.buffer), ("y", y.buffer), ("x", x.buffer)];
        let mut bindings = vec![self.bound_batch()];
        bindings.extend(buffers.map(|(name, buffer)| self.bound(name, buffer)));
        let cost = Cost::of_activations(weights.bytes() + y.bytes() + 2 * x.bytes());
        self.computes(KERNEL.name, WeightedSum { weights: weights.buffer, y: *y, x: *x });
        self.step(label, variant, bindings, &(), [chunks.div_ceil(WORKGROUP), x.rows, 1], cost)
    }
}
