//! How prompts are computed.

use std::time::Duration;

/// How prompts are computed: in chunks of tokens, each in a few submissions. Fields will be added: make it by
/// `PromptOptions { …, ..PromptOptions::default() }`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PromptOptions {
    /// Tokens computed together, up to [`PromptOptions::MOST`]; 1 for token by token, as replies are. Where these take
    /// longer than a second, fewer are, but not less than 64.
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

/// Tokens that plans of chunks have room for: few that run in the steps of a token, and then many.
const ROOMS: [usize; 7] = [2, 4, 8, 16, 32, 128, 512];

impl PromptOptions {
    /// Tokens that the plans of chunks have room for, ascending.
    pub fn rooms(&self) -> impl Iterator<Item = usize> + use<> {
        let most = self.together();
        ROOMS.into_iter().take_while(move |room| *room < most).chain([most])
    }

    /// True if so many tokens are computed together, and not one by one.
    pub fn chunks(&self, count: usize) -> bool {
        self.together() > 1 && count > 1
    }

    /// Tokens that the smallest plan with room for a chunk has room for.
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
    fn a_chunk_runs_in_the_smallest_plan_with_room() {
        for (count, chunk, room) in [
            (2, 512, 2),
            (3, 512, 4),
            (8, 512, 8),
            (9, 512, 16),
            (33, 512, 128),
            (257, 512, 512),
            (512, 512, 512),
            (7, 7, 7),
        ] {
            let options = PromptOptions { chunk, ..PromptOptions::default() };
            assert_eq!(options.room_for(count), room, "{count} of {chunk}");
        }
    }

    #[test]
    fn one_token_is_no_chunk() {
        for (count, chunk, together) in [(1, 512, false), (2, 512, true), (2, 2, true), (100, 1, false)] {
            let options = PromptOptions { chunk, ..PromptOptions::default() };
            assert_eq!(options.chunks(count), together, "{count} of {chunk}");
        }
    }
}
