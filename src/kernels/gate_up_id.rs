//! The first half of the chosen experts: silu(gate · x) · (up · x) with matrices chosen on the GPU.

use super::gate_up::gated;
use super::matvec::{self, columns_for, dot, seen};
use super::{Case, CaseBuilder, Kernel, expect_shape, params};
use crate::error::Result;
use crate::gguf::Shape;
use crate::plan::{Builder, Moved, Target, Tensor, Weight};
use crate::quant::{QUANTS, Quant};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/gate_up_id.wgsl");

params! { rows: u32, groups: u32, y_stride: u32 }

pub(super) const KERNEL: Kernel = Kernel { name: "gate_up_id", op: OP, params: Params::FIELDS, cases };

impl Builder {
    /// y {rows, slots} = `silu(gate[e] · x) · (up[e] · x)` with `e = ids[slot]`, for gate and up
    /// {columns, rows, experts}, ids {slots} (u32, below `experts`) and x {columns}.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn gate_up_id(&mut self, label: &str, gate: &Weight, up: &Weight, ids: &Tensor, x: &Tensor) -> Result<Tensor> {
        let [columns, rows, _] = gate.shape;
        let slots = ids.shape[0];
        expect_shape(KERNEL.name, &up.name, Shape(&up.shape).to_string(), Shape(&gate.shape).to_string())?;
        expect_shape(KERNEL.name, &gate.name, columns, x.shape[0])?;
        let y = self.tensor(label, [rows, slots]);
        let variant = matvec::variant(KERNEL.name, OP, self)
            .dot("gate", gate.quant, self.arithmetic())
            .dot("up", up.quant, self.arithmetic())
            .file(source!("lib/gated_rows.wgsl"));
        let mut bindings = matvec::weights(self, &[("gate", gate), ("up", up)]);
        bindings.extend([self.bound("ids", ids.buffer), self.bound("x", x.buffer), self.bound("y", y.buffer)]);
        let params = Params { rows: rows as u32, groups: gate.groups() as u32, y_stride: y.stride as u32 };
        let weights = slots as u64 * (gate.matrix_bytes() + up.matrix_bytes());
        let moved = Moved { weights, activations: ids.bytes() + x.bytes() + y.bytes(), cache: 0 };
        self.step(label, variant, bindings, &params, matvec::grid(rows, slots), moved)?;
        Ok(y)
    }
}

fn cases(target: Target) -> Result<Vec<Case>> {
    let next = |i: usize| QUANTS[(i + 5) % QUANTS.len()];
    let pairs = QUANTS.iter().enumerate().flat_map(|(i, quant)| [(*quant, *quant), (*quant, next(i))]);
    pairs.map(|(gate, up)| case(target, gate, up)).collect()
}

fn case(target: Target, gate_quant: &'static Quant, up_quant: &'static Quant) -> Result<Case> {
    let chosen: [u32; 3] = [4, 1, 0];
    let columns = columns_for(up_quant, columns_for(gate_quant, 45));
    let shape = [columns, 11, 5];
    let mut case = CaseBuilder::new(target, 1);
    let (gate, gates) = case.weight("gate", gate_quant, shape)?;
    let (up, ups) = case.weight("up", up_quant, shape)?;
    let (x, xs) = case.input("x", [columns, 1]);
    let ids = case.plan.tensor("ids", [chosen.len(), 1]);
    case.fill_bytes(ids.buffer, bytemuck::cast_slice(&chosen).to_vec());
    let y = case.plan.gate_up_id("y", &gate, &up, &ids, &x)?;
    let xs_gate = seen(&xs, columns, gate_quant, target.arithmetic);
    let xs_up = seen(&xs, columns, up_quant, target.arithmetic);
    let element = |i: usize| {
        let (expert, row) = (chosen[i / shape[1]] as usize, i % shape[1]);
        gated(dot(&gates, shape, expert, row, &xs_gate), dot(&ups, shape, expert, row, &xs_up))
    };
    let (want, sizes) = (0..shape[1] * chosen.len()).map(element).unzip();
    case.expect(&y, want, sizes, matvec::bound(target.arithmetic));
    Ok(case.finish(format!("{} {} {columns}x{}x5 ids {chosen:?}", gate_quant.name, up_quant.name, shape[1])))
}
