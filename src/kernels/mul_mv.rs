//! Matrix times vector, for one matrix or a stack of them.

use super::matmul::products;
use super::matvec::{self, Feed, Input, MatvecProduct, Norm, columns_for, dot, seen, wide};
use super::reference::{Terms, Which};
use super::rounded::{Epilogue, Residual};
use super::{Case, CaseBuilder, Kernel, expect_multiple, expect_shape, rms_norm};
use crate::error::Result;
use crate::plan::{Builder, Cost, Target, Tensor, Weight};
use crate::quant::{Arithmetic, Quant};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/mul_mv.wgsl");

pub(super) const KERNEL: Kernel = Kernel { name: "mul_mv", op: OP, params: &[], matrices: &[], several: true, cases };

/// What becomes of what `y` held.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Write {
    Replace,
    Add,
}

impl Builder {
    /// y {rows, n} = w · x, for w {columns, rows, matrices} and x {columns, n}: vector *i* times matrix *i*, or where
    /// there are more vectors than matrices, times these in turn.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn mul_mv(&mut self, label: &str, w: &Weight, x: &Input) -> Result<Tensor> {
        let y = self.tensor(label, [w.shape[1], x.tensor.shape[1]]);
        self.mul_mv_into(label, w, x, &y)?;
        Ok(y)
    }

    /// As [`Builder::mul_mv`], into a tensor that is there.
    ///
    /// # Errors
    /// As [`Builder::mul_mv`].
    pub fn mul_mv_into(&mut self, label: &str, w: &Weight, x: &Input, y: &Tensor) -> Result<()> {
        self.mul_mv_step(label, w, x, y, Write::Replace, Epilogue::default())
    }

    /// y {rows, n} += w · x: a product that joins the residual stream, on which the norm `next` follows.
    ///
    /// # Errors
    /// As [`Builder::mul_mv`].
    pub fn mul_mv_add(&mut self, label: &str, w: &Weight, x: &Input, y: &Tensor, next: &Norm) -> Result<Residual> {
        let epilogue = self.epilogue_for(y, "x", next);
        self.mul_mv_step(label, w, x, y, Write::Add, epilogue)?;
        Ok(Residual { x: *y, rounded: epilogue.rounded })
    }

    fn mul_mv_step(
        &mut self,
        label: &str,
        w: &Weight,
        x: &Input,
        y: &Tensor,
        write: Write,
        epilogue: Epilogue<'_>,
    ) -> Result<()> {
        let [columns, rows, matrices] = w.shape;
        let vectors = y.shape[1];
        let product = MatvecProduct {
            kernel: KERNEL.name,
            label,
            op: OP,
            roles: &[("w", w)],
            feed: Feed::Input(x),
            epilogue,
            rows,
            layers: vectors / self.tokens(),
            together: if matrices == 1 { vectors } else { 1 },
            groups: w.groups(),
        };
        product.expect_input(columns, vectors)?;
        expect_multiple(KERNEL.name, &w.name, vectors, matrices)?;
        expect_shape(KERNEL.name, &w.name, y.shape[0], rows)?;
        let variant = product
            .variant(self)
            .switch("ACCUMULATE", "a", write == Write::Add)
            .constant("MATRICES", "m", matrices)
            .constant("Y_STRIDE", "y", y.stride)
            .file(source!("lib/residual.wgsl"))
            .file(source!("lib/rows.wgsl"));
        let mut bindings = product.bindings(self);
        bindings.push(self.bound("y", y.buffer));
        let touched = if write == Write::Add { 2 } else { 1 };
        let cost = product.cost(touched * y.bytes()) + Cost::products(w, matrices, vectors / matrices);
        let grid = product.grid(self, product.blocks(self, rows));
        let terms = Terms::One { w: w.clone(), add: write == Write::Add };
        self.computes(KERNEL.name, product.reference(self, terms, Which::InTurn, y));
        self.step_in_parts(label, variant, bindings, (grid, 2), cost)
    }
}

/// A product in a case: the weight's shape, how many vectors for each matrix, and what is done to them.
#[derive(Clone, Copy)]
struct Example {
    shape: [usize; 3],
    tokens: usize,
    write: Write,
    normed: bool,
}

