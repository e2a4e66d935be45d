//! The batch that a step computes, as the host writes it and `wgsl/lib/batch.wgsl` reads it: a header, then its rows.

use super::Plan;
use bytemuck::{AnyBitPattern, NoUninit};

/// The number of KV rows of a page of the cache. It is a multiple of every kernel's tile, so that no tile crosses the
/// end of a page.
pub const PAGE: usize = 256;

/// The header of a batch.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, NoUninit, AnyBitPattern)]
pub struct BatchHeader {
    /// The number of rows.
    pub count: u32,
    /// The number of KV rows that the deepest row attends to.
    pub longest: u32,
    /// Into how many splits attention divides the cache: [`Plan::splits`].
    pub splits: u32,
    /// The number of this submission, which is copied back with its results, so that a lost submission is detected.
    pub submission: u32,
}

/// The header of a row. The cosine and the sine of each of its rotary angles follow it.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, NoUninit, AnyBitPattern)]
pub struct RowHeader {
    /// The token's id, or [`RowHeader::sampled`].
    pub token: u32,
    /// The id of the token that follows it in its sequence, in the same form. Only the multi-token-prediction block
    /// reads it.
    pub next: u32,
    /// The position of the token in its sequence.
    pub position: u32,
    /// The index of the row's sequence in [`Plan::SAMPLING`].
    pub sequence: u32,
    /// The index in [`Plan::SAMPLED`] of the token that is sampled after this row. It is that of the row's sequence,
    /// or, if tokens are sampled after several rows of a sequence, one of the row's own.
    pub result: u32,
    /// The index in [`Plan::PAGES`] at which the list of its sequence's pages begins.
    pub first_page: u32,
    /// The index of the first adjustment of its logits among the adjustments of all rows.
    pub first_adjustment: u32,
    /// The number of adjustments of its logits.
    pub adjustments: u32,
    /// The number of KV rows that the last row of its sequence attends to, which [`laid_out`] sets.
    pub longest: u32,
    /// Padding, because rotary angles begin at a multiple of 8 bytes.
    pub unused: u32,
}

impl RowHeader {
    /// Ids from this number on, which no vocabulary has, stand for tokens that the GPU has sampled: the rest is the
    /// index of the word of [`Plan::SAMPLED`] that holds the id.
    pub const SAMPLED: u32 = 1 << 31;

    /// The number to write instead of an id for the token that the GPU sampled last into an index of [`Plan::SAMPLED`].
    pub fn sampled(place: usize) -> u32 {
        Self::SAMPLED + (place * Plan::SAMPLED_WORDS) as u32
    }

    /// The rows of consecutive tokens, beginning at a position, in the sequence whose list of pages comes first.
    pub fn consecutive(position: usize, tokens: &[u32]) -> Vec<Self> {
        let row = |(&token, position)| Self { token, position, ..Self::default() };
        tokens.iter().zip(position as u32..).map(row).collect()
    }
}

/// The header of a batch of these rows, and the rows with [`RowHeader::longest`] set. The rows of a sequence are
/// adjacent.
pub fn laid_out(rows: &[RowHeader], splits: usize, submission: u32) -> (BatchHeader, impl Iterator<Item = RowHeader>) {
    let last = |rows: &[RowHeader]| rows.iter().map(|row| row.position + 1).max().unwrap_or_default();
    let header = BatchHeader { count: rows.len() as u32, longest: last(rows), splits: splits as u32, submission };
    let of_each = rows.chunk_by(|row, next| row.sequence == next.sequence).flat_map(move |of_one| {
        let longest = last(of_one);
        of_one.iter().map(move |row| RowHeader { longest, ..*row })
    });
    (header, of_each)
}

/// The size in bytes of a row with `pairs` rotary angles.
pub fn row_bytes(pairs: usize) -> usize {
    size_of::<RowHeader>() + pairs.saturating_mul(size_of::<[f32; 2]>())
}

/// The size in bytes of a batch of `rows` rows.
pub fn batch_bytes(rows: usize, pairs: usize) -> u64 {
    row_bytes(pairs).saturating_mul(rows).saturating_add(size_of::<BatchHeader>()) as u64
}
