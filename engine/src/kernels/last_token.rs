//! Copies the vector of the last row of a batch.

use super::computes::LastToken;
use super::{Kernel, expect_shape, params};
use crate::error::Result;
use crate::plan::{Builder, Cost, Tensor, VariantBuilder};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/last_token.wgsl");
const WORKGROUP: usize = 256;

params! { width: u32, pitch: u32 }

pub(super) const KERNEL: Kernel = Kernel { name: "last_token", op: OP, params: Params::FIELDS, matrices: &[] };

impl Builder {
    /// y {n} = x {n} of the batch's last row.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the widths differ.
    pub fn last_token(&mut self, label: &str, x: &Tensor, y: &Tensor) -> Result<()> {
        expect_shape(KERNEL.name, "x's vectors", x.per_row(), 1)?;
        expect_shape(KERNEL.name, "y", y.shape[0], x.shape[0])?;
        let variant = self.batch_files(VariantBuilder::new(KERNEL.name, OP, WORKGROUP));
        let bindings = vec![self.bound_batch(), self.bound("x", x.buffer), self.bound("y", y.buffer)];
        let params = Params { width: x.shape[0] as u32, pitch: x.pitch as u32 };
        let cost = Cost::of_activations(2 * y.bytes());
        self.computes(KERNEL.name, LastToken { x: *x, y: *y });
        self.step(label, variant, bindings, &params, [x.shape[0].div_ceil(WORKGROUP), 1, 1], cost)
    }
}
