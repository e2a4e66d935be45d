//! How prompts are computed.

use std::time::Duration;

/// How prompts are computed: in chunks of tokens, each in a few submissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PromptOptions {
    /// Tokens computed together, up to [`PromptOptions::MOST`]; 1 for token by token, as replies are.
    pub chunk: usize,
    /// How long one submission takes the GPU, about. Between two of them it draws what else there is to draw, and a
    /// prompt can be cancelled. A single step of the plan may take longer.
    pub limit: Duration,
}

impl PromptOptions {
    /// The largest chunk there is. Larger ones take more memory and are no faster.
    pub const MOST: usize = 4096;

    /// Tokens computed together, within what there is.
    pub fn together(&self) -> usize {
        self.chunk.clamp(1, Self::MOST)
    }
}

impl Default for PromptOptions {
    /// 512 tokens, 10 ms.
    fn default() -> Self {
        Self { chunk: 512, limit: Duration::from_millis(10) }
    }
}
