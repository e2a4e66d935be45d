//! Options for how prompts are computed.

use crate::gpu::{AdapterKind, AdapterReport};
use std::time::Duration;

/// How prompts are computed: in chunks of tokens, each in a few submissions. Fields will be added, so construct it as
/// `PromptOptions { …, ..PromptOptions::default() }`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PromptOptions {
    /// The number of tokens that are computed together, up to [`PromptOptions::MOST`]; 1 to compute prompts token by
    /// token, as in decoding. `None` for what suits the GPU: 512, or up to 4096 on one with much memory of its own. If
    /// these tokens take longer than a second, fewer are computed together, but at least 64.
    pub chunk: Option<usize>,
    /// The approximate GPU time of one submission. Between two submissions the GPU can draw, and a prompt can be
    /// cancelled. A single step of the plan may take longer.
    pub limit: Duration,
}

impl PromptOptions {
    /// The largest chunk. Larger ones would take more memory and would not be faster.
    pub const MOST: usize = 4096;

    /// The number of tokens that are computed together, within the limits.
    pub fn together(&self) -> usize {
        self.chunk.unwrap_or(USUAL).clamp(1, Self::MOST)
    }

    /// The same with the chunk that suits an adapter, unless one is asked for: on an H100 chunks of 4096 read a prompt
    /// of 4096 tokens 1.4 times as fast as chunks of 512, and a longer one 1.5 times.
    pub(crate) fn on(self, adapter: &AdapterReport) -> Self {
        let own = if adapter.kind == AdapterKind::Discrete { adapter.memory.unwrap_or(0) } else { 0 };
        let affordable = usize::try_from(own / PART_OF_MEMORY / ROW_BYTES).unwrap_or(Self::MOST);
        let suited = ROOMS.into_iter().chain([Self::MOST]).filter(|room| *room <= affordable).max();
        Self { chunk: self.chunk.or(Some(suited.unwrap_or(USUAL).max(USUAL))), ..self }
    }
}

/// The numbers of rows that plans have room for: first those that run in the steps of a row alone, then larger ones.
const ROOMS: [usize; 10] = [2, 4, 8, 16, 32, 128, 256, 512, 1024, 2048];
/// The chunk that suits any GPU.
const USUAL: usize = 512;
/// About the bytes of activations that a row of a prompt takes in GLM-4.7-Flash, and the part of a GPU's memory that a
/// chunk may take.
const ROW_BYTES: u64 = 256 << 10;
const PART_OF_MEMORY: u64 = 64;

impl PromptOptions {
    /// The numbers of rows that plans have room for, ascending.
    pub fn rooms(&self) -> impl Iterator<Item = usize> + use<> {
        let most = self.together();
        ROOMS.into_iter().take_while(move |room| *room < most).chain([most])
    }

    /// The number of rows that the smallest plan with room for `count` rows has room for.
    pub fn room_for(&self, count: usize) -> usize {
        self.rooms().find(|room| *room >= count).unwrap_or(count)
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
    fn a_batch_runs_in_the_smallest_plan_with_room() {
        for (count, chunk, room) in [
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
            assert_eq!(options.room_for(count), room, "{count} of {chunk}");
        }
    }
}
