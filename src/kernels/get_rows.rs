//! The embedding: rows of a matrix, decoded.

use super::matvec::columns_for;
use super::{Case, CaseBuilder, Kernel, NO_TOKEN, params};
use crate::error::Result;
use crate::plan::{Batch, BufferRef, Builder, Moved, Plan, Target, Tensor, VariantBuilder, Weight};
use crate::quant::QUANTS;
use crate::wgsl::{Source, source};

const OP: Source = source!("op/get_rows.wgsl");
const WORKGROUP: usize = 64;

params! { groups: u32, width: u32, rows: u32, pitch: u32 }

pub(super) const KERNEL: Kernel = Kernel { name: "get_rows", op: OP, params: Params::FIELDS, matrices: &[], cases };

impl Builder {
    /// y {columns} = the row of `embedding` {columns, tokens} that the token names; the last row if it names none.
    ///
    /// # Errors
    /// See [`Builder::step`].
    pub fn get_rows(&mut self, label: &str, embedding: &Weight) -> Result<Tensor> {
        let y = self.tensor(label, [embedding.shape[0], 1]);
        self.fetch(label, embedding, y.buffer, [y.stride, 1])?;
        Ok(y)
    }

    /// As [`Builder::get_rows`], for every token of a chunk of up to `tokens`: y {columns} of each.
    ///
    /// # Errors
    /// See [`Builder::step`].
    pub fn get_rows_batch(&mut self, label: &str, embedding: &Weight, tokens: usize) -> Result<Batch> {
        let y = self.batch(label, [embedding.shape[0], 1], tokens);
        self.fetch(label, embedding, y.buffer, [y.pitch, tokens])?;
        Ok(y)
    }

    fn fetch(&mut self, label: &str, embedding: &Weight, y: BufferRef, [pitch, tokens]: [usize; 2]) -> Result<()> {
        let groups = embedding.groups();
        let variant =
            VariantBuilder::new(KERNEL.name, OP, WORKGROUP).file(source!("lib/bits.wgsl")).decode("w", embedding.quant);
        let mut bindings = self.bound_weight("w", embedding);
        bindings.extend([self.bound_token(), self.bound("y", y)]);
        let [width, rows, _] = embedding.shape.map(|n| n as u32);
        let params = Params { groups: groups as u32, width, rows, pitch: pitch as u32 };
        let weights = embedding.matrix_bytes() / embedding.shape[1] as u64 * tokens as u64;
        let moved = Moved { weights, activations: 4 * (embedding.shape[0] * tokens) as u64, cache: 0 };
        self.step(label, variant, bindings, &params, [groups.div_ceil(WORKGROUP), tokens, 1], moved)
    }
}

fn cases(target: Target) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for quant in QUANTS {
        for (columns, tokens, token) in [(96, 5, 0), (70, 3, 2), (32, 4, NO_TOKEN as usize), (2 * 32 * 64 + 256, 3, 1)]
        {
            let columns = columns_for(quant, columns);
            let mut case = CaseBuilder::new(target, 1);
            let (embedding, values) = case.weight("token_embd", quant, [columns, tokens, 1])?;
            case.state(token as u32, 9, &[]);
            let y = case.plan.get_rows("embed", &embedding)?;
            let row: Vec<f64> =
                values[token.min(tokens - 1) * columns..][..columns].iter().map(|&v| v.into()).collect();
            let largest = row.iter().fold(0f64, |m, v| m.max(v.abs()));
            case.expect(&y, row, vec![largest; columns], 1e-6);
            cases.push(case.finish(format!("{} {columns}x{tokens} row {token}", quant.name)));
        }
    }
    cases.push(chunk(target)?);
    Ok(cases)
}

/// Several rows, one of them twice, and one that there is not.
fn chunk(target: Target) -> Result<Case> {
    let quant = QUANTS[0];
    let (columns, rows, ids) = (columns_for(quant, 70), 5, [4, 0, 3, 0, NO_TOKEN]);
    let mut case = CaseBuilder::for_chunk(target, 1, ids.len());
    let (embedding, values) = case.weight("token_embd", quant, [columns, rows, 1])?;
    case.chunk(9, ids.len());
    case.fill_bytes(BufferRef::Local(Plan::TOKEN), bytemuck::cast_slice(&ids).to_vec());
    let y = case.plan.get_rows_batch("embed", &embedding, ids.len())?;
    let row = |id: &u32| &values[(*id as usize).min(rows - 1) * columns..][..columns];
    let want: Vec<f64> = ids.iter().flat_map(row).map(|&v| v.into()).collect();
    let largest = want.iter().fold(0f64, |m, v| m.max(v.abs()));
    let sizes = vec![largest; want.len()];
    case.expect_batch(&y, want, sizes, 1e-6);
    Ok(case.finish(format!("{} {columns}x{rows} rows {ids:?}", quant.name)))
}
