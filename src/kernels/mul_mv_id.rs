//! Matrix times vector, the matrix chosen on the GPU.

use super::matvec::{self, columns_for, dot, seen};
use super::{Case, CaseBuilder, Kernel, expect_multiple, expect_shape, params};
use crate::error::Result;
use crate::plan::{Builder, Moved, Target, Tensor, Weight};
use crate::quant::QUANTS;
use crate::wgsl::{Source, source};

const OP: Source = source!("op/mul_mv_id.wgsl");

params! { rows: u32, groups: u32, x_stride: u32, y_stride: u32 }

pub(super) const KERNEL: Kernel = Kernel { name: "mul_mv_id", op: OP, params: Params::FIELDS, cases };

impl Builder {
    /// y {rows, slots} = `w[ids[slot]] · x[slot]`, for w {columns, rows, experts}, ids {slots} (u32, below
    /// `experts`) and x {columns, slots}.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn mul_mv_id(&mut self, label: &str, w: &Weight, ids: &Tensor, x: &Tensor) -> Result<Tensor> {
        let [columns, rows, _] = w.shape;
        let slots = ids.shape[0];
        expect_shape(KERNEL.name, &w.name, x.shape[0], columns)?;
        expect_shape(KERNEL.name, "ids", slots, x.shape[1])?;
        expect_multiple(KERNEL.name, &w.name, x.stride, 4)?;
        let y = self.tensor(label, [rows, slots]);
        let variant =
            matvec::variant(KERNEL.name, OP, self).dot("w", w.quant, self.arithmetic()).file(source!("lib/rows.wgsl"));
        let mut bindings = self.bound_weight("w", w);
        bindings.extend([self.bound("ids", ids.buffer), self.bound("x", x.buffer), self.bound("y", y.buffer)]);
        let params = Params {
            rows: rows as u32,
            groups: w.groups() as u32,
            x_stride: x.stride as u32 / 4,
            y_stride: y.stride as u32,
        };
        let moved = Moved {
            weights: w.matrix_bytes() * slots as u64,
            activations: ids.bytes() + x.bytes() + y.bytes(),
            cache: 0,
        };
        self.step(label, variant, bindings, &params, matvec::grid(rows, slots), moved)?;
        Ok(y)
    }
}

fn cases(target: Target) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for quant in QUANTS {
        for (columns, rows, chosen) in [(96, 21, [3u32, 0, 3].as_slice()), (45, 8, &[5])] {
            let columns = columns_for(quant, columns);
            let shape = [columns, rows, 6];
            let mut case = CaseBuilder::new(target, 1);
            let (w, ws) = case.weight("experts", quant, shape)?;
            let (x, xs) = case.input("x", [columns, chosen.len()]);
            let ids = case.plan.tensor("ids", [chosen.len(), 1]);
            case.fill_bytes(ids.buffer, bytemuck::cast_slice(chosen).to_vec());
            let y = case.plan.mul_mv_id("product", &w, &ids, &x)?;
            let xs = seen(&xs, columns, quant, target.arithmetic);
            let element = |i: usize| {
                let slot = i / rows;
                dot(&ws, shape, chosen[slot] as usize, i % rows, &xs[slot * columns..][..columns])
            };
            let (want, sizes) = (0..rows * chosen.len()).map(element).unzip();
            case.expect(&y, want, sizes, matvec::bound(target.arithmetic));
            cases.push(case.finish(format!("{} {columns}x{rows}x6 ids {chosen:?}", quant.name)));
        }
    }
    Ok(cases)
}
