//! How many tokens of a prompt are computed together.
//!
//! A prompt is computed in parts of at most about a second each, because the work on a part is lost if the prompt is
//! cancelled before its end, and because progress is reported at its end.
//!
//! The kernels for few tokens round differently from those for many, and a reply must not depend on the speed of the
//! GPU. So a prompt is first divided into blocks of the size for a fast GPU, and on a slow GPU a block of many tokens
//! is divided into parts that all have many. Plans for different numbers of tokens round differently too, so all parts
//! of a block run in the plan of the whole block.

use crate::model::{FEW_TOKENS, PromptOptions};
use std::ops::Range;
use std::time::Duration;

/// The longest time that a part should take.
const TIME: Duration = Duration::from_secs(1);
/// The fewest tokens of a part, however slow the GPU is.
const MIN_PART: usize = 64;
/// The same if each part expands the keys and values of all tokens before it, which costs as many products as the
/// expansion saves for about 400 tokens.
const MIN_EXPANDING_PART: usize = 512;
/// The most tokens of a part while others wait: about the size of the largest parts on a GPU with chunks of the usual
/// size. Smaller parts cost the prompt more than they give the others.
const WHILE_OTHERS_WAIT: usize = 512;
/// Parts have a multiple of this many tokens, which fills the tiles of the kernels.
const STEP: usize = 32;
/// A part is abandoned if it will take more than twice the time and less than an eighth of it is done.
const MUCH_TOO_LONG: u32 = 2;
const EARLY: u32 = 8;
/// Measurements of shorter times are not trusted.
const TRUSTED: Duration = Duration::from_millis(100);

/// How many tokens of a prompt are computed together.
#[derive(Debug, Clone, Copy)]
pub struct Parts {
    /// The tokens of a block. A part never has more.
    most: usize,
    /// The tokens of a part, by the speed of the GPU so far.
    tokens: usize,
    /// The most tokens of a part while others wait for its end.
    limit: usize,
    /// The position at which the first block of the prompt began.
    start: usize,
    /// The position that an unfinished prompt has reached. A prompt that begins there continues it.
    reached: Option<usize>,
}

impl Parts {
    /// Parts are as large as the options allow until one takes too long.
    pub fn new(options: PromptOptions) -> Self {
        let most = options.together();
        Self { most, tokens: most, limit: usize::MAX, start: 0, reached: None }
    }

    /// Sets whether others wait for the end of each part. If so, parts are smaller, but computed by the same plans, so
    /// that the text does not depend on it.
    pub fn set_others_waiting(&mut self, waiting: bool) {
        self.limit = if waiting { WHILE_OTHERS_WAIT } else { usize::MAX };
    }

    /// Begins a prompt at a position, or continues the one that was interrupted there.
    pub fn begin(&mut self, at: usize) {
        if self.reached.replace(at) != Some(at) {
            self.start = at;
        }
    }

    /// Ends a prompt. A prompt that begins there is another one.
    pub fn end(&mut self) {
        self.reached = None;
    }

    /// The positions of the block that a position belongs to, if `rest` tokens of the prompt remain.
    pub fn block(&self, at: usize, rest: usize) -> Range<usize> {
        let start = at - (at - self.start) % self.most;
        start..(start + self.most).min(at + rest)
    }

    /// How many tokens the part at a position has.
    pub fn next(&self, at: usize, rest: usize) -> usize {
        let block = self.block(at, rest).end - at;
        let tokens = self.tokens.min(self.limit);
        if block <= tokens + FEW_TOKENS { block } else { tokens }
    }

    /// Adopts the size of parts that a batch with this prompt has learned.
    pub fn adopt_size(&mut self, other: &Self) {
        self.tokens = other.tokens;
    }

    /// The most tokens of several prompts that are computed together.
    pub fn most_together(&self) -> usize {
        self.tokens.min(self.limit)
    }

    /// Records that a part of `tokens` tokens was computed and took this time, and whether its plan expands keys and
    /// values.
    pub fn record_part(&mut self, tokens: usize, time: Duration, expands_kv: bool) {
        self.reached = self.reached.map(|at| at + tokens);
        if time > TIME {
            self.fit(tokens, time, least(expands_kv));
        } else if tokens >= self.tokens && time < TIME / 2 {
            self.tokens = (2 * self.tokens).min(self.most);
        }
    }

    /// Whether a part of `tokens` tokens, which has taken `so_far` and will probably take `expected` in all, should be
    /// given up and computed in smaller parts. If so, the parts that follow are smaller.
    pub fn give_up(&mut self, tokens: usize, so_far: Duration, expected: Duration, expands_kv: bool) -> bool {
        let (early, least) = (so_far * EARLY < expected, least(expands_kv));
        let too_long = tokens > least + FEW_TOKENS && so_far > TRUSTED && early && expected > TIME * MUCH_TOO_LONG;
        if too_long {
            self.fit(tokens, expected, least);
        }
        too_long
    }

    fn fit(&mut self, tokens: usize, time: Duration, least: usize) {
        let fit = (tokens as f64 * TIME.as_secs_f64() / time.as_secs_f64()) as usize;
        self.tokens = (fit / STEP * STEP).clamp(least.min(self.most), self.most);
    }
}

