//! The embedding: rows of a matrix, decoded.

use super::matvec::columns_for;
use super::reference::EmbeddingRows;
use super::{Case, CaseBuilder, Kernel, NO_TOKEN, params};
use crate::error::Result;
use crate::plan::{BufferRef, Builder, Cost, Plan, Target, Tensor, VariantBuilder, Weight};
use crate::quant::{QUANTS, Quant};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/get_rows.wgsl");
const WORKGROUP: usize = 64;

params! { groups: u32, width: u32, rows: u32, pitch: u32 }

pub(super) const KERNEL: Kernel =
    Kernel { name: "get_rows", op: OP, params: Params::FIELDS, matrices: &[], several: true, cases };

impl Builder {
    /// y {columns, tokens} = the rows of `embedding` {columns, rows} that the tokens name; the last row for one that
    /// names none.
    ///
    /// # Errors
    /// See [`Builder::step`].
    pub fn get_rows(&mut self, label: &str, embedding: &Weight) -> Result<Tensor> {
        let tokens = self.tokens();
        let y = self.tensor(label, [embedding.shape[0], tokens]);
        let groups = embedding.groups();
        let variant =
            VariantBuilder::new(KERNEL.name, OP, WORKGROUP).file(source!("lib/bits.wgsl")).decode("w", embedding.quant);
        let mut bindings = self.bound_weight("w", embedding);
        bindings.extend([self.bound_token(), self.bound("y", y.buffer)]);
        let [width, rows, _] = embedding.shape.map(|n| n as u32);
        let params = Params { groups: groups as u32, width, rows, pitch: y.stride as u32 };
        let weights = embedding.matrix_bytes() / embedding.shape[1] as u64 * tokens as u64;
        let cost = Cost { weights, activations: 4 * (embedding.shape[0] * tokens) as u64, ..Cost::default() };
        self.computes(KERNEL.name, EmbeddingRows { embedding: embedding.clone(), y });
        self.step(label, variant, bindings, &params, [groups.div_ceil(WORKGROUP), tokens, 1], cost)?;
        Ok(y)
    }
}

fn cases(target: Target) -> Result<Vec<Case>> {
    let alone = [(96, 5, 0), (70, 3, 2), (32, 4, NO_TOKEN), (2 * 32 * 64 + 256, 3, 1)];
    let of_format = |quant| alone.map(|(columns, rows, id)| case(target, quant, [columns, rows], &[id]));
    // Several rows, one of them twice, and one that there is not.
    let chunk = case(target, QUANTS[0], [70, 5], &[4, 0, 3, 0, NO_TOKEN]);
    QUANTS.iter().copied().flat_map(of_format).chain([chunk]).collect()
}

fn case(target: Target, quant: &'static Quant, [columns, rows]: [usize; 2], ids: &[u32]) -> Result<Case> {
    let columns = columns_for(quant, columns);
    let mut case = CaseBuilder::for_tokens(target, 1, ids.len());
    let (embedding, values) = case.weight("token_embd", quant, [columns, rows, 1])?;
    case.fill_bytes(BufferRef::Local(Plan::TOKEN), bytemuck::cast_slice(ids).to_vec());
    let y = case.plan.get_rows("embed", &embedding)?;
    let row = |id: &u32| &values[(*id as usize).min(rows - 1) * columns..][..columns];
    let want: Vec<f64> = ids.iter().flat_map(row).map(|&v| v.into()).collect();
    let largest = want.iter().fold(0f64, |m, v| m.max(v.abs()));
    let sizes = vec![largest; want.len()];
    case.expect(&y, want, sizes, 1e-6);
    Ok(case.finish(format!("{} {columns}x{rows} rows {ids:?}", quant.name)))
}
