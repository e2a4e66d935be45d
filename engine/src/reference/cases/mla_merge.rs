//! The cases of `mla_merge`.

use super::mla_attention::{AttentionExample, SCALE, examples};
use crate::error::Result;
use crate::plan::Target;
use crate::reference::Case;

/// Attention and merge.
pub(super) fn cases(target: &Target) -> Result<Vec<Case>> {
    let case = |example: AttentionExample, count| {
        example.joined_case(target, count, |b, q, cache| b.mla_attention("attention", q, cache, SCALE, example.splits))
    };
    let alone = examples().into_iter().map(|example| case(example, 1));
    let batches = examples().into_iter().filter(|example| example.tokens > 100).map(|example| case(example, 3));
    alone.chain(batches).collect()
}
