//! Two matrices times the same vector.

use super::matmul::products;
use super::matvec::{self, Feed, Input, MatvecProduct, Norm, columns_for, seen};
use super::reference::{self, Terms, Which};
use super::rounded::{Epilogue, Residual};
use super::{Case, CaseBuilder, Kernel, expect_shape};
use crate::error::Result;
use crate::plan::{Builder, Cost, Target, Tensor, Weight};
use crate::quant::Quant;
use crate::wgsl::{Source, source};

const OP: Source = source!("op/mul_mv_pair.wgsl");

pub(super) const KERNEL: Kernel =
    Kernel { name: "mul_mv_pair", op: OP, params: &[], matrices: &[], several: true, cases };

impl Builder {
    /// y {rows of w, n} = w · x and z {rows of v, n} = v · x, for w {columns, rows}, v {columns, rows} and
    /// x {columns, n}. `names` are those of y and z; the norm `next` follows on y.
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
        let epilogue = next.map_or(Epilogue::default(), |next| self.epilogue_for(&y, names[0], next));
        let product = MatvecProduct {
            kernel: KERNEL.name,
            label,
            op: OP,
            roles: &[("w", w), ("v", v)],
            feed: Feed::Input(x),
            epilogue,
            rows: first + second,
            layers: 1,
            together: vectors,
            groups: w.groups(),
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
        let second = product.reference(self, one(v), Which::InTurn, &z);
        let second = reference::Product { left: None, ..second };
        self.computes(KERNEL.name, (product.reference(self, one(w), Which::InTurn, &y), second));
        self.step(label, variant, bindings, &(), grid, cost)?;
        Ok((Residual { x: y, rounded: epilogue.rounded }, z))
    }
}

fn cases(target: Target) -> Result<Vec<Case>> {
    matvec::pairs(3)
        .into_iter()
        .enumerate()
        .map(|(i, (w, v))| case(target, w, v, [45, 64][i % 2], [1, 2, 4, 8, 1][i % 5]))
        .collect()
}

fn case(target: Target, w_quant: &'static Quant, v_quant: &'static Quant, rows: usize, tokens: usize) -> Result<Case> {
    let columns = columns_for(v_quant, columns_for(w_quant, 70));
    let (first, second) = ([columns, rows, 1], [columns, 3, 1]);
    let mut case = CaseBuilder::for_tokens(target, 1, tokens);
    let (w, ws) = case.weight("w", w_quant, first)?;
    let (v, vs) = case.weight("v", v_quant, second)?;
    let (x, xs) = case.normed_input("x", [columns, tokens])?;
    let (weight, norms) = case.vector("norm", rows)?;
    let next = Norm { weight, epsilon: 1e-5 };
    let (y, z) = case.plan.mul_mv_pair("pair", ["y", "z"], &w, &v, &x, Some(&next))?;
    let xs = seen(&xs, columns, &[w_quant, v_quant], target.arithmetic);
    for (output, (values, shape)) in [y.x, z].iter().zip([(&ws, first), (&vs, second)]) {
        let (want, sizes): (Vec<f64>, Vec<f64>) = products(values, shape, &xs).into_iter().unzip();
        if shape == first {
            case.probe_stream(&y, &next, &want, &norms)?;
        }
        case.expect(output, want, sizes, matvec::bound(target.arithmetic));
    }
    Ok(case.finish(format!("{} {} of {columns} columns, {tokens} tokens", w_quant.name, v_quant.name)))
}
