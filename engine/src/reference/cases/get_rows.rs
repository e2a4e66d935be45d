//! The cases of `get_rows`.

use super::columns_for;
use crate::error::Result;
use crate::kernels::NO_TOKEN;
use crate::plan::{BufferRef, Plan, RowHeader, Target};
use crate::quant::{QUANTS, Quant};
use crate::reference::{Case, CaseBuilder};

pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    let alone = [(96, 5, 0), (70, 3, 2), (32, 4, NO_TOKEN), (2 * 32 * 64 + 256, 3, 1)];
    let of_format = |quant| alone.map(|(columns, rows, id)| case(target, quant, [columns, rows], &[id]));
    // Several rows, one of them twice, and one out of range.
    let batch = case(target, QUANTS[0], [70, 5], &[4, 0, 3, 0, NO_TOKEN]);
    QUANTS.iter().copied().flat_map(of_format).chain([batch]).collect()
}

fn case(target: &Target, quant: &'static Quant, [columns, rows]: [usize; 2], ids: &[u32]) -> Result<Case> {
    let columns = columns_for(quant, columns);
    let mut case = CaseBuilder::for_tokens(target, 1, ids.len());
    let embedding = case.weight("token_embd", quant, [columns, rows, 1])?;
    // The last id is that of the token that was sampled last for the second sequence.
    case.plan.room_for_sequences(2);
    let mut batch = RowHeader::consecutive(7, ids);
    if let Some((row, id)) = batch.last_mut().zip(ids.last()) {
        row.token = RowHeader::sampled(1);
        case.fill_bytes(BufferRef::Local(Plan::SAMPLED), bytemuck::cast_slice(&[[0; 3], [*id, 1, 1]]).to_vec());
    }
    case.rows(&batch);
    case.plan.get_rows("embed", &embedding)?;
    Ok(case.finish(format!("{} {columns}x{rows} rows {ids:?}", quant.name)))
}
