//! Options for how prompts are computed.

use crate::gpu::{AdapterKind, AdapterReport};
use std::time::Duration;

/// How prompts are computed: in chunks of tokens, each in a few submissions. Fields will be added, so construct it as
/// `PromptOptions { …, ..PromptOptions::default() }`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PromptOptions {
    /// The number of tokens that are computed together, up to [`PromptOptions::MAX_CHUNK`]; 1 to compute prompts token
    /// by token, as in decoding. `None` for what suits the GPU: 512, or up to 4096 on one with much memory of its own.
    /// If these tokens take longer than a second, fewer are computed together, but at least 64.
    pub chunk: Option<usize>,
    /// The approximate GPU time of one submission. Between two submissions the GPU can draw, and a prompt can be
    /// cancelled. A single step of the plan may take longer.
    pub limit: Duration,
}

impl PromptOptions {
    /// The largest chunk. Larger ones would take more memory and would not be faster.
    pub const MAX_CHUNK: usize = 4096;

    /// The number of tokens that are computed together, within the limits.
    pub fn together(&self) -> usize {
        self.chunk.unwrap_or(USUAL).clamp(1, Self::MAX_CHUNK)
    }

    /// These options with the chunk that suits an adapter, unless one is set: an H100 reads a prompt of 4096 tokens 1.4
    /// times as fast in chunks of 4096 as in chunks of 512, and a longer one 1.5 times.
    pub(crate) fn on(self, adapter: &AdapterReport) -> Self {
        let own = if adapter.kind == AdapterKind::Discrete { adapter.memory.unwrap_or(0) } else { 0 };
        let affordable = usize::try_from(own / PART_OF_MEMORY / ROW_BYTES).unwrap_or(Self::MAX_CHUNK);
        let suited = CAPACITIES.into_iter().chain([Self::MAX_CHUNK]).filter(|capacity| *capacity <= affordable).max();
        Self { chunk: self.chunk.or(Some(suited.unwrap_or(USUAL).max(USUAL))), ..self }
    }
}

/// The row capacities of plans: first those that the kernels of a single row compute, then larger ones.
const CAPACITIES: [usize; 10] = [2, 4, 8, 16, 32, 128, 256, 512, 1024, 2048];
/// The chunk that suits any GPU.
const USUAL: usize = 512;
/// Approximately the bytes of activations for one row of a prompt in GLM-4.7-Flash; a chunk may take one
/// `PART_OF_MEMORY`th of a GPU's memory.
const ROW_BYTES: u64 = 256 << 10;
const PART_OF_MEMORY: u64 = 64;

impl PromptOptions {
    /// The row capacities of plans, ascending.
    pub fn capacities(&self) -> impl Iterator<Item = usize> + use<> {
        let most = self.together();
        CAPACITIES.into_iter().take_while(move |capacity| *capacity < most).chain([most])
    }

    /// The capacity of the smallest plan for `count` rows.
    pub fn capacity_for(&self, count: usize) -> usize {
        self.capacities().find(|capacity| *capacity >= count).unwrap_or(count)
    }
}

impl Default for PromptOptions {
    /// What suits the GPU, 10 ms.
    fn default() -> Self {
        Self { chunk: None, limit: Duration::from_millis(10) }
    }
}

#[cfg(test)]
mod tests {
    use super::PromptOptions;

    #[test]
    fn a_batch_runs_in_the_smallest_plan_that_is_large_enough() {
        for (count, chunk, capacity) in [
            (2, 512, 2),
            (3, 512, 4),
            (8, 512, 8),
            (9, 512, 16),
            (33, 512, 128),
            (129, 512, 256),
            (257, 512, 512),
            (512, 512, 512),
            (600, 4096, 1024),
            (2049, 4096, 4096),
            (2049, 3000, 3000),
            (7, 7, 7),
        ] {
            let options = PromptOptions { chunk: Some(chunk), ..PromptOptions::default() };
            assert_eq!(options.capacity_for(count), capacity, "{count} of {chunk}");
        }
    }
}
