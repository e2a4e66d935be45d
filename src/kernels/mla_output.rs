//! The heads' outputs: the attention's splits joined, and brought back from the latent.

use super::matmul::products;
use super::matvec::{self, Feed, Input, MatvecProduct, columns_for, seen};
use super::mla_attention::{AttentionSplits, Example, MOST_SPLITS, SCALE};
use super::reference::{self, Errors, Merged, Terms, Which};
use super::rounded::{Epilogue, Rounded};
use super::{CacheType, Case, CaseBuilder, Kernel, expect_most, expect_shape};
use crate::error::Result;
use crate::plan::{Builder, Cost, Target, Tensor, Weight};
use crate::quant::{QUANTS, Quant};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/mla_output.wgsl");

pub(super) const KERNEL: Kernel =
    Kernel { name: "mla_output", op: OP, params: &[], matrices: &[], several: true, cases };

/// What errors are bounded by where splits are joined before.
const JOINED: f64 = 2e-5;

impl Builder {
    /// y {rows, heads}: w {rank, rows, heads} times the attention of each head, from what its splits left; for the
    /// heads of every token.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn mla_output(
        &mut self,
        label: &str,
        w: &Weight,
        parts: &AttentionSplits,
        y: &Tensor,
    ) -> Result<Option<Rounded>> {
        let [rank, rows, heads] = w.shape;
        expect_shape(KERNEL.name, &w.name, parts.sums.shape[0], rank)?;
        let vectors = heads * self.tokens();
        expect_shape(KERNEL.name, &w.name, parts.sums.shape[1], vectors * parts.splits)?;
        expect_most(KERNEL.name, "splits", parts.splits, MOST_SPLITS)?;
        expect_shape(KERNEL.name, "y", y.shape[0], rows)?;
        expect_shape(KERNEL.name, "y", y.shape[1], vectors)?;
        let epilogue = Epilogue { rounded: self.rounded(y, label), norm: None };
        let product = MatvecProduct {
            kernel: KERNEL.name,
            label,
            op: OP,
            roles: &[("w", w)],
            feed: Feed::Merged(source!("lib/input_merged.wgsl"), Merged::from(parts)),
            epilogue,
            rows,
            layers: heads,
            together: 1,
            groups: w.groups(),
        };
        let variant = self.merge_files(product.variant(self), parts);
        let variant = variant.constant("Y_STRIDE", "y", y.stride).file(source!("lib/rows.wgsl"));
        let mut bindings = product.bindings(self);
        bindings.extend(self.bound_parts(parts));
        bindings.push(self.bound("y", y.buffer));
        let cost = product.cost(parts.bytes() + y.bytes()) + Cost::products(w, heads, self.tokens());
        let grid = product.grid(self, product.blocks(self, rows));
        let terms = Terms::One { w: w.clone(), add: false };
        let errors = Errors::of_sums(JOINED);
        let reference = product.reference(self, terms, Which::InTurn, y);
        self.computes(KERNEL.name, reference::Product { errors, ..reference });
        self.step(label, variant, bindings, &(), grid, cost)?;
        Ok(epilogue.rounded)
    }
}

fn cases(target: Target) -> Result<Vec<Case>> {
    let case = |(i, quant): (usize, &&'static Quant)| {
        case(target, quant, [1, 3, 64][i % 3], [21, 48][i % 2], [1, 1, 4, 1, 2][i % 5])
    };
    QUANTS.iter().enumerate().map(case).collect()
}

fn case(target: Target, quant: &'static Quant, splits: usize, rows: usize, tokens: usize) -> Result<Case> {
    let rank = columns_for(quant, 36);
    let example = Example { heads: 3, tokens: 150, rank, rotary: 10, splits, ty: CacheType::F16 };
    let shape = [rank, rows, example.heads];
    let mut case = CaseBuilder::for_tokens(target, 1, tokens);
    let (q, cache, queries, latents) = example.inputs(&mut case);
    let (w, ws) = case.weight("w", quant, shape)?;
    let y = case.plan.tensor("y", [shape[1], example.heads * tokens]);
    let parts = case.plan.mla_attention("attention", &q, &cache, SCALE, splits)?;
    let rounded = case.plan.mla_output("output", &w, &parts, &y)?;
    case.allow(parts.sums.buffer);
    case.allow(parts.stats.buffer);
    let seen_by = |head: usize| example.tokens - tokens + head / example.heads + 1;
    let attention = |head: usize| example.output_over(&queries, &latents, head, seen_by(head));
    let attention: Vec<f64> = (0..example.heads * tokens).flat_map(attention).collect();
    let attention = seen(&attention, rank, &[quant], target.arithmetic);
    let (want, sizes): (Vec<f64>, Vec<f64>) = products(&ws, shape, &attention).into_iter().unzip();
    let sizes = sizes.into_iter().map(|size| size.max(1.0)).collect();
    case.probe(&Input { tensor: y, norm: None, rounded }, &want)?;
    case.expect(&y, want, sizes, matvec::bound(target.arithmetic).max(JOINED));
    Ok(case.finish(format!("{} {rank}x{}, {splits} splits, {tokens} tokens", quant.name, shape[1])))
}
