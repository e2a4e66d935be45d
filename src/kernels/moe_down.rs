//! The second half of a mixture of experts: the chosen and the shared ones, onto the residual stream.

use super::matvec::{self, Feed, MatvecProduct, Norm, columns_for, dot, seen, wide};
use super::moe_gate_up::Hidden;
use super::reference::{Down, Errors, by_token};
use super::rounded::Residual;
use super::{Case, CaseBuilder, Kernel, expect_shape};
use crate::error::Result;
use crate::plan::{Builder, Cost, Target, Tensor, Weight};
use crate::quant::{Arithmetic, Quant};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/moe_down.wgsl");

pub(super) const KERNEL: Kernel = Kernel { name: "moe_down", op: OP, params: &[], matrices: &[], several: true, cases };

impl Builder {
    /// x {rows, tokens} += Σ `w[ids[slot]] · y[slot]` + shared · the last y, for w {columns, rows, experts} and shared
    /// {shared columns, rows}.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn moe_down(
        &mut self,
        label: &str,
        w: &Weight,
        shared: &Weight,
        hidden: &Hidden,
        x: &Tensor,
        next: &Norm,
    ) -> Result<Residual> {
        let [columns, rows, _] = w.shape;
        let (top_k, tokens, y) = (hidden.ids.shape[0], self.tokens(), &hidden.y.tensor);
        let epilogue = self.epilogue_for(x, "x", next);
        expect_shape(KERNEL.name, &w.name, y.shape[0], columns.max(shared.shape[0]))?;
        expect_shape(KERNEL.name, &w.name, y.shape[1], (top_k + 1) * tokens)?;
        expect_shape(KERNEL.name, &shared.name, shared.shape[1], rows)?;
        expect_shape(KERNEL.name, &w.name, x.shape[0], rows)?;
        let product = MatvecProduct {
            kernel: KERNEL.name,
            label,
            op: OP,
            roles: &[("w", w), ("shared", shared)],
            feed: Feed::Slots(&hidden.y),
            epilogue,
            rows,
            layers: 1,
            together: 1,
            groups: top_k * w.groups() + shared.groups(),
        };
        let variant = self
            .count_files(product.variant(self))
            .constant("Y_STRIDE", "", x.stride)
            .file(source!("lib/residual.wgsl"))
            .file_for("w", source!("lib/rows.wgsl"))
            .file_for("shared", source!("lib/rows.wgsl"))
            .constant("TOP_K", "k", top_k);
        let mut bindings = product.bindings(self);
        bindings.extend(self.bound_count());
        let others = [("ids", hidden.ids.buffer), ("y", x.buffer)];
        bindings.extend(others.map(|(name, buffer)| self.bound(name, buffer)));
        let weights = Cost::of_slots(w, top_k * tokens) + Cost::products(shared, 1, tokens);
        let cost = product.cost(2 * x.bytes()) + weights;
        let grid = product.grid(self, product.blocks(self, rows));
        let reference = Down {
            w: w.clone(),
            shared: shared.clone(),
            ids: hidden.ids.buffer,
            top_k,
            hidden: product.operand(self),
            x: by_token(x, tokens),
            left: epilogue.left(),
            errors: Errors::of_sums(matvec::bound(Arithmetic::Float)),
        };
        self.computes(KERNEL.name, reference);
        self.step(label, variant, bindings, &(), grid, cost)?;
        Ok(Residual { x: *x, rounded: epilogue.rounded })
    }
}

fn cases(target: Target) -> Result<Vec<Case>> {
    let case = |(i, quants)| case(target, quants, [45, 100][i % 2], [27, 32][i % 2], [1, 1, 2, 4][i % 4]);
    matvec::pairs(4).into_iter().enumerate().map(case).collect()
}

fn case(
    target: Target,
    (w_quant, shared_quant): (&'static Quant, &'static Quant),
    wider: usize,
    rows: usize,
    tokens: usize,
) -> Result<Case> {
    let (columns, shared_columns) = (columns_for(w_quant, 45), columns_for(shared_quant, wider));
    let chosen: Vec<[u32; 3]> = (0..tokens as u32).map(|token| [4, 1, 0].map(|expert| (expert + token) % 5)).collect();
    let (shape, shared_shape) = ([columns, rows, 5], [shared_columns, rows, 1]);
    let mut case = CaseBuilder::for_tokens(target, 1, tokens);
    let (w, ws) = case.weight("w", w_quant, shape)?;
    let (shared, shareds) = case.weight("shared", shared_quant, shared_shape)?;
    let ids = Tensor { shape: [3, tokens], ..case.chosen("ids", chosen.as_flattened()) };
    let width = columns.max(shared_columns);
    let mut hidden = case.noise(width * 4 * tokens);
    for (slot, values) in hidden.chunks_mut(width).enumerate() {
        values[if slot % 4 == 3 { shared_columns } else { columns }..].fill(0.0); // as the first half leaves it
    }
    let y = case.plan.tensor("hidden", [width, 4 * tokens]);
    let y = case.rounded_input(&y, "hidden", &hidden);
    let (x, before) = case.input("x", [shape[1], tokens]);
    let (weight, norms) = case.vector("norm", shape[1])?;
    let next = Norm { weight, epsilon: 1e-5 };
    let stream = case.plan.moe_down("down", &w, &shared, &Hidden { ids, y }, &x, &next)?;
    let slot = |slot: usize, columns: usize| {
        seen(&wide(&hidden[slot * width..][..columns]), columns, &[w_quant, shared_quant], target.arithmetic)
    };
    let element = |i: usize| {
        let (token, row) = (i / rows, i % rows);
        let of_chosen = |(s, &e): (usize, &u32)| dot(&ws, shape, e as usize, row, &slot(4 * token + s, columns));
        let shared = dot(&shareds, shared_shape, 0, row, &slot(4 * token + 3, shared_columns));
        let before = (before[i] as f64, before[i].abs() as f64);
        let terms = chosen[token].iter().enumerate().map(of_chosen).chain([shared, before]);
        terms.fold((0.0, 0.0), |sum, term| (sum.0 + term.0, sum.1 + term.1))
    };
    let (want, sizes): (Vec<f64>, Vec<f64>) = (0..rows * tokens).map(element).unzip();
    case.probe_stream(&stream, &next, &want, &norms)?;
    case.expect(&x, want, sizes, matvec::bound(target.arithmetic));
    Ok(case.finish(format!(
        "{} {columns}, {} {shared_columns}, {rows} rows, {tokens} tokens",
        w_quant.name, shared_quant.name
    )))
}
