//! Computes the heads' queries from the compressed ones, and in the same step writes the row's KV row to the cache.

use super::computes::{KvRows, MatrixSelection, Terms};
use super::kv_write::Cache;
use super::rounded::{Epilogue, Rounded};
use super::{Kernel, expect_shape};
use super::{matvec, matvec::Feed, matvec::Input, matvec::MatvecProduct};
use crate::error::Result;
use crate::plan::{Builder, Cost, Tensor, Weight};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/query_up_kv_write.wgsl");

pub(super) const KERNEL: Kernel = Kernel { name: "query_up_kv_write", op: OP, params: &[], matrices: &[] };

impl Builder {
    /// y {rows, tokens} = w · x, for w {columns, rows} and x {columns, tokens}, and what [`Builder::kv_write`] does
    /// for each of them.
    ///
    /// # Errors
    /// Those of [`Builder::kv_write`], and for w and x those of [`Builder::mul_mv`].
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
        let tokens = self.rows();
        let epilogue = Epilogue { rounded: self.rounded(KERNEL.name, y, label), norm: None };
        let product = MatvecProduct {
            epilogue,
            together: tokens,
            ..MatvecProduct::new(&KERNEL, label, [("w", w)], Feed::Input(x))
        };
        product.expect_input(columns, tokens)?;
        expect_shape(KERNEL.name, &w.name, y.shape[0], rows)?;
        cache.expect_kv_rows(KERNEL.name, kv, &norm.weight, tokens)?;
        let variant = product.variant(self).constant("Y_STRIDE", "", y.stride).file(source!("lib/rows.wgsl"));
        let variant = cache.kv_row_files(self.batch_files(variant)).constant("KV_PITCH", "", kv.stride / 4);
        let variant = if x.norm.is_some() { variant } else { variant.real("EPSILON", "e", norm.epsilon) };
        let mut bindings = product.bindings(self);
        bindings.push(self.bound("y", y.buffer));
        bindings.extend(self.bound_kv_rows(&(*kv).into(), &norm.weight, cache));
        let mut cost = product.cost(y.bytes() + kv.bytes() + cache.row_bytes()) + Cost::products(w, 1, tokens);
        cost.weights += norm.weight.matrix_bytes();
        let grid = product.grid(self, product.blocks(self, rows) + product.tiling(self).columns);
        let terms = Terms::One { w: w.clone(), add: false };
        let kv_rows = KvRows { kv: (*kv).into(), norm: norm.clone(), cache: *cache };
        self.computes(KERNEL.name, (product.reference(self, terms, MatrixSelection::InTurn, y), kv_rows));
        self.step(label, variant, bindings, &(), grid, cost)?;
        Ok(epilogue.rounded)
    }
}
