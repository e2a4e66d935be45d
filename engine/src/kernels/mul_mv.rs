//! Matrix times vector, for one matrix or a stack of them.

use super::computes::{MatrixSelection, Terms};
use super::matvec::{Feed, Input, MatvecProduct, Norm, buffers_of};
use super::rounded::{Epilogue, Residual};
use super::{Kernel, expect_multiple, expect_shape, mul_mv_places};
use crate::error::Result;
use crate::plan::{Builder, Cost, Tensor, Weight};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/mul_mv.wgsl");

pub(super) const KERNEL: Kernel = Kernel { name: "mul_mv", op: OP, params: &[], matrices: &[] };

/// Whether the products replace `y` or are added to it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Write {
    Replace,
    Add,
}

impl Builder {
    /// y {rows, n} = w · x, for w {columns, rows, matrices} and x {columns, n}: vector *i* times matrix *i* modulo the
    /// number of matrices.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn mul_mv(&mut self, label: &str, w: &Weight, x: &Input) -> Result<Tensor> {
        let y = self.tensor(label, [w.shape[1], x.tensor.shape[1]]);
        self.mul_mv_into(label, w, x, &y)?;
        Ok(y)
    }

    /// As [`Builder::mul_mv`], into an existing tensor.
    ///
    /// # Errors
    /// As [`Builder::mul_mv`].
    pub fn mul_mv_into(&mut self, label: &str, w: &Weight, x: &Input, y: &Tensor) -> Result<()> {
        self.mul_mv_step(label, w, x, y, Write::Replace, Epilogue::default())
    }

    /// y {rows, n} += w · x: a product that is added to the residual stream, to which the norm `next` is applied next.
    ///
    /// # Errors
    /// As [`Builder::mul_mv`].
    pub fn mul_mv_add(&mut self, label: &str, w: &Weight, x: &Input, y: &Tensor, next: &Norm) -> Result<Residual> {
        let epilogue = self.epilogue_for((&KERNEL, buffers_of(&[w]) + 3), y, "x", next); // x, its norm, y
        self.mul_mv_step(label, w, x, y, Write::Add, epilogue)?;
        Ok(Residual { rounded: epilogue.rounded, ..Residual::from(*y) })
    }

    pub(crate) fn mul_mv_step(
        &mut self,
        label: &str,
        w: &Weight,
        x: &Input,
        y: &Tensor,
        write: Write,
        epilogue: Epilogue<'_>,
    ) -> Result<()> {
        let [columns, rows, matrices] = w.shape;
        let vectors = y.shape[1];
        let product = MatvecProduct {
            epilogue,
            layers: vectors / self.rows(),
            together: if matrices == 1 { vectors } else { 1 },
            ..MatvecProduct::new(&KERNEL, label, [("w", w)], Feed::Input(x))
        };
        product.expect_input(columns, vectors)?;
        expect_multiple(KERNEL.name, &w.name, vectors, matrices)?;
        expect_shape(KERNEL.name, &w.name, y.shape[0], rows)?;
        let reads = product.cost(if write == Write::Add { 2 } else { 1 } * y.bytes());
        let cost = reads + Cost::products(w, matrices, vectors / matrices);
        let terms = Terms::One { w: w.clone(), add: write == Write::Add };
        let reference = product.reference(self, terms, MatrixSelection::InTurn, y);
        if let Some(places) = mul_mv_places::places(self, &product) {
            let variant = mul_mv_places::variant(self, &product, &places);
            let variant = variant.switch("ACCUMULATE", "a", write == Write::Add).constant("Y_STRIDE", "y", y.stride);
            let mut bindings = product.bindings(self);
            bindings.extend(self.bound_count());
            bindings.push(self.bound("y", y.buffer));
            let grid = places.grid(rows, vectors.div_ceil(places.places));
            self.computes(mul_mv_places::KERNEL.name, reference);
            return self.step_in_parts(label, variant, bindings, (grid, 2), cost);
        }
        let variant = product
            .variant(self)
            .switch("ACCUMULATE", "a", write == Write::Add)
            .constant("MATRICES", "m", matrices)
            .constant("Y_STRIDE", "y", y.stride)
            .file(source!("lib/rows.wgsl"));
        let mut bindings = product.bindings(self);
        bindings.push(self.bound("y", y.buffer));
        let grid = product.grid(self, product.blocks(self, rows));
        self.computes(KERNEL.name, reference);
        self.step_in_parts(label, variant, bindings, (grid, 2), cost)
    }
}
