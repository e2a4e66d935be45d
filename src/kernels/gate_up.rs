//! The first half of a SwiGLU feed-forward: silu(gate · x) · (up · x).

use super::matvec::{self, columns_for, dot, seen, silu};
use super::{Case, CaseBuilder, Kernel, expect_shape, params};
use crate::error::Result;
use crate::gguf::Shape;
use crate::plan::{Builder, Moved, Target, Tensor, Weight};
use crate::quant::{QUANTS, Quant};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/gate_up.wgsl");

params! { rows: u32, groups: u32 }

pub(super) const KERNEL: Kernel = Kernel { name: "gate_up", op: OP, params: Params::FIELDS, cases };

impl Builder {
    /// y {rows} = silu(gate · x) · (up · x), for gate and up {columns, rows} and x {columns}.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn gate_up(&mut self, label: &str, gate: &Weight, up: &Weight, x: &Tensor) -> Result<Tensor> {
        let [columns, rows, _] = gate.shape;
        expect_shape(KERNEL.name, &up.name, Shape(&up.shape).to_string(), Shape(&gate.shape).to_string())?;
        expect_shape(KERNEL.name, &gate.name, columns, x.shape[0])?;
        let y = self.tensor(label, [rows, 1]);
        let variant = matvec::variant(KERNEL.name, OP, self)
            .dot("gate", gate.quant, self.arithmetic())
            .dot("up", up.quant, self.arithmetic())
            .file(source!("lib/gated_rows.wgsl"));
        let mut bindings = matvec::weights(self, &[("gate", gate), ("up", up)]);
        bindings.extend([self.bound("x", x.buffer), self.bound("y", y.buffer)]);
        let params = Params { rows: rows as u32, groups: gate.groups() as u32 };
        let weights = gate.matrix_bytes() + up.matrix_bytes();
        let moved = Moved { weights, activations: x.bytes() + y.bytes(), cache: 0 };
        self.step(label, variant, bindings, &params, matvec::grid(rows, 1), moved)?;
        Ok(y)
    }
}

/// silu(gate · x) · (up · x) of one row, and what an error of it is measured against: the relative
/// errors of both factors add up.
pub(super) fn gated(gate: (f64, f64), up: (f64, f64)) -> (f64, f64) {
    (silu(gate.0) * up.0, gate.1 * up.0.abs() + silu(gate.0).abs() * up.1 + gate.1 * up.1 * 1e-6)
}

fn cases(target: Target) -> Result<Vec<Case>> {
    let next = |i: usize| QUANTS[(i + 1) % QUANTS.len()];
    let pairs = QUANTS.iter().enumerate().flat_map(|(i, quant)| [(*quant, *quant), (*quant, next(i))]);
    pairs.map(|(gate, up)| case(target, gate, up)).collect()
}

fn case(target: Target, gate_quant: &'static Quant, up_quant: &'static Quant) -> Result<Case> {
    let columns = columns_for(up_quant, columns_for(gate_quant, 70));
    let shape = [columns, 21, 1];
    let mut case = CaseBuilder::new(target, 1);
    let (gate, gates) = case.weight("gate", gate_quant, shape)?;
    let (up, ups) = case.weight("up", up_quant, shape)?;
    let (x, xs) = case.input("x", [columns, 1]);
    let y = case.plan.gate_up("y", &gate, &up, &x)?;
    let xs_gate = seen(&xs, columns, gate_quant, target.arithmetic);
    let xs_up = seen(&xs, columns, up_quant, target.arithmetic);
    let element = |row| gated(dot(&gates, shape, 0, row, &xs_gate), dot(&ups, shape, 0, row, &xs_up));
    let (want, sizes) = (0..shape[1]).map(element).unzip();
    case.expect(&y, want, sizes, matvec::bound(target.arithmetic));
    Ok(case.finish(format!("{} {} {columns}x{}", gate_quant.name, up_quant.name, shape[1])))
}
