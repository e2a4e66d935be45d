//! The first half of the chosen experts: silu(gate · x) · (up · x) with matrices chosen on the GPU.

use super::computes::{Terms, Which};
use super::matvec::{Feed, Input, MatvecProduct};
use super::rounded::Epilogue;
use super::{Kernel, expect_shape};
use crate::error::Result;
use crate::gguf::Shape;
use crate::plan::{Builder, Cost, Tensor, Weight};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/gate_up_id.wgsl");

pub(super) const KERNEL: Kernel = Kernel { name: "gate_up_id", op: OP, params: &[], matrices: &[], several: false };

impl Builder {
    /// y {rows, slots} = `silu(gate[e] · x) · (up[e] · x)` with `e = ids[slot]`, for gate and up
    /// {columns, rows, experts}, ids {slots} (u32, below `experts`) and x {columns}.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn gate_up_id(&mut self, label: &str, gate: &Weight, up: &Weight, ids: &Tensor, x: &Input) -> Result<Tensor> {
        let [columns, rows, _] = gate.shape;
        let slots = ids.shape[0];
        expect_shape(KERNEL.name, &up.name, Shape(&up.shape).to_string(), Shape(&gate.shape).to_string())?;
        let product = MatvecProduct {
            kernel: KERNEL.name,
            label,
            op: OP,
            roles: &[("w_gate", gate), ("w_up", up)],
            feed: Feed::Input(x),
            epilogue: Epilogue::default(),
            rows,
            layers: slots,
            together: 1,
            groups: gate.groups(),
        };
        product.expect_input(columns, 1)?;
        let y = self.tensor(label, [rows, slots]);
        let variant = product
            .variant(self)
            .constant("Y_STRIDE", "y", y.stride)
            .file(source!("lib/gated_rows.wgsl"))
            .file(source!("lib/swiglu.wgsl"))
            .file(source!("lib/gated.wgsl"));
        let mut bindings = product.bindings(self);
        bindings.extend([self.bound("ids", ids.buffer), self.bound("y", y.buffer)]);
        let weights = Cost::of_slots(gate, slots) + Cost::of_slots(up, slots);
        let cost = product.cost(ids.bytes() + y.bytes()) + weights;
        let grid = product.grid(self, product.blocks(self, rows));
        let terms = Terms::Gated { gate: gate.clone(), up: up.clone() };
        self.computes(KERNEL.name, product.reference(self, terms, Which::Ids(ids.buffer), &y));
        self.step(label, variant, bindings, &(), grid, cost)?;
        Ok(y)
    }
}
