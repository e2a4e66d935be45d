//! Matrix times vector, for one matrix or a stack of them.

use super::matvec::{self, columns_for, dot, seen};
use super::{Case, CaseBuilder, Kernel, expect_multiple, expect_shape, params};
use crate::error::Result;
use crate::gguf::Shape;
use crate::plan::{Builder, Moved, Target, Tensor, Weight};
use crate::quant::{QUANTS, Quant};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/mul_mv.wgsl");

params! { rows: u32, groups: u32, x_stride: u32, y_stride: u32 }

pub(super) const KERNEL: Kernel = Kernel { name: "mul_mv", op: OP, params: Params::FIELDS, cases };

/// What becomes of what `y` held.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Write {
    Replace,
    Add,
}

impl Builder {
    /// y {rows, n} = w · x, for w {columns, rows, n} and x {columns, n}: matrix *i* times vector *i*.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn mul_mv(&mut self, label: &str, w: &Weight, x: &Tensor) -> Result<Tensor> {
        let y = self.tensor(label, [w.shape[1], w.shape[2]]);
        self.mul_mv_into(label, w, x, &y)?;
        Ok(y)
    }

    /// As [`Builder::mul_mv`], into a tensor that is there.
    ///
    /// # Errors
    /// As [`Builder::mul_mv`].
    pub fn mul_mv_into(&mut self, label: &str, w: &Weight, x: &Tensor, y: &Tensor) -> Result<()> {
        self.mul_mv_step(label, w, x, y, Write::Replace)
    }

    /// y {rows, n} += w · x: a product that joins the residual stream.
    ///
    /// # Errors
    /// As [`Builder::mul_mv`].
    pub fn mul_mv_add(&mut self, label: &str, w: &Weight, x: &Tensor, y: &Tensor) -> Result<()> {
        self.mul_mv_step(label, w, x, y, Write::Add)
    }

    fn mul_mv_step(&mut self, label: &str, w: &Weight, x: &Tensor, y: &Tensor, write: Write) -> Result<()> {
        let [columns, rows, matrices] = w.shape;
        expect_shape(KERNEL.name, &w.name, Shape(&x.shape).to_string(), Shape(&[columns, matrices]).to_string())?;
        expect_shape(KERNEL.name, &w.name, Shape(&y.shape).to_string(), Shape(&[rows, matrices]).to_string())?;
        expect_multiple(KERNEL.name, &w.name, x.stride, 4)?;
        let variant = matvec::variant(KERNEL.name, OP, self)
            .switch("ACCUMULATE", "a", write == Write::Add)
            .dot("w", w.quant, self.arithmetic())
            .file(source!("lib/rows.wgsl"));
        let mut bindings = self.bound_weight("w", w);
        bindings.extend([self.bound("x", x.buffer), self.bound("y", y.buffer)]);
        let params = Params {
            rows: rows as u32,
            groups: w.groups() as u32,
            x_stride: x.stride as u32 / 4,
            y_stride: y.stride as u32,
        };
        let touched = if write == Write::Add { 2 } else { 1 };
        let activations = x.bytes() + touched * y.bytes();
        let moved = Moved { weights: w.matrix_bytes() * matrices as u64, activations, cache: 0 };
        self.step(label, variant, bindings, &params, matvec::grid(rows, matrices), moved)
    }
}

fn cases(target: Target) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for quant in QUANTS {
        for shape in [[96, 5, 1], [1024, 33, 2], [70, 17, 3], [7, 9, 1]] {
            cases.push(case(target, quant, shape, Write::Replace)?);
        }
        cases.push(case(target, quant, [64, 19, 1], Write::Add)?);
    }
    // More rows than one dimension of the grid has workgroups for.
    cases.push(case(target, &crate::quant::Q4_0, [32, 8 * 65535 + 13, 1], Write::Replace)?);
    Ok(cases)
}

fn case(target: Target, quant: &'static Quant, shape: [usize; 3], write: Write) -> Result<Case> {
    let shape = [columns_for(quant, shape[0]), shape[1], shape[2]];
    let [columns, rows, matrices] = shape;
    let mut case = CaseBuilder::new(target, 1);
    let (w, ws) = case.weight("w", quant, shape)?;
    let (x, xs) = case.input("x", [columns, matrices]);
    let (y, before) = case.input("y", [rows, matrices]);
    case.plan.mul_mv_step("product", &w, &x, &y, write)?;
    let xs = seen(&xs, columns, quant, target.arithmetic);
    let element = |i: usize| {
        let (matrix, row) = (i / rows, i % rows);
        let (sum, size) = dot(&ws, shape, matrix, row, &xs[matrix * columns..][..columns]);
        let before = if write == Write::Add { before[i] as f64 } else { 0.0 };
        (sum + before, size + before.abs())
    };
    let (want, sizes) = (0..rows * matrices).map(element).unzip();
    case.expect(&y, want, sizes, matvec::bound(target.arithmetic));
    let verb = if write == Write::Add { " added" } else { "" };
    Ok(case.finish(format!("{} {columns}x{rows}x{matrices}{verb}", quant.name)))
}
