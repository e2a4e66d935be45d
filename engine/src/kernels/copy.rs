//! A copy, to measure the bandwidth of memory. No plan of a model uses it.

use super::computes::Copied;
use super::{Kernel, expect_multiple, expect_shape, params};
use crate::error::Result;
use crate::plan::{Builder, Cost, Tensor, VariantBuilder};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/copy.wgsl");
pub(crate) const WORKGROUP: usize = 256;
/// The number of outstanding reads of an invocation, of four words each.
pub(crate) const CHUNKS: usize = 4;

params! { count: u32 }

pub(super) const KERNEL: Kernel = Kernel { name: "copy", op: OP, params: Params::FIELDS, matrices: &[] };

impl Builder {
    /// to {n} = from {n}, up to a gigabyte. n must be a multiple of four.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together or are larger.
    pub fn copy(&mut self, label: &str, from: &Tensor, to: &Tensor) -> Result<()> {
        let length = from.shape[0];
        expect_shape(KERNEL.name, "to", to.shape[0], length)?;
        expect_shape(KERNEL.name, "from", from.shape[1], 1)?;
        expect_multiple(KERNEL.name, "from", length, 4)?;
        let variant = VariantBuilder::new(KERNEL.name, OP, WORKGROUP).constant("CHUNKS", "c", CHUNKS);
        let bindings = vec![self.bound("source", from.buffer), self.bound("copied", to.buffer)];
        let params = Params { count: (length / 4) as u32 };
        let cost = Cost::of_activations(from.bytes() + to.bytes());
        self.computes(KERNEL.name, Copied { x: *from, y: *to });
        self.step(label, variant, bindings, &params, [length.div_ceil(4 * CHUNKS * WORKGROUP), 1, 1], cost)
    }
}
