//! The context that a measurement takes.

use anyhow::ensure;

/// Tokens of context for a test: as many as it needs, or what -c gives, if that is enough.
pub fn enough(test: &str, needed: usize, given: Option<usize>) -> anyhow::Result<usize> {
    let most = u32::MAX as usize;
    ensure!(needed <= most, "{test} needs a context of {needed} tokens, at most {most} are possible");
    let context = given.unwrap_or(needed);
    ensure!(context >= needed, "{test} needs a context of {needed} tokens, but -c gives {context}");
    Ok(context)
}
