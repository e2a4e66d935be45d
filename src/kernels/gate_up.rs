//! The first half of a dense feed-forward: silu(gate · x) · (up · x).

use super::matmul::products;
use super::matvec::{self, Feed, Input, MatvecProduct, columns_for, gated, seen};
use super::reference::{Terms, Which};
use super::rounded::Epilogue;
use super::{Case, CaseBuilder, Kernel, expect_shape};
use crate::error::Result;
use crate::gguf::Shape;
use crate::plan::{Builder, Cost, Target, Weight};
use crate::quant::Quant;
use crate::wgsl::{Source, source};

const OP: Source = source!("op/gate_up.wgsl");

pub(super) const KERNEL: Kernel = Kernel { name: "gate_up", op: OP, params: &[], matrices: &[], several: true, cases };

impl Builder {
    /// y {rows, n} = silu(gate · x) · (up · x), for gate and up {columns, rows} and x {columns, n}.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn gate_up(&mut self, label: &str, gate: &Weight, up: &Weight, x: &Input) -> Result<Input> {
        let [columns, rows, _] = gate.shape;
        let vectors = x.tensor.shape[1];
        let y = self.tensor(label, [rows, vectors]);
        let rounded = self.rounded(&y, label);
        let epilogue = Epilogue { rounded, norm: None };
        expect_shape(KERNEL.name, &up.name, Shape(&up.shape).to_string(), Shape(&gate.shape).to_string())?;
        let product = MatvecProduct {
            kernel: KERNEL.name,
            label,
            op: OP,
            roles: &[("w_gate", gate), ("w_up", up)],
            feed: Feed::Input(x),
            epilogue,
            rows,
            layers: 1,
            together: vectors,
            groups: gate.groups(),
        };
        product.expect_input(columns, vectors)?;
        let variant = product
            .variant(self)
            .constant("Y_STRIDE", "y", y.stride)
            .file(source!("lib/gated_rows.wgsl"))
            .file(source!("lib/swiglu.wgsl"))
            .file(source!("lib/gated.wgsl"));
        let mut bindings = product.bindings(self);
        bindings.push(self.bound("y", y.buffer));
        let cost = product.cost(y.bytes()) + Cost::products(gate, 1, vectors) + Cost::products(up, 1, vectors);
        let grid = product.grid(self, product.blocks(self, rows));
        let terms = Terms::Gated { gate: gate.clone(), up: up.clone() };
        self.computes(KERNEL.name, product.reference(self, terms, Which::InTurn, &y));
        self.step(label, variant, bindings, &(), grid, cost)?;
        Ok(Input { tensor: y, norm: None, rounded })
    }
}

fn cases(target: Target) -> Result<Vec<Case>> {
    let case = |(i, (gate, up))| case(target, [gate, up], i % 2 == 1, [21, 32, 48][i % 3], [1, 2, 1, 4, 8][i % 5]);
    matvec::pairs(1).into_iter().enumerate().map(case).collect()
}

fn case(target: Target, quants: [&'static Quant; 2], normed: bool, rows: usize, tokens: usize) -> Result<Case> {
    let columns = quants.iter().fold(70, |columns, quant| columns_for(quant, columns));
    let shape = [columns, rows, 1];
    let mut case = CaseBuilder::for_tokens(target, 1, tokens);
    let (gate, gates) = case.weight("gate", quants[0], shape)?;
    let (up, ups) = case.weight("up", quants[1], shape)?;
    let (x, xs) =
        if normed { case.normed_input("x", [columns, tokens])? } else { case.plain_input("x", [columns, tokens]) };
    let y = case.plan.gate_up("gated", &gate, &up, &x)?;
    let xs = seen(&xs, columns, &quants, target.arithmetic);
    let pairs = products(&gates, shape, &xs).into_iter().zip(products(&ups, shape, &xs));
    let (want, sizes): (Vec<f64>, Vec<f64>) = pairs.map(|(gate, up)| gated(gate, up)).unzip();
    case.probe(&y, &want)?;
    case.expect(&y.tensor, want, sizes, matvec::bound(target.arithmetic));
    let how = if normed { " normed" } else { "" };
    Ok(case.finish(format!("{} {} {columns}x{rows}{how}, {tokens} tokens", quants[0].name, quants[1].name)))
}
