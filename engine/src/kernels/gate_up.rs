//! The first half of a dense feed-forward: silu(gate · x) · (up · x).

use super::computes::{MatrixSelection, Terms};
use super::matvec::{Feed, Input, MatvecProduct};
use super::rounded::Epilogue;
use super::{Kernel, expect_shape};
use crate::error::Result;
use crate::gguf::Shape;
use crate::plan::{Builder, Cost, Weight};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/gate_up.wgsl");

pub(super) const KERNEL: Kernel = Kernel { name: "gate_up", op: OP, params: &[], matrices: &[] };

impl Builder {
    /// y {rows, n} = silu(gate · x) · (up · x), for gate and up {columns, rows} and x {columns, n}.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn gate_up(&mut self, label: &str, gate: &Weight, up: &Weight, x: &Input) -> Result<Input> {
        let [columns, rows, _] = gate.shape;
        let vectors = x.tensor.shape[1];
        let y = self.tensor(label, [rows, vectors]);
        let rounded = self.rounded(KERNEL.name, &y, label);
        let epilogue = Epilogue { rounded, norm: None };
        expect_shape(KERNEL.name, &up.name, Shape(&up.shape).to_string(), Shape(&gate.shape).to_string())?;
        let product = MatvecProduct {
            epilogue,
            together: vectors,
            ..MatvecProduct::new(&KERNEL, label, [("w_gate", gate), ("w_up", up)], Feed::Input(x))
        };
        product.expect_input(columns, vectors)?;
        let variant = product
            .variant(self)
            .constant("Y_STRIDE", "y", y.stride)
            .file(source!("lib/gated_rows.wgsl"))
            .file(source!("lib/activations.wgsl"))
            .file(source!("lib/gated.wgsl"));
        let mut bindings = product.bindings(self);
        bindings.push(self.bound("y", y.buffer));
        let cost = product.cost(y.bytes()) + Cost::products(gate, 1, vectors) + Cost::products(up, 1, vectors);
        let grid = product.grid(self, product.blocks(self, rows));
        let terms = Terms::Gated { gate: gate.clone(), up: up.clone(), limit_to_f16: false };
        self.computes(KERNEL.name, product.reference(self, terms, MatrixSelection::InTurn, &y));
        self.step(label, variant, bindings, &(), grid, cost)?;
        Ok(Input { tensor: y, norm: None, rounded })
    }
}
