//! The heads' queries, and beside them the token's KV row of the latent cache.

use super::kv_write::{Cache, CacheType, KvRowCase};
use super::matmul::products;
use super::matvec::{self, Feed, Input, MatvecProduct, columns_for, seen};
use super::reference::{KvRows, Terms, Which};
use super::rounded::{Epilogue, Rounded};
use super::{Case, Kernel, expect_shape};
use crate::error::Result;
use crate::plan::{Builder, Cost, Target, Tensor, Weight};
use crate::quant::{QUANTS, Quant};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/query_up_kv_write.wgsl");

pub(super) const KERNEL: Kernel =
    Kernel { name: "query_up_kv_write", op: OP, params: &[], matrices: &[], several: true, cases };

impl Builder {
    /// y {rows, tokens} = w · x, for w {columns, rows} and x {columns, tokens}, and what [`Builder::kv_write`] does
    /// for each of them.
    ///
    /// # Errors
    /// As there, and for w and x as [`Builder::mul_mv`].
    #[expect(clippy::too_many_arguments, reason = "two steps in one")]
    pub fn query_up_kv_write(
        &mut self,
        label: &str,
        w: &Weight,
        x: &Input,
        y: &Tensor,
        kv: &Tensor,
        norm: &matvec::Norm,
        cache: &Cache,
    ) -> Result<Option<Rounded>> {
        let [columns, rows, _] = w.shape;
        let tokens = self.tokens();
        let epilogue = Epilogue { rounded: self.rounded(y, label), norm: None };
        let product = MatvecProduct {
            kernel: KERNEL.name,
            label,
            op: OP,
            roles: &[("w", w)],
            feed: Feed::Input(x),
            epilogue,
            rows,
            layers: 1,
            together: tokens,
            groups: w.groups(),
        };
        product.expect_input(columns, tokens)?;
        expect_shape(KERNEL.name, &w.name, y.shape[0], rows)?;
        cache.expect_kv_rows(KERNEL.name, kv, &norm.weight, tokens)?;
        let variant = product.variant(self).constant("Y_STRIDE", "", y.stride).file(source!("lib/rows.wgsl"));
        let variant = cache.kv_row_files(self.state_files(variant), kv.stride);
        let variant = if x.norm.is_some() { variant } else { variant.real("EPSILON", "e", norm.epsilon) };
        let mut bindings = product.bindings(self);
        bindings.push(self.bound("y", y.buffer));
        bindings.extend(self.bound_kv_rows(kv, &norm.weight, cache));
        let mut cost = product.cost(y.bytes() + kv.bytes() + cache.row_bytes()) + Cost::products(w, 1, tokens);
        cost.weights += norm.weight.matrix_bytes();
        let grid = product.grid(self, product.blocks(self, rows) + product.tiling(self).columns);
        let terms = Terms::One { w: w.clone(), add: false };
        let kv_rows = KvRows { kv: *kv, norm: norm.clone(), cache: *cache };
        self.computes(KERNEL.name, (product.reference(self, terms, Which::InTurn, y), kv_rows));
        self.step(label, variant, bindings, &(), grid, cost)?;
        Ok(epilogue.rounded)
    }
}

fn cases(target: Target) -> Result<Vec<Case>> {
    let case = |(i, quant): (usize, &&'static Quant)| {
        let ty = if i % 2 == 0 { CacheType::F16 } else { CacheType::F32 };
        case(target, quant, ty, i % 3 > 0, [37, 48][i / 2 % 2], [1, 2, 4, 8][i % 4])
    };
    QUANTS.iter().enumerate().map(case).collect()
}

fn case(
    target: Target,
    quant: &'static Quant,
    ty: CacheType,
    normed: bool,
    rows: usize,
    tokens: usize,
) -> Result<Case> {
    let columns = columns_for(quant, 70);
    let shape = [columns, rows, 1];
    let kv_row = KvRowCase { ty, rank: 132, rotary: 34, position: 17, tokens, room: tokens };
    let mut case = kv_row.start(target);
    let (w, ws) = case.weight("w", quant, shape)?;
    let (x, xs) =
        if normed { case.normed_input("x", [columns, tokens])? } else { case.plain_input("x", [columns, tokens]) };
    let y = case.plan.tensor("y", [rows, tokens]);
    let inputs = kv_row.inputs(&mut case)?;
    let rounded = case.plan.query_up_kv_write("query", &w, &x, &y, &inputs.kv, &inputs.norm, &inputs.cache)?;
    let xs = seen(&xs, columns, &[quant], target.arithmetic);
    let (want, sizes): (Vec<f64>, Vec<f64>) = products(&ws, shape, &xs).into_iter().unzip();
    case.probe(&Input { tensor: y, norm: None, rounded }, &want)?;
    case.expect(&y, want, sizes, matvec::bound(target.arithmetic));
    kv_row.expect(&mut case, &inputs);
    Ok(case.finish(format!("{} {columns}x{rows}, normed {normed}, {ty:?}, {tokens} tokens", quant.name)))
}