fn cases(target: Target) -> Result<Vec<Case>> {
    use Write::{Add, Replace};
    let mut cases = Vec::new();
    let shapes = [
        ([96, 5, 1], 1, Replace, false),
        ([1024, 33, 2], 1, Replace, false),
        ([70, 17, 3], 2, Replace, false),
        ([7, 9, 1], 4, Replace, false),
        ([64, 19, 1], 8, Add, false),
        ([300, 12, 1], 1, Replace, true),
        ([64, 19, 1], 1, Add, false),
        ([300, 12, 1], 8, Replace, true),
        ([300, 260, 1], 2, Replace, true),
        ([96, 5, 1], 6, Add, false),
    ];
    let example = |(shape, tokens, write, normed)| Example { shape, tokens, write, normed };
    for (quant, example) in matvec::in_turn(&shapes.map(example)) {
        cases.push(case(target, quant, example)?);
    }
    for (i, &(quant, _)) in matvec::pairs(1).iter().enumerate() {
        cases.push(stream_case(target, quant, [64, [32, 64, 96][i % 3], 1], [1, 2, 4, 8][i % 4])?);
    }
    // More rows than one dimension of the grid has workgroups for, and a row of several tiles.
    let plain = |shape, tokens| Example { shape, tokens, write: Replace, normed: false };
    if target.arithmetic == Arithmetic::Float {
        cases.push(case(target, &crate::quant::Q4_0, plain([32, 32 * 65535 + 13, 1], 1))?);
    }
    cases.push(case(target, &crate::quant::Q4_0, Example { normed: true, ..plain([15_008, 9, 1], 1) })?);
    cases.push(case(target, &crate::quant::Q4_0, Example { normed: true, ..plain([15_008, 9, 1], 4) })?);
    Ok(cases)
}

fn case(target: Target, quant: &'static Quant, example: Example) -> Result<Case> {
    let Example { shape, tokens, write, normed } = example;
    let shape = [columns_for(quant, shape[0]), shape[1], shape[2]];
    let [columns, rows, matrices] = shape;
    let vectors = matrices * tokens;
    let mut case = CaseBuilder::for_tokens(target, 1, tokens);
    let (w, ws) = case.weight("w", quant, shape)?;
    let (x, xs) =
        if normed { case.normed_input("x", [columns, vectors])? } else { case.plain_input("x", [columns, vectors]) };
    let (y, before) = case.input("y", [rows, vectors]);
    case.plan.mul_mv_step("product", &w, &x, &y, write, Epilogue::default())?;
    let xs = seen(&xs, columns, &[quant], target.arithmetic);
    let element = |i: usize| {
        let (vector, row) = (i / rows, i % rows);
        let (sum, size) = dot(&ws, shape, vector % matrices, row, &xs[vector * columns..][..columns]);
        let before = if write == Write::Add { before[i] as f64 } else { 0.0 };
        (sum + before, size + before.abs())
    };
    let (want, sizes) = (0..rows * vectors).map(element).unzip();
    case.expect(&y, want, sizes, matvec::bound(target.arithmetic));
    let how = [(write == Write::Add, " added"), (normed, " normed")];
    let how: String = how.into_iter().filter(|(on, _)| *on).map(|(_, how)| how).collect();
    Ok(case.finish(format!("{} {columns}x{rows}x{matrices}{how}, {tokens} tokens", quant.name)))
}

/// A product onto the residual stream, and what it leaves for the product that follows.
fn stream_case(target: Target, quant: &'static Quant, shape: [usize; 3], tokens: usize) -> Result<Case> {
    let shape = [columns_for(quant, shape[0]), shape[1], 1];
    let mut case = CaseBuilder::for_tokens(target, 1, tokens);
    let (w, ws) = case.weight("w", quant, shape)?;
    let (x, xs) = case.plain_input("x", [shape[0], tokens]);
    let (y, before) = case.input("y", [shape[1], tokens]);
    let (weight, norms) = case.vector("norm", shape[1])?;
    let next = Norm { weight, epsilon: 1e-5 };
    let stream = case.plan.mul_mv_add("product", &w, &x, &y, &next)?;
    let xs = seen(&xs, shape[0], &[quant], target.arithmetic);
    let (want, sizes): (Vec<f64>, Vec<f64>) = products(&ws, shape, &xs)
        .into_iter()
        .zip(&before)
        .map(|((sum, size), &b)| (sum + b as f64, size + b.abs() as f64))
        .unzip();
    case.probe_stream(&stream, &next, &want, &norms)?;
    case.expect(&y, want, sizes, matvec::bound(target.arithmetic));
    Ok(case.finish(format!("{} {}x{} onto the stream, {tokens} tokens", quant.name, shape[0], shape[1])))
}

impl CaseBuilder {
    /// Vectors of noise as an input: it, and the values a product sees.
    pub(super) fn plain_input(&mut self, name: &str, shape: [usize; 2]) -> (Input, Vec<f64>) {
        let (x, xs) = self.input(name, shape);
        (Input::from(&x), wide(&xs))
    }

    /// Vectors of noise with a norm to be applied to each: they, and the values a product sees.
    pub(super) fn normed_input(&mut self, name: &str, shape: [usize; 2]) -> Result<(Input, Vec<f64>)> {
        let (x, xs) = self.input(name, shape);
        let (weight, ws) = self.vector(&format!("{name}.norm"), shape[0])?;
        let norm = Norm { weight, epsilon: 1e-5 };
        Ok((Input { tensor: x, norm: Some(norm), rounded: None }, rms_norm::expected(&xs, &ws, 1e-5)))
    }
}
