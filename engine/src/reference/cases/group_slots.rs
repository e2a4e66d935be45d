//! The cases of `group_slots`.

use crate::error::Result;
use crate::plan::Target;
use crate::reference::{Case, CaseBuilder};

pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    let shapes = [(5, 2, (40, 33), 16), (64, 4, (512, 512), 32), (3, 1, (17, 16), 16), (70, 2, (9, 0), 16)];
    let of = |shape| [false, true].map(|shared| case(target, shape, shared));
    shapes.into_iter().flat_map(of).collect()
}

/// Every fourth token selects the same experts as the previous one, and no token selects the second expert.
fn chosen(experts: usize, top_k: usize, tokens: usize) -> Vec<u32> {
    let expert = |slot: usize| {
        let (token, rank) = (slot / top_k, slot % top_k);
        let expert = (7 * (token - token % 4 / 3) + rank * (experts / top_k)) % experts;
        if expert == 1 { 0 } else { expert as u32 }
    };
    (0..tokens * top_k).map(expert).collect()
}

fn case(
    target: &Target,
    (experts, top_k, (tokens, count), places): (usize, usize, (usize, usize), usize),
    shared: bool,
) -> Result<Case> {
    let mut case = CaseBuilder::for_rows(target, 1, tokens);
    case.consecutive(0, count);
    let ids = case.plan.tensor_with_stride("ids", [top_k, tokens], top_k);
    let chosen = chosen(experts, top_k, count);
    case.fill_bytes(ids.buffer, bytemuck::cast_slice(&chosen).to_vec());
    case.plan.group_slots("groups", &ids, (experts, shared), places)?;
    let with = if shared { " and shared ones" } else { "" };
    Ok(case.finish(format!("{experts} experts{with}, {top_k} of {count} of {tokens} tokens, tiles of {places}")))
}
