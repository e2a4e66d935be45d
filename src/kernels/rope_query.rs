//! The rotary part of the queries.

use super::{Case, CaseBuilder, Kernel, expect_shape, params};
use crate::error::Result;
use crate::plan::{Builder, Moved, Target, Tensor, VariantBuilder};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/rope_query.wgsl");
const WORKGROUP: usize = 64;

params! { heads: u32, pairs: u32, q_stride: u32, q_offset: u32, y_stride: u32, y_offset: u32 }

pub(super) const KERNEL: Kernel = Kernel { name: "rope_query", op: OP, params: Params::FIELDS, matrices: &[], cases };

impl Builder {
    /// Turns the last `rotary` values of every query head, q {nope + rotary, heads}, and writes them from
    /// value `rank` on of every absorbed head, y {rank + rotary, heads}.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn rope_query(&mut self, label: &str, q: &Tensor, rotary: usize, y: &Tensor) -> Result<()> {
        let heads = q.shape[1];
        expect_shape(KERNEL.name, "y", y.shape[1], heads)?;
        let variant = VariantBuilder::new(KERNEL.name, OP, WORKGROUP)
            .file(source!("lib/state.wgsl"))
            .file(source!("lib/rope.wgsl"));
        let bindings = vec![self.bound_state(), self.bound("q", q.buffer), self.bound("y", y.buffer)];
        let params = Params {
            heads: heads as u32,
            pairs: rotary as u32 / 2,
            q_stride: q.stride as u32,
            q_offset: (q.shape[0] - rotary) as u32,
            y_stride: y.stride as u32,
            y_offset: (y.shape[0] - rotary) as u32,
        };
        let moved = Moved { activations: 8 * (heads * rotary) as u64, ..Moved::default() };
        self.step(label, variant, bindings, &params, [(heads * rotary / 2).div_ceil(WORKGROUP), 1, 1], moved)
    }
}

/// The cosines and sines of `pairs` angles at a position, base 10000.
pub(super) fn turns(position: u32, pairs: usize) -> Vec<[f32; 2]> {
    let angle = |i: usize| position as f64 * 10000f64.powf(-(i as f64) / pairs as f64);
    (0..pairs).map(|i| [angle(i).cos() as f32, angle(i).sin() as f32]).collect()
}

/// The pair (a, b) turned.
pub(super) fn turned(a: f32, b: f32, [c, s]: [f32; 2]) -> [f64; 2] {
    let (a, b, c, s) = (a as f64, b as f64, c as f64, s as f64);
    [a * c - b * s, a * s + b * c]
}

fn cases(target: Target) -> Result<Vec<Case>> {
    let case = |(heads, nope, rotary, rank): (usize, usize, usize, usize)| {
        let mut case = CaseBuilder::new(target, rotary / 2);
        let turns = turns(1234, rotary / 2);
        case.state(3, 1234, &turns);
        let (q, qs) = case.input("q", [nope + rotary, heads]);
        let (y, mut want) = case.input("y", [rank + rotary, heads]);
        case.plan.rope_query("turn", &q, rotary, &y)?;
        for (head, i) in (0..heads).flat_map(|h| (0..rotary / 2).map(move |i| (h, i))) {
            let from = head * (nope + rotary) + nope + 2 * i;
            let pair = turned(qs[from], qs[from + 1], turns[i]).map(|v| v as f32);
            want[head * (rank + rotary) + rank + 2 * i..][..2].copy_from_slice(&pair);
        }
        let sizes = vec![1.0; want.len()];
        case.expect(&y, want.into_iter().map(f64::from).collect(), sizes, 1e-6);
        Ok(case.finish(format!("{heads} heads, nope {nope}, rotary {rotary}, rank {rank}")))
    };
    [(1, 4, 2, 8), (5, 24, 8, 20), (20, 192, 64, 512)].into_iter().map(case).collect()
}
