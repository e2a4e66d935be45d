//! The cases of `rope_query`.

use crate::error::Result;
use crate::plan::Target;
use crate::reference::kv_rows::rotated;
use crate::reference::{Case, CaseBuilder};

/// The cosines and sines of `pairs` angles at a position, base 10000.
pub(super) fn rotations(position: u32, pairs: usize) -> Vec<[f32; 2]> {
    let angle = |i: usize| position as f64 * 10000f64.powf(-(i as f64) / pairs as f64);
    (0..pairs).map(|i| [angle(i).cos() as f32, angle(i).sin() as f32]).collect()
}

pub(super) fn cases(target: Target) -> Result<Vec<Case>> {
    let shapes = [(1, 4, 2, 8, 1), (5, 24, 8, 20, 1), (20, 192, 64, 512, 1), (5, 24, 8, 20, 7)];
    let case = |(heads, nope, rotary, rank, tokens): (usize, usize, usize, usize, usize)| {
        let (width, absorbed) = (nope + rotary, rank + rotary);
        let rotations: Vec<_> = (0..tokens as u32).flat_map(|token| rotations(1234 + token, rotary / 2)).collect();
        let mut case = CaseBuilder::for_tokens(target, rotary / 2, tokens);
        match tokens {
            1 => case.state(3, 1234, &rotations),
            _ => case.rotated_chunk(1234, tokens, &rotations),
        }
        let (q, qs) = case.input("q", [width, heads * tokens]);
        let (y, mut want) = case.input("y", [absorbed, heads * tokens]);
        case.plan.rope_query("rotate", &q, rotary, &y)?;
        for (query, (want, q)) in want.chunks_mut(absorbed).zip(qs.chunks(width)).enumerate() {
            let rotations = &rotations[query / heads * rotary / 2..];
            for ((to, from), rotation) in want[rank..].chunks_mut(2).zip(q[nope..].chunks(2)).zip(rotations) {
                to.copy_from_slice(&rotated(from[0], from[1], *rotation).map(|v| v as f32));
            }
        }
        let sizes = vec![1.0; want.len()];
        case.expect(&y, want.into_iter().map(f64::from).collect(), sizes, 1e-6);
        Ok(case.finish(format!("{heads} heads, nope {nope}, rotary {rotary}, rank {rank}, {tokens} tokens")))
    };
    shapes.into_iter().map(case).collect()
}
