//! Options for how prompts are computed.

use std::time::Duration;

/// How prompts are computed: in chunks of tokens, each in a few submissions. Fields will be added, so construct it as
/// `PromptOptions { …, ..PromptOptions::default() }`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PromptOptions {
    /// The number of tokens that are computed together, up to [`PromptOptions::MOST`]; 1 to compute prompts token by
    /// token, as in decoding. If these tokens take longer than a second, fewer are computed together, but at least 64.
    pub chunk: usize,
    /// The approximate GPU time of one submission. Between two submissions the GPU can draw, and a prompt can be
    /// cancelled. A single step of the plan may take longer.
    pub limit: Duration,
}

impl PromptOptions {
    /// The largest chunk. Larger ones would take more memory and would not be faster.
    pub const MOST: usize = 4096;

    /// The number of tokens that are computed together, within the limits.
    pub fn together(&self) -> usize {
        self.chunk.clamp(1, Self::MOST)
    }
}

/// The numbers of rows that plans have room for: first those that run in the steps of a row alone, then larger ones.
const ROOMS: [usize; 8] = [2, 4, 8, 16, 32, 128, 256, 512];

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
    /// 512 tokens, 10 ms.
    fn default() -> Self {
        Self { chunk: 512, limit: Duration::from_millis(10) }
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
            (7, 7, 7),
        ] {
            let options = PromptOptions { chunk, ..PromptOptions::default() };
            assert_eq!(options.room_for(count), room, "{count} of {chunk}");
        }
    }
}
