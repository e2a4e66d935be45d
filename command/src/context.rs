//! The context of a measurement.

use anyhow::ensure;

/// The context in tokens for a test: the number it needs, or the number given with -c if that is enough.
pub fn enough(test: &str, needed: usize, given: Option<usize>) -> anyhow::Result<usize> {
    let most = u32::MAX as usize;
    ensure!(needed <= most, "{test} needs a context of {needed} tokens; the maximum is {most}");
    let context = given.unwrap_or(needed);
    ensure!(context >= needed, "{test} needs a context of {needed} tokens, but -c gives {context}");
    Ok(context)
}
