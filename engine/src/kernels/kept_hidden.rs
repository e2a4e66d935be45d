//! Reads hidden states from the ring buffers, one for each row.

use super::computes::{Kept, PickedHidden};
use super::keep_hidden::KEPT_ROWS;
use super::{Kernel, params};
use crate::error::Result;
use crate::plan::{Builder, Cost, Tensor, VariantBuilder};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/kept_hidden.wgsl");
const WORKGROUP: usize = 256;

params! { width: u32, ahead: u32, pitch: u32 }

pub(super) const KERNEL: Kernel = Kernel { name: "kept_hidden", op: OP, params: Params::FIELDS, matrices: &[] };

impl Builder {
    /// y {n, rows} = the vector that is stored for the position of each row plus `ahead`.
    ///
    /// # Errors
    /// See [`Builder::step`].
    pub fn kept_hidden(&mut self, label: &str, ring: &Kept, ahead: usize) -> Result<Tensor> {
        let width = ring.width;
        let y = self.tensor(label, [width, self.rows()]);
        let variant = self
            .batch_files(VariantBuilder::new(KERNEL.name, OP, WORKGROUP))
            .constant("RING_LENGTH", "", KEPT_ROWS)
            .file(source!("lib/ring.wgsl"));
        let bindings = vec![self.bound_batch(), self.bound("ring", ring.buffer), self.bound("y", y.buffer)];
        let params = Params { width: width as u32, ahead: ahead as u32, pitch: y.pitch as u32 };
        self.computes(KERNEL.name, PickedHidden { ring: *ring, y, ahead });
        let grid = [width.div_ceil(WORKGROUP), self.rows(), 1];
        self.step(label, variant, bindings, &params, grid, Cost::of_activations(2 * y.bytes()))?;
        Ok(y)
    }
}
