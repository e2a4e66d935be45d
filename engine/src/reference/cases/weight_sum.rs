//! The cases of `weight_sum`.

use crate::error::Result;
use crate::kernels::weight_sum::{CHUNKS, MAX_WORKGROUPS, TILE};
use crate::plan::{BufferRef, Target};
use crate::reference::{Case, CaseBuilder};

pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    // The numbers of words before the range and in it.
    let case = |(before, count): (usize, usize)| {
        let mut case = CaseBuilder::new(target, 1);
        let words = case.input("words", [before + count, 1]);
        let pairs: Vec<u32> = case.noise(6).into_iter().map(f32::to_bits).collect();
        let sums = BufferRef::Local(case.plan.setting("sums", 4 * pairs.len() as u64));
        case.fill_bytes(sums, bytemuck::cast_slice(&pairs).to_vec());
        let bytes = 4 * before as u64..4 * (before + count) as u64;
        case.plan.weight_sum("sum", words.buffer, bytes, (sums, 1))?;
        Ok(case.finish(format!("{count} words after {before}")))
    };
    let turn = MAX_WORKGROUPS * CHUNKS * TILE; // of all workgroups
    [(0, 4), (TILE, 12), (0, TILE), (3 * TILE, CHUNKS * TILE + 4), (0, turn + 5 * TILE / 4)]
        .into_iter()
        .map(case)
        .collect()
}
