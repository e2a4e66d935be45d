//! The cases of `mla_merge`.

use super::mla_attention::{Example, SCALE, examples};
use crate::error::Result;
use crate::plan::Target;
use crate::reference::{Case, CaseBuilder};

/// Attention and merge together, against softmax over the whole cache.
pub(super) fn cases(target: Target) -> Result<Vec<Case>> {
    let alone = examples().into_iter().map(|example| case(target, &example, 1));
    let chunks = examples().into_iter().filter(|example| example.tokens > 100).map(|example| case(target, &example, 3));
    alone.chain(chunks).collect()
}

/// The last `count` tokens of an example.
fn case(target: Target, example: &Example, count: usize) -> Result<Case> {
    let Example { heads, tokens, rank, splits, .. } = *example;
    let mut case = CaseBuilder::for_tokens(target, 1, count);
    let (q, cache, queries, latents) = example.inputs(&mut case);
    let parts = case.plan.mla_attention("attention", &q, &cache, SCALE, splits)?;
    let y = case.plan.tensor("y", [rank, heads * count]);
    case.plan.mla_merge("merge", &parts, &y)?;
    let seen_by = |query: usize| tokens - count + query / heads + 1;
    let output = |query: usize| example.output_over(&queries, &latents, query, seen_by(query));
    let want: Vec<f64> = (0..heads * count).flat_map(output).collect();
    case.allow(parts.sums.buffer);
    case.allow(parts.stats.buffer);
    let sizes = vec![1.0; want.len()];
    case.expect(&y, want, sizes, 2e-5);
    Ok(case.finish(format!("{heads} heads, {count} of {tokens} tokens, rank {rank}, {splits} splits")))
}
