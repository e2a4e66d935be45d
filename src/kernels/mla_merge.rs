//! Joins the splits of the attention.

use super::mla_attention::{Example, Parts, SCALE, examples, with_splits};
use super::{Case, CaseBuilder, Kernel, params};
use crate::error::Result;
use crate::plan::{Builder, Moved, Target, Tensor, VariantBuilder};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/mla_merge.wgsl");
const WORKGROUP: usize = 64;

params! { heads: u32, rank: u32, y_stride: u32, splits: u32 }

pub(super) const KERNEL: Kernel = Kernel { name: "mla_merge", op: OP, params: Params::FIELDS, cases };

impl Builder {
    /// y {rank, heads} = the attention's output, from what its `splits` parts left.
    ///
    /// # Errors
    /// See [`Builder::step`].
    pub fn mla_merge(&mut self, label: &str, parts: &Parts, splits: usize) -> Result<Tensor> {
        let (rank, heads) = (parts.sums.shape[0], parts.sums.shape[1] / splits);
        let y = self.tensor(label, [rank, heads]);
        let variant = with_splits(VariantBuilder::new(KERNEL.name, OP, WORKGROUP));
        let bindings = vec![
            self.bound_state(),
            self.bound("parts", parts.sums.buffer),
            self.bound("stats", parts.stats.buffer),
            self.bound("y", y.buffer),
        ];
        let params =
            Params { heads: heads as u32, rank: rank as u32, y_stride: y.stride as u32, splits: splits as u32 };
        let activations = (4 * heads * (rank + 2)) as u64 + y.bytes(); // of one split: most are idle at first
        let moved = Moved { activations, ..Moved::default() };
        self.step(label, variant, bindings, &params, [rank.div_ceil(WORKGROUP), heads, 1], moved)?;
        Ok(y)
    }
}

/// Attention and merge together, against softmax over the whole cache.
fn cases(target: Target) -> Result<Vec<Case>> {
    let case = |example: Example| {
        let Example { heads, tokens, rank, splits, .. } = example;
        let mut case = CaseBuilder::new(target, 1);
        let (q, cache, queries, latents) = example.inputs(&mut case);
        let parts = case.plan.mla_attention("attention", &q, &cache, SCALE, splits)?;
        let y = case.plan.mla_merge("merge", &parts, splits)?;
        let output = |head| {
            let scores = example.scores(&queries, &latents, head, 0, tokens);
            let top = scores.iter().copied().fold(f64::MIN, f64::max);
            let total: f64 = scores.iter().map(|s| (s - top).exp()).sum();
            let weights: Vec<f64> = scores.iter().map(|s| (s - top).exp() / total).collect();
            example.weighted(&weights, &latents, 0)
        };
        let want: Vec<f64> = (0..heads).flat_map(output).collect();
        case.allow(parts.sums.buffer);
        case.allow(parts.stats.buffer);
        let sizes = vec![1.0; want.len()];
        case.expect(&y, want, sizes, 2e-5);
        Ok(case.finish(format!("{heads} heads, {tokens} tokens, rank {rank}, {splits} splits")))
    };
    examples().into_iter().map(case).collect()
}
