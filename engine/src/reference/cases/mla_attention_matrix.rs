//! The cases of `mla_attention_matrix`.

use super::mla_attention::{AttentionExample, SCALE, joined};
use super::mla_attention_batch::batch_cases;
use crate::error::Result;
use crate::gpu::Matrices;
use crate::kernels::CacheType;
use crate::plan::{Target, Team};
use crate::reference::Case;

/// Attention and merge, for the model's shape and others, with idle splits and with several tiles in one.
pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    let target = &Target { matrices: Matrices::Sixteen, team: Team::Subgroup, subgroup: 32, ..target.clone() };
    let shapes = [(16, 1, 128, 64, 2), (20, 33, 512, 64, 64), (20, 450, 512, 64, 3), (37, 129, 256, 64, 2)];
    let types = [CacheType::F16, CacheType::Q8_0];
    let alone = types.into_iter().flat_map(|ty| shapes.map(|shape| (ty, shape)));
    let alone = alone.map(|(ty, (heads, tokens, rank, rotary, splits))| {
        let example = AttentionExample { heads, tokens, rank, rotary, splits, ty };
        example.joined_case(target, 1, |b, q, cache| b.mla_attention_matrix("attention", q, cache, SCALE, splits))
    });
    // Rows, the last of which attend to one more tile, page or split than the first.
    let batches = [
        [20, 61, 3, 4, 512, 64, 4],
        [16, 0, 2, 2, 128, 64, 64],
        [20, 94, 4, 4, 512, 64, 2],
        [20, 253, 6, 8, 512, 64, 8],
        [37, 62, 5, 16, 256, 64, 2],
    ];
    let mut cases: Vec<Case> = alone.collect::<Result<_>>()?;
    for (ty, batches) in types.into_iter().zip([&batches[..], &batches[3..]]) {
        cases.extend(batch_cases(target, ty, batches, |b, a, splits| {
            joined(b, a, |b, q| b.mla_attention_matrix("attention", q, a.cache, SCALE, splits))
        })?);
    }
    Ok(cases)
}
