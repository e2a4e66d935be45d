//! The cases of `rope_query`.

use crate::error::Result;
use crate::plan::Target;
use crate::reference::kv_rows::rotated;
use crate::reference::{Case, CaseBuilder};

pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    let shapes = [(1, 4, 2, 8, 1), (5, 24, 8, 20, 1), (20, 192, 64, 512, 1), (5, 24, 8, 20, 7)];
    let case = |(heads, nope, rotary, rank, tokens): (usize, usize, usize, usize, usize)| {
        let (width, absorbed) = (nope + rotary, rank + rotary);
        let (mut case, rotations) = CaseBuilder::rotated(target, rotary / 2, 1234, (tokens, tokens));
        let (q, qs) = case.input("q", [width, heads * tokens]);
        let (y, mut want) = case.input("y", [absorbed, heads * tokens]);
        case.plan.rope_query("rotate", &q, rotary, &y)?;
        for (query, (want, q)) in want.chunks_mut(absorbed).zip(qs.chunks(width)).enumerate() {
            let rotations = &rotations[query / heads * rotary / 2..];
            for ((to, from), rotation) in want[rank..].chunks_mut(2).zip(q[nope..].chunks(2)).zip(rotations) {
                to.copy_from_slice(&rotated(from[0], from[1], *rotation).map(|v| v as f32));
            }
        }
        case.expect_each(&y, want.into_iter().map(f64::from).collect(), 1.0, 1e-6);
        Ok(case.finish(format!("{heads} heads, nope {nope}, rotary {rotary}, rank {rank}, {tokens} tokens")))
    };
    shapes.into_iter().map(case).collect()
}
