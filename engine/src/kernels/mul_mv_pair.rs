//! Two matrices times the same vector.

use super::computes::{self, MatrixSelection, Terms};
use super::matvec::{Feed, Input, MatvecProduct, Norm, buffers_of};
use super::rounded::{Epilogue, Residual};
use super::{Kernel, expect_shape};
use crate::error::Result;
use crate::plan::{Builder, Cost, Tensor, Weight};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/mul_mv_pair.wgsl");

pub(super) const KERNEL: Kernel = Kernel { name: "mul_mv_pair", op: OP, params: &[], matrices: &[] };

impl Builder {
    /// y {rows of w, n} = w · x and z {rows of v, n} = v · x, for w {columns, rows}, v {columns, rows} and x {columns,
    /// n}. `names` are the names of y and z. The norm `next` is applied to y next.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn mul_mv_pair(
        &mut self,
        label: &str,
        names: [&str; 2],
        w: &Weight,
        v: &Weight,
        x: &Input,
        next: Option<&Norm>,
    ) -> Result<(Residual, Tensor)> {
        let [columns, first, _] = w.shape;
        let second = v.shape[1];
        expect_shape(KERNEL.name, &v.name, v.shape[0], columns)?;
        let vectors = x.tensor.shape[1];
        let [y, z] = [self.tensor(names[0], [first, vectors]), self.tensor(names[1], [second, vectors])];
        let buffers = buffers_of(&[w, v]) + 4; // x, its norm, y, z
        let epilogue =
            next.map_or(Epilogue::default(), |next| self.epilogue_for((&KERNEL, buffers), &y, names[0], next));
        let product = MatvecProduct {
            epilogue,
            rows: first + second,
            together: vectors,
            ..MatvecProduct::new(&KERNEL, label, [("w", w), ("v", v)], Feed::Input(x))
        };
        product.expect_input(columns, vectors)?;
        let rows = source!("lib/rows.wgsl");
        let variant = product
            .variant(self)
            .constant("Y_STRIDE", "", y.stride)
            .constant("Z_STRIDE", "", z.stride)
            .file_for("w", rows)
            .file_for("v", rows);
        let mut bindings = product.bindings(self);
        bindings.extend([self.bound("y", y.buffer), self.bound("z", z.buffer)]);
        let cost = product.cost(y.bytes() + z.bytes()) + Cost::products(w, 1, vectors) + Cost::products(v, 1, vectors);
        let grid = product.grid(self, product.blocks(self, first) + product.blocks(self, second));
        let one = |w: &Weight| Terms::One { w: w.clone(), add: false };
        let second = product.reference(self, one(v), MatrixSelection::InTurn, &z);
        let second = computes::Product { side_output: None, ..second };
        self.computes(KERNEL.name, (product.reference(self, one(w), MatrixSelection::InTurn, &y), second));
        self.step(label, variant, bindings, &(), grid, cost)?;
        Ok((Residual { rounded: epilogue.rounded, ..Residual::from(y) }, z))
    }
}
