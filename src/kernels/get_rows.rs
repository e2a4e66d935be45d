//! The embedding: one row of a matrix, decoded.

use super::matvec::columns_for;
use super::{Case, CaseBuilder, Kernel, NO_TOKEN, params};
use crate::error::Result;
use crate::plan::{Builder, Moved, Target, Tensor, VariantBuilder, Weight};
use crate::quant::QUANTS;
use crate::wgsl::{Source, source};

const OP: Source = source!("op/get_rows.wgsl");
const WORKGROUP: usize = 64;

params! { groups: u32, width: u32, rows: u32 }

pub(super) const KERNEL: Kernel = Kernel { name: "get_rows", op: OP, params: Params::FIELDS, matrices: &[], cases };

impl Builder {
    /// y {columns} = the row of `embedding` {columns, tokens} that the token names; the last row if it names none.
    ///
    /// # Errors
    /// See [`Builder::step`].
    pub fn get_rows(&mut self, label: &str, embedding: &Weight) -> Result<Tensor> {
        let y = self.tensor(label, [embedding.shape[0], 1]);
        let groups = embedding.groups();
        let variant =
            VariantBuilder::new(KERNEL.name, OP, WORKGROUP).file(source!("lib/bits.wgsl")).decode("w", embedding.quant);
        let mut bindings = self.bound_weight("w", embedding);
        bindings.extend([self.bound_token(), self.bound("y", y.buffer)]);
        let [width, rows, _] = embedding.shape.map(|n| n as u32);
        let params = Params { groups: groups as u32, width, rows };
        let moved =
            Moved { weights: embedding.matrix_bytes() / embedding.shape[1] as u64, activations: y.bytes(), cache: 0 };
        self.step(label, variant, bindings, &params, [groups.div_ceil(WORKGROUP), 1, 1], moved)?;
        Ok(y)
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
    Ok(cases)
}
