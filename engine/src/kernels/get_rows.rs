//! The embedding: rows of a matrix, decoded.

use super::computes::EmbeddingRows;
use super::{Kernel, expect_shape, params};
use crate::error::Result;
use crate::plan::{Builder, Cost, Tensor, VariantBuilder, Weight};
use crate::quant::Arithmetic;
use crate::wgsl::{Source, source};

const OP: Source = source!("op/get_rows.wgsl");
const WORKGROUP: usize = 64;

params! { groups: u32, width: u32, rows: u32, pitch: u32 }

pub(super) const KERNEL: Kernel = Kernel { name: "get_rows", op: OP, params: Params::FIELDS, matrices: &[] };

impl Builder {
    /// y {columns, tokens} = the tokens' rows of `embedding` {columns, rows}; the last row for an id out of range.
    ///
    /// # Errors
    /// See [`Builder::step`].
    pub fn get_rows(&mut self, label: &str, embedding: &Weight) -> Result<Tensor> {
        let y = self.tensor(label, [embedding.shape[0], self.rows()]);
        self.embedding_rows(label, embedding, &y, false)?;
        Ok(y)
    }

    /// As [`Builder::get_rows`], for the rows' next tokens, into an existing tensor.
    ///
    /// # Errors
    /// As there.
    pub fn get_next_rows_into(&mut self, label: &str, embedding: &Weight, y: &Tensor) -> Result<()> {
        self.embedding_rows(label, embedding, y, true)
    }

    fn embedding_rows(&mut self, label: &str, embedding: &Weight, y: &Tensor, next: bool) -> Result<()> {
        let tokens = self.rows();
        expect_shape(KERNEL.name, "y's width", y.shape[0], embedding.shape[0])?;
        expect_shape(KERNEL.name, "y's vectors", y.shape[1], tokens)?;
        let groups = embedding.groups();
        let variant = self.token_files(VariantBuilder::new(KERNEL.name, OP, WORKGROUP)).switch("NEXT", "n", next);
        let variant = self.bits_files(variant, Arithmetic::Float).decode("w", embedding.quant);
        let mut bindings = self.bound_weight("w", embedding);
        bindings.extend([self.bound_batch(), self.bound_sampled(), self.bound("y", y.buffer)]);
        let [width, rows, _] = embedding.shape.map(|n| n as u32);
        let params = Params { groups: groups as u32, width, rows, pitch: y.stride as u32 };
        let weights = embedding.matrix_bytes() / embedding.shape[1] as u64 * tokens as u64;
        let cost = Cost { weights, activations: 4 * (embedding.shape[0] * tokens) as u64, ..Cost::default() };
        self.computes(KERNEL.name, EmbeddingRows { embedding: embedding.clone(), y: *y, next });
        self.step(label, variant, bindings, &params, [groups.div_ceil(WORKGROUP), tokens, 1], cost)
    }
}
