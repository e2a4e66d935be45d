//! The batch that a step computes, as the host writes it and `wgsl/lib/batch.wgsl` reads it: a header, then its rows.

use super::Plan;
use bytemuck::{AnyBitPattern, NoUninit};

/// KV rows of a page of the cache: a multiple of every kernel's tile, so that no tile crosses the end of a page.
pub const PAGE: usize = 256;

/// What a batch begins with.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, NoUninit)]
pub struct BatchHeader {
    /// Rows.
    pub count: u32,
    /// KV rows that the row with the most of them attends to.
    pub longest: u32,
    /// Into how many splits attention divides these: [`Plan::splits`](super::Plan::splits).
    pub splits: u32,
    /// The host's number for this submission, a copy of which comes back beside the results.
    pub submission: u32,
}

/// What a row begins with; cosine and sine of each of its rotary angles follow.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, NoUninit, AnyBitPattern)]
pub struct RowHeader {
    /// The token's id, or [`RowHeader::sampled`].
    pub token: u32,
    /// The same of the token that follows it in its sequence. Only the multi-token-prediction block reads it.
    pub next: u32,
    /// The position of the token in its sequence.
    pub position: u32,
    /// The place of its sequence among those that tokens are sampled for, in [`Plan::SAMPLING`](super::Plan::SAMPLING).
    pub sequence: u32,
    /// The place in [`Plan::SAMPLED`](super::Plan::SAMPLED) that is for what is sampled after this row: the place of its
    /// sequence, or, where several rows of a sequence are sampled after, one of its own.
    pub result: u32,
    /// Where the list of its sequence's pages begins among all lists.
    pub first_page: u32,
    /// Where the adjustments of its logits begin among those of all rows.
    pub first_adjustment: u32,
    /// How many adjustments there are.
    pub adjustments: u32,
}

impl RowHeader {
    /// Added to the number of a word of [`Plan::SAMPLED`](super::Plan::SAMPLED) it stands in the place of an id, for the
    /// token whose id that word holds. No vocabulary has so many tokens.
    pub const SAMPLED: u32 = 1 << 31;

    /// In the place of an id: the token that was sampled last for a place, which the GPU knows.
    pub fn sampled(place: usize) -> u32 {
        Self::SAMPLED + (place * Plan::SAMPLED_WORDS) as u32
    }

    /// The rows of tokens that follow one another, the first at a position, in a sequence whose list of pages is the first.
    pub fn consecutive(position: usize, tokens: &[u32]) -> Vec<Self> {
        let row = |(&token, position)| Self { token, position, ..Self::default() };
        tokens.iter().zip(position as u32..).map(row).collect()
    }
}

/// Bytes from one row's start to the next's, with `pairs` rotary angles.
pub fn row_bytes(pairs: usize) -> usize {
    size_of::<RowHeader>() + pairs.saturating_mul(size_of::<[f32; 2]>())
}

/// Bytes of a batch of `rows` rows.
pub fn batch_bytes(rows: usize, pairs: usize) -> u64 {
    row_bytes(pairs).saturating_mul(rows).saturating_add(size_of::<BatchHeader>()) as u64
}
