//! Matrix times vector, the matrix chosen on the GPU.

use super::matvec::{self, Feed, Input, MatvecProduct, columns_for, dot, seen};
use super::reference::{Terms, Which};
use super::rounded::Epilogue;
use super::{Case, CaseBuilder, Kernel};
use crate::error::Result;
use crate::plan::{Builder, Cost, Target, Tensor, Weight};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/mul_mv_id.wgsl");

pub(super) const KERNEL: Kernel =
    Kernel { name: "mul_mv_id", op: OP, params: &[], matrices: &[], several: false, cases };

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

fn cases(target: Target) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for (quant, (columns, rows, chosen)) in matvec::in_turn(&[(96, 21, [3u32, 0, 3].as_slice()), (45, 8, &[5])]) {
        let columns = columns_for(quant, columns);
        let shape = [columns, rows, 6];
        let mut case = CaseBuilder::new(target, 1);
        let (w, ws) = case.weight("experts", quant, shape)?;
        let (x, xs) = case.plain_input("x", [columns, chosen.len()]);
        let ids = case.chosen("ids", chosen);
        let y = case.plan.mul_mv_id("product", &w, &ids, &x)?;
        let xs = seen(&xs, columns, &[quant], target.arithmetic);
        let element = |i: usize| {
            let slot = i / rows;
            dot(&ws, shape, chosen[slot] as usize, i % rows, &xs[slot * columns..][..columns])
        };
        let (want, sizes) = (0..rows * chosen.len()).map(element).unzip();
        case.expect(&y, want, sizes, matvec::bound(target.arithmetic));
        cases.push(case.finish(format!("{} {columns}x{rows}x6 ids {chosen:?}", quant.name)));
    }
    Ok(cases)
}

impl CaseBuilder {
    /// Ids of chosen experts.
    pub(super) fn chosen(&mut self, name: &str, chosen: &[u32]) -> Tensor {
        let ids = self.plan.tensor(name, [chosen.len(), 1]);
        self.fill_bytes(ids.buffer, bytemuck::cast_slice(chosen).to_vec());
        ids
    }
}
