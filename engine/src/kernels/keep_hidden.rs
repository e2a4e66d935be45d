//! Stores hidden states for the multi-token-prediction block in ring buffers, one for each sequence, by position.

use super::computes::{Kept, KeptHidden};
use super::matvec::Norm;
use super::{Kernel, expect_shape, params};
use crate::error::Result;
use crate::plan::{Builder, Cost, Tensor, VariantBuilder};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/keep_hidden.wgsl");
const WORKGROUP: usize = 256;
/// The capacity of a sequence's ring buffer: the maximum number of rows in a plan of few rows.
pub const KEPT_ROWS: usize = 32;

params! { width: u32, epsilon: f32, pitch: u32, ahead: u32 }

pub(super) const KERNEL: Kernel = Kernel { name: "keep_hidden", op: OP, params: Params::FIELDS, matrices: &[] };

impl Builder {
    /// Stores x {n, rows}, normalised, in `ring` {n, [`KEPT_ROWS`], sequences}: each vector at its row's sequence, and
    /// at its position plus `ahead`, modulo the capacity. Of more rows of a sequence, the last ones are stored.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the widths differ.
    pub fn keep_hidden(&mut self, label: &str, x: &Tensor, norm: &Norm, ring: &Kept, ahead: usize) -> Result<()> {
        let [width, rows] = x.shape;
        expect_shape(KERNEL.name, "x's vectors", rows, self.rows())?;
        expect_shape(KERNEL.name, &norm.weight.name, norm.weight.shape[0], width)?;
        expect_shape(KERNEL.name, "the ring", ring.width, width)?;
        let variant = self
            .batch_files(VariantBuilder::new(KERNEL.name, OP, WORKGROUP).usual_team(self.target_for(KERNEL.name)))
            .constant("RING_LENGTH", "", KEPT_ROWS)
            .file(source!("lib/ring.wgsl"));
        let bindings = vec![
            self.bound_batch(),
            self.bound("x", x.buffer),
            self.bound("weight", norm.weight.buffer()),
            self.bound("ring", ring.buffer),
        ];
        let params = Params { width: width as u32, epsilon: norm.epsilon, pitch: x.pitch as u32, ahead: ahead as u32 };
        let weights = norm.weight.matrix_bytes();
        let cost = Cost { weights, activations: 8 * (width * rows.min(KEPT_ROWS)) as u64, ..Cost::default() };
        self.computes(KERNEL.name, KeptHidden { x: *x, norm: norm.clone(), ring: *ring, ahead });
        self.step(label, variant, bindings, &params, [rows, 1, 1], cost)
    }
}
