//! The second half of a mixture of experts: down of the selected experts and of the shared ones, added to the residual
//! stream.

use super::computes::{Down, Errors};
use super::errors::PRODUCT;
use super::moe_gate_up::Hidden;
use super::rounded::Residual;
use super::{Kernel, expect_shape};
use super::{matvec, matvec::Feed, matvec::MatvecProduct, matvec::Norm};
use crate::error::Result;
use crate::plan::{Builder, Cost, Tensor, Weight};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/moe_down.wgsl");

pub(super) const KERNEL: Kernel = Kernel { name: "moe_down", op: OP, params: &[], matrices: &[] };

impl Builder {
    /// x {rows, tokens} += Σ `w[ids[slot]] · y[slot]` + shared · the last y, for w {columns, rows, experts} and shared
    /// {shared columns, rows}.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn moe_down(
        &mut self,
        label: &str,
        w: &Weight,
        shared: &Weight,
        hidden: &Hidden,
        x: &Tensor,
        next: &Norm,
    ) -> Result<Residual> {
        let [columns, rows, _] = w.shape;
        let (top_k, tokens, y) = (hidden.ids.shape[0], self.rows(), &hidden.y.tensor);
        let buffers = matvec::buffers_of(&[w, shared]) + 4; // the hidden values, state, ids, x
        let epilogue = self.epilogue_for((&KERNEL, buffers), x, "x", next);
        expect_shape(KERNEL.name, &w.name, y.shape[0], columns.max(shared.shape[0]))?;
        expect_shape(KERNEL.name, &w.name, y.shape[1], (top_k + 1) * tokens)?;
        expect_shape(KERNEL.name, &shared.name, shared.shape[1], rows)?;
        expect_shape(KERNEL.name, &w.name, x.shape[0], rows)?;
        let product = MatvecProduct {
            epilogue,
            slots: top_k,
            groups: top_k * w.groups() + shared.groups(),
            ..MatvecProduct::new(&KERNEL, label, [("w", w), ("shared", shared)], Feed::Input(&hidden.y))
        };
        let direct = product.direct(self);
        let chosen = if direct { source!("lib/chosen_read.wgsl") } else { source!("lib/chosen_kept.wgsl") };
        let variant = self
            .count_files(product.variant(self))
            .file(chosen)
            .constant("Y_STRIDE", "", x.stride)
            .file_for("w", source!("lib/rows.wgsl"))
            .file_for("shared", source!("lib/rows.wgsl"))
            .constant("TOP_K", "k", top_k);
        let mut bindings = product.bindings(self);
        bindings.extend(self.bound_count());
        let others = [("ids", hidden.ids.buffer), ("y", x.buffer)];
        bindings.extend(others.map(|(name, buffer)| self.bound(name, buffer)));
        let weights = Cost::of_slots(w, top_k * tokens) + Cost::products(shared, 1, tokens);
        let cost = product.cost(2 * x.bytes()) + weights;
        let grid = product.grid(self, product.blocks(self, rows));
        let reference = Down {
            w: w.clone(),
            shared: shared.clone(),
            ids: hidden.ids.buffer,
            top_k,
            hidden: product.operand(self),
            x: *x,
            side_output: epilogue.side_output(),
            errors: Errors::of_sums(PRODUCT),
        };
        self.computes(KERNEL.name, reference);
        self.step(label, variant, bindings, &(), grid, cost)?;
        Ok(Residual { rounded: epilogue.rounded, ..Residual::from(*x) })
    }
}