/// The minimum number of tokens in a part, depending on whether its plan expands keys and values.
fn least(expands_kv: bool) -> usize {
    if expands_kv { MIN_EXPANDING_PART } else { MIN_PART }
}

#[cfg(test)]
mod tests {
    use super::{Duration, Parts, PromptOptions};

    fn parts(chunk: usize) -> Parts {
        Parts::new(PromptOptions { chunk: Some(chunk), ..PromptOptions::default() })
    }

    /// Tokens of each part of a prompt, on a GPU that computes `speed` a second. Plans for blocks of 1024 or more
    /// tokens expand keys and values.
    fn sizes(mut parts: Parts, speed: f64, mut prompt: usize) -> Vec<usize> {
        let (mut at, mut sizes) = (7, Vec::new());
        parts.begin(at);
        while prompt > 0 {
            let tokens = parts.next(at, prompt);
            let time = Duration::from_secs_f64(tokens as f64 / speed);
            let expands_kv = parts.block(at, prompt).len().next_power_of_two() >= 1024;
            if !parts.give_up(tokens, time / 20, time, expands_kv) {
                parts.record_part(tokens, time, expands_kv);
                sizes.push(tokens);
                at += tokens;
                prompt -= tokens;
            }
        }
        sizes
    }

    #[test]
    fn parts_follow_time() {
        assert_eq!(sizes(parts(512), 10_000.0, 1200), [512, 512, 176]);
        assert_eq!(sizes(parts(512), 600.0, 1200), [512, 512, 176]);
        assert_eq!(sizes(parts(512), 300.0, 1200), [512, 288, 224, 176], "the first one is not worth giving up");
        assert_eq!(sizes(parts(512), 100.0, 320), [96, 96, 128], "the first one is given up");
        assert_eq!(sizes(parts(512), 1.0, 530), [64, 64, 64, 64, 64, 64, 64, 64, 18]);
        assert_eq!(sizes(parts(32), 1.0, 80), [32, 32, 16]);
        let expanding = sizes(parts(2048), 1.0, 2048 + 600);
        assert_eq!(expanding, [512, 512, 512, 512, 512, 88], "each would write out all tokens before it");
    }

    /// While others wait, a block of many tokens is cut into parts that have many as well, and that run in its plan.
    #[test]
    fn parts_are_smaller_while_others_wait() {
        let mut cut = parts(4096);
        cut.limit = 512;
        assert_eq!(sizes(cut, 1e6, 4096 + 600), [[512; 8].as_slice(), &[512, 88]].concat());
        assert_eq!(sizes(cut, 1e6, 1024 + 18), [512, 530], "a part of few tokens would be computed in another way");
        cut.begin(7);
        for at in [7, 7 + 512, 7 + 1024] {
            assert_eq!((cut.next(at, 3000 + 7 - at), cut.block(at, 3000 + 7 - at)), (512, 7..3007));
            cut.record_part(512, Duration::from_millis(10), true);
        }
        cut.limit = usize::MAX;
        assert_eq!(cut.next(7 + 1536, 3000 - 1536), 3000 - 1536, "nobody waits any more");
    }

    #[test]
    fn parts_grow_again() {
        let mut parts = parts(512);
        parts.record_part(512, Duration::from_secs(4), false);
        assert_eq!(parts.tokens, 128);
        parts.record_part(10, Duration::from_millis(1), false);
        assert_eq!(parts.tokens, 128, "few tokens tell nothing of many");
        parts.record_part(128, Duration::from_millis(600), false);
        assert_eq!(parts.tokens, 128);
        for tokens in [256, 512, 512] {
            parts.record_part(parts.tokens, Duration::from_millis(100), false);
            assert_eq!(parts.tokens, tokens);
        }
    }

    /// A part of few tokens is there only where a fast GPU would have it too.
    #[test]
    fn few_tokens_stay_where_they_are() {
        for (prompt, rest) in [(512 + 18, 18), (512 + 82, 82), (82, 82), (31, 31)] {
            let [fast, slow] = [1e6, 1.0].map(|speed| sizes(parts(512), speed, prompt));
            assert!(fast.last() == Some(&rest) && slow.last() == Some(&rest), "{fast:?} and {slow:?}");
            assert!(slow.iter().all(|tokens| *tokens > 32 || *tokens == rest), "{slow:?}");
        }
    }

    #[test]
    fn a_prompt_goes_on_in_the_same_blocks() {
        let mut parts = parts(512);
        parts.begin(10);
        parts.record_part(448, Duration::from_millis(600), false);
        parts.tokens = 64;
        parts.begin(10 + 448);
        assert_eq!(parts.next(10 + 448, 82), 64, "the end of the block");
        assert_eq!(parts.block(10 + 448, 82), 10..10 + 512);
        parts.end();
        parts.begin(10 + 448);
        assert_eq!(parts.next(10 + 448, 82), 82, "another prompt");
        assert_eq!(parts.block(10 + 448, 82), 10 + 448..10 + 530);
    }
}
