//! The weighted sum of the chosen experts' outputs, into the residual stream.

use super::computes::{WeightedSum, by_token};
use super::{Kernel, expect_shape, params};
use crate::error::Result;
use crate::plan::{Builder, Cost, Tensor, VariantBuilder};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/moe_sum.wgsl");
const WORKGROUP: usize = 64;

params! { width: u32, y_stride: u32, slots: u32 }

pub(super) const KERNEL: Kernel =
    Kernel { name: "moe_sum", op: OP, params: Params::FIELDS, matrices: &[], several: false };

impl Builder {
    /// x {n} += `Σ weights[slot] · y[slot]`, for weights {slots} and y {n, slots}.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn moe_sum(&mut self, label: &str, weights: &Tensor, y: &Tensor, x: &Tensor) -> Result<()> {
        expect_shape(KERNEL.name, "y", y.shape[0], x.shape[0])?;
        expect_shape(KERNEL.name, "weights", weights.shape[0], y.shape[1])?;
        let variant = VariantBuilder::new(KERNEL.name, OP, WORKGROUP);
        let bindings =
            vec![self.bound("weights", weights.buffer), self.bound("y", y.buffer), self.bound("x", x.buffer)];
        let params = Params { width: x.shape[0] as u32, y_stride: y.stride as u32, slots: weights.shape[0] as u32 };
        let cost = Cost::of_activations(weights.bytes() + y.bytes() + 2 * x.bytes());
        self.computes(KERNEL.name, WeightedSum { weights: weights.buffer, y: by_token(y, 1), x: by_token(x, 1) });
        self.step(label, variant, bindings, &params, [x.shape[0].div_ceil(WORKGROUP), 1, 1], cost)
    }
}
