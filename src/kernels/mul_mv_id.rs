//! Matrix times vector, the matrix chosen on the GPU.

use super::Kernel;
use super::computes::{Terms, Which};
use super::matvec::{Feed, Input, MatvecProduct};
use super::rounded::Epilogue;
use crate::error::Result;
use crate::plan::{Builder, Cost, Tensor, Weight};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/mul_mv_id.wgsl");

pub(super) const KERNEL: Kernel = Kernel { name: "mul_mv_id", op: OP, params: &[], matrices: &[], several: false };

impl Builder {
    /// y {rows, slots} = `w[ids[slot]] · x[slot]`, for w {columns, rows, experts}, ids {slots} (u32, below
    /// `experts`) and x {columns, slots}.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn mul_mv_id(&mut self, label: &str, w: &Weight, ids: &Tensor, x: &Input) -> Result<Tensor> {
        let [columns, rows, _] = w.shape;
        let slots = ids.shape[0];
        let product = MatvecProduct {
            kernel: KERNEL.name,
            label,
            op: OP,
            roles: &[("w", w)],
            feed: Feed::Input(x),
            epilogue: Epilogue::default(),
            rows,
            layers: slots,
            together: 1,
            groups: w.groups(),
        };
        product.expect_input(columns, slots)?;
        let y = self.tensor(label, [rows, slots]);
        let variant = product.variant(self).constant("Y_STRIDE", "y", y.stride).file(source!("lib/rows.wgsl"));
        let mut bindings = product.bindings(self);
        bindings.extend([self.bound("ids", ids.buffer), self.bound("y", y.buffer)]);
        let cost = product.cost(ids.bytes() + y.bytes()) + Cost::of_slots(w, slots);
        let grid = product.grid(self, product.blocks(self, rows));
        let terms = Terms::One { w: w.clone(), add: false };
        self.computes(KERNEL.name, product.reference(self, terms, Which::Ids(ids.buffer), &y));
        self.step(label, variant, bindings, &(), grid, cost)?;
        Ok(y)
    }
}
