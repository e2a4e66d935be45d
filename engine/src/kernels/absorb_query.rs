//! The heads' queries, projected to the latent space for attention over the latent cache.

use super::computes::{MatrixSelection, RotatedQueries, Terms};
use super::matvec::{Feed, Input, MatvecProduct};
use super::{Kernel, expect_multiple, expect_shape};
use crate::error::Result;
use crate::plan::{Builder, Cost, Tensor, Weight};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/absorb_query.wgsl");

pub(super) const KERNEL: Kernel = Kernel { name: "absorb_query", op: OP, params: &[], matrices: &[] };

impl Builder {
    /// y {rank + rotary, heads}, for the heads of every token: the first values of q {nope + rotary, heads} times w
    /// {nope, rank, heads}, followed by the rotary rest, rotated.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn absorb_query(&mut self, label: &str, w: &Weight, q: &Input, y: &Tensor) -> Result<()> {
        let [nope, rank, heads] = w.shape;
        let query = &q.tensor;
        let rotary = query.shape[0].saturating_sub(nope);
        let vectors = heads * self.rows();
        let input = Input { tensor: Tensor { shape: [nope, vectors], ..*query }, ..q.clone() };
        let product =
            MatvecProduct { layers: heads, ..MatvecProduct::new(&KERNEL, label, [("w", w)], Feed::Input(&input)) };
        product.expect_input(nope, query.shape[1])?;
        expect_multiple(KERNEL.name, "q", nope, 2)?;
        expect_multiple(KERNEL.name, "q", rotary, 2)?;
        expect_shape(KERNEL.name, "y", y.shape[0], rank + rotary)?;
        expect_shape(KERNEL.name, "y", y.shape[1], vectors)?;
        let variant = product
            .variant(self)
            .constant("NOPE", "", nope)
            .constant("HEADS", "h", heads)
            .constant("Y_STRIDE", "y", y.stride)
            .file(source!("lib/rows.wgsl"));
        let variant = self.batch_files(variant).file(source!("lib/rope.wgsl"));
        let mut bindings = product.bindings(self);
        bindings.extend([self.bound_batch(), self.bound("query", query.buffer), self.bound("y", y.buffer)]);
        let cost = product.cost(y.bytes()) + Cost::products(w, heads, self.rows());
        let grid = product.grid(self, product.blocks(self, rank) + 1);
        let terms = Terms::One { w: w.clone(), add: false };
        let rotated = RotatedQueries { q: *query, y: *y, rotary };
        self.computes(KERNEL.name, (product.reference(self, terms, MatrixSelection::InTurn, y), rotated));
        self.step(label, variant, bindings, &(), grid, cost)
    }
}
