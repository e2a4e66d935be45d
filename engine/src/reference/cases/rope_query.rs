//! The cases of `rope_query`.

use crate::error::Result;
use crate::plan::Target;
use crate::reference::{Case, CaseBuilder};

pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    let shapes = [(1, 128, 8, 8, 1), (5, 24, 2, 20, 1), (20, 192, 64, 512, 1), (5, 128, 8, 20, 7)];
    let case = |(heads, nope, rotary, rank, tokens): (usize, usize, usize, usize, usize)| {
        let (width, absorbed) = (nope + rotary, rank + rotary);
        let mut case = CaseBuilder::rotated(target, rotary / 2, 1234, (tokens, tokens));
        let q = case.input("q", [width, heads * tokens]);
        let y = case.input("y", [absorbed, heads * tokens]);
        case.plan.rope_query("rotate", &q, rotary, &y)?;
        Ok(case.finish(format!("{heads} heads, nope {nope}, rotary {rotary}, rank {rank}, {tokens} tokens")))
    };
    shapes.into_iter().map(case).collect()
}
