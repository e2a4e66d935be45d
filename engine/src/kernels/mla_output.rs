//! The heads' outputs: the splits of attention are merged, and projected back from the latent space with one matrix for
//! each head.

use super::computes::{self, Errors, MatrixSelection, Merged, Terms};
use super::errors::ATTENDED;
use super::matvec::{Feed, MatvecProduct};
use super::mla_attention::{AttentionSplits, MAX_SPLITS};
use super::rounded::{Epilogue, Rounded};
use super::{Kernel, expect_most, expect_shape};
use crate::error::Result;
use crate::plan::{Builder, Cost, Tensor, Weight};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/mla_output.wgsl");

pub(super) const KERNEL: Kernel = Kernel { name: "mla_output", op: OP, params: &[], matrices: &[] };

/// The largest error of outputs of about 1, due to the merge of splits before.
pub(crate) const JOINED: f64 = ATTENDED;

impl Builder {
    /// y {rows, heads}, for the heads of every token: w {rank, rows, heads} times the attention of each head, merged
    /// from its splits.
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
        let vectors = heads * self.rows();
        expect_shape(KERNEL.name, &w.name, parts.sums.shape[1], vectors * parts.splits)?;
        expect_most(KERNEL.name, "splits", parts.splits, MAX_SPLITS)?;
        expect_shape(KERNEL.name, "y", y.shape[0], rows)?;
        expect_shape(KERNEL.name, "y", y.shape[1], vectors)?;
        let epilogue = Epilogue { rounded: self.rounded(KERNEL.name, y, label), norm: None };
        let feed = Feed::Merged(source!("lib/input_merged.wgsl"), Merged::from(parts));
        let product = MatvecProduct { epilogue, layers: heads, ..MatvecProduct::new(&KERNEL, label, [("w", w)], feed) };
        let variant = self.merge_files(product.variant(self), parts);
        let variant = variant.constant("Y_STRIDE", "y", y.stride).file(source!("lib/rows.wgsl"));
        let mut bindings = product.bindings(self);
        bindings.extend(self.bound_parts(parts));
        bindings.push(self.bound("y", y.buffer));
        let cost = product.cost(parts.bytes() + y.bytes()) + Cost::products(w, heads, self.rows());
        let grid = product.grid(self, product.blocks(self, rows));
        let terms = Terms::One { w: w.clone(), add: false };
        let errors = Errors::of_sums(JOINED);
        let reference = product.reference(self, terms, MatrixSelection::InTurn, y);
        self.computes(KERNEL.name, computes::Product { errors, ..reference });
        self.step(label, variant, bindings, &(), grid, cost)?;
        Ok(epilogue.rounded)
    }
}
