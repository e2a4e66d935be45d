//! The rotary part of the queries.

use super::reference::{RotatedQueries, by_token};
use super::{Case, CaseBuilder, Kernel, expect_shape, params};
use crate::error::Result;
use crate::plan::{Builder, Cost, Target, Tensor, VariantBuilder};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/rope_query.wgsl");
const WORKGROUP: usize = 64;

params! { heads: u32, pairs: u32, q_stride: u32, q_offset: u32, y_stride: u32, y_offset: u32 }

pub(super) const KERNEL: Kernel =
    Kernel { name: "rope_query", op: OP, params: Params::FIELDS, matrices: &[], several: false, cases };

impl Builder {
    /// Turns the last `rotary` values of every query, q {nope + rotary, heads of every token}, and writes them from
    /// value `rank` on of every absorbed one, y {rank + rotary, heads of every token}.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn rope_query(&mut self, label: &str, q: &Tensor, rotary: usize, y: &Tensor) -> Result<()> {
        expect_shape(KERNEL.name, "y", y.shape[1], q.shape[1])?;
        let (heads, tokens) = (q.shape[1] / self.tokens(), self.tokens());
        let pairs = heads * (rotary / 2); // of a token
        let variant = self.state_files(VariantBuilder::new(KERNEL.name, OP, WORKGROUP)).file(source!("lib/rope.wgsl"));
        let bindings = vec![self.bound_state(), self.bound("q", q.buffer), self.bound("y", y.buffer)];
        let cost = Cost::of_activations(16 * (pairs * tokens) as u64);
        let params = params(heads, rotary, q, y);
        let rotated = RotatedQueries { q: by_token(q, tokens), y: by_token(y, tokens), rotary };
        self.computes(KERNEL.name, rotated);
        self.step(label, variant, bindings, &params, [pairs.div_ceil(WORKGROUP), tokens, 1], cost)
    }
}

/// Of queries whose last values are rotary, as those of absorbed ones will be.
fn params(heads: usize, rotary: usize, q: &Tensor, y: &Tensor) -> Params {
    Params {
        heads: heads as u32,
        pairs: rotary as u32 / 2,
        q_stride: q.stride as u32,
        q_offset: (q.shape[0] - rotary) as u32,
        y_stride: y.stride as u32,
        y_offset: (y.shape[0] - rotary) as u32,
    }
}

/// The cosines and sines of `pairs` angles at a position, base 10000.
pub(super) fn rotations(position: u32, pairs: usize) -> Vec<[f32; 2]> {
    let angle = |i: usize| position as f64 * 10000f64.powf(-(i as f64) / pairs as f64);
    (0..pairs).map(|i| [angle(i).cos() as f32, angle(i).sin() as f32]).collect()
}

/// The pair (a, b) rotated.
pub(super) fn rotated(a: f32, b: f32, [c, s]: [f32; 2]) -> [f64; 2] {
    let (a, b, c, s) = (a as f64, b as f64, c as f64, s as f64);
    [a * c - b * s, a * s + b * c]
}

fn cases(target: Target) -> Result<Vec<Case>> {
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
