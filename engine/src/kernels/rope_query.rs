//! Rotates the rotary part of the queries.

use super::computes::RotatedQueries;
use super::{Kernel, expect_shape, params};
use crate::error::Result;
use crate::plan::{Builder, Cost, Tensor, VariantBuilder};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/rope_query.wgsl");
const WORKGROUP: usize = 64;

params! { heads: u32, pairs: u32, q_stride: u32, q_offset: u32, y_stride: u32, y_offset: u32 }

pub(super) const KERNEL: Kernel = Kernel { name: "rope_query", op: OP, params: Params::FIELDS, matrices: &[] };

impl Builder {
    /// Rotates the last `rotary` values of every query, q {nope + rotary, heads of every row}, and writes them to the
    /// last values of every absorbed query, y {rank + rotary, heads of every row}.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn rope_query(&mut self, label: &str, q: &Tensor, rotary: usize, y: &Tensor) -> Result<()> {
        expect_shape(KERNEL.name, "y", y.shape[1], q.shape[1])?;
        let (heads, tokens) = (q.shape[1] / self.rows(), self.rows());
        let pairs = heads * (rotary / 2); // of a token
        let variant = self.batch_files(VariantBuilder::new(KERNEL.name, OP, WORKGROUP)).file(source!("lib/rope.wgsl"));
        let bindings = vec![self.bound_batch(), self.bound("q", q.buffer), self.bound("y", y.buffer)];
        let cost = Cost::of_activations(16 * (pairs * tokens) as u64);
        let params = params(heads, rotary, q, y);
        let rotated = RotatedQueries { q: *q, y: *y, rotary };
        self.computes(KERNEL.name, rotated);
        self.step(label, variant, bindings, &params, [pairs.div_ceil(WORKGROUP), tokens, 1], cost)
    }
}

/// The parameters, for queries and absorbed queries whose last values are the rotary ones.
fn params(heads: usize, rotary: usize, q: &Tensor, y: &Tensor) -> Params {
    Params {
        heads: heads as u32,
        pairs: rotary as u32 / 2,
        q_stride: q.stride as u32,
        q_offset: (q.shape[0] - rotary) as u32,
        y_stride: y.stride as u32,
        y_offset: (y.shape[0] - rotary) as u32,
    }
}
