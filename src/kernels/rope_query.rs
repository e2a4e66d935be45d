//! The rotary part of the queries.

use super::{Case, CaseBuilder, Kernel, expect_shape, params};
use crate::error::Result;
use crate::plan::{Batch, Bound, Builder, Moved, Target, Tensor, VariantBuilder};
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
        let variant = VariantBuilder::new(KERNEL.name, OP, WORKGROUP).file(source!("lib/state.wgsl"));
        let bindings = vec![self.bound_state(), self.bound("q", q.buffer), self.bound("y", y.buffer)];
        let (width, stride) = ([q.shape[0], y.shape[0]], [q.stride, y.stride]);
        self.turn(label, variant, bindings, params(heads, rotary, width, stride), 1)
    }

    /// As [`Builder::rope_query`], of every token of a chunk.
    ///
    /// # Errors
    /// As there.
    pub fn rope_query_batch(&mut self, label: &str, q: &Batch, rotary: usize, y: &Batch) -> Result<()> {
        let heads = q.stacks;
        expect_shape(KERNEL.name, "y", y.stacks, heads)?;
        expect_shape(KERNEL.name, "y's tokens", y.tokens, q.tokens)?;
        expect_shape(KERNEL.name, "q's pitch", q.pitch, heads * q.stride)?;
        expect_shape(KERNEL.name, "y's pitch", y.pitch, heads * y.stride)?;
        let variant = VariantBuilder::new(KERNEL.name, OP, WORKGROUP)
            .tagged((source!("lib/batch.wgsl"), "batch"))
            .file(source!("lib/batch_tokens.wgsl"));
        let bindings = vec![self.bound_batch(), self.bound("q", q.buffer), self.bound("y", y.buffer)];
        let (width, stride) = ([q.values, y.values], [q.stride, y.stride]);
        self.turn(label, variant, bindings, params(heads, rotary, width, stride), q.tokens)
    }

    fn turn(
        &mut self,
        label: &str,
        variant: VariantBuilder,
        bindings: Vec<Bound>,
        params: Params,
        tokens: usize,
    ) -> Result<()> {
        let pairs = (params.heads * params.pairs) as usize; // of a token
        let moved = Moved { activations: 16 * (pairs * tokens) as u64, ..Moved::default() };
        let variant = variant.file(source!("lib/rope.wgsl"));
        self.step(label, variant, bindings, &params, [pairs.div_ceil(WORKGROUP), tokens, 1], moved)
    }
}

/// Of queries whose last values are rotary, as those of absorbed ones will be.
fn params(heads: usize, rotary: usize, width: [usize; 2], stride: [usize; 2]) -> Params {
    Params {
        heads: heads as u32,
        pairs: rotary as u32 / 2,
        q_stride: stride[0] as u32,
        q_offset: (width[0] - rotary) as u32,
        y_stride: stride[1] as u32,
        y_offset: (width[1] - rotary) as u32,
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
    let alone = [(1, 4, 2, 8), (5, 24, 8, 20), (20, 192, 64, 512)].into_iter().map(case);
    alone.chain([chunk(target)]).collect()
}

fn chunk(target: Target) -> Result<Case> {
    let (heads, nope, rotary, rank, tokens) = (5, 24, 8, 20, 7);
    let (width, absorbed) = (nope + rotary, rank + rotary);
    let mut case = CaseBuilder::for_chunk(target, rotary / 2, tokens);
    let turns: Vec<_> = (0..tokens as u32).flat_map(|t| turns(1234 + t, rotary / 2)).collect();
    case.turned_chunk(1234, tokens, &turns);
    let (q, qs) = case.batch("q", [width, heads], tokens, tokens);
    let (y, mut want) = case.batch("y", [absorbed, heads], tokens, tokens);
    case.plan.rope_query_batch("turn", &q, rotary, &y)?;
    for (query, want) in want.chunks_mut(absorbed).enumerate() {
        let turns = &turns[query / heads * rotary / 2..];
        for (i, pair) in want[rank..].chunks_mut(2).enumerate() {
            let from = query * width + nope + 2 * i;
            pair.copy_from_slice(&turned(qs[from], qs[from + 1], turns[i]).map(|v| v as f32));
        }
    }
    let sizes = vec![1.0; want.len()];
    case.expect_batch(&y, want.into_iter().map(f64::from).collect(), sizes, 1e-6);
    Ok(case.finish(format!("{heads} heads, nope {nope}, rotary {rotary}, rank {rank}, {tokens} tokens")))
}
