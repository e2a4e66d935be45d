//! The batch that a step computes, as the host writes it and `wgsl/lib/batch.wgsl` reads it: a header, then its rows.

use bytemuck::NoUninit;

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
#[derive(Debug, Clone, Copy, Default, NoUninit)]
pub struct RowHeader {
    /// The position of the token in its sequence.
    pub position: u32,
    /// Where the list of its sequence's pages begins among all lists.
    pub first_page: u32,
}

/// Bytes from one row's start to the next's, with `pairs` rotary angles.
pub fn row_bytes(pairs: usize) -> usize {
    size_of::<RowHeader>() + pairs.saturating_mul(size_of::<[f32; 2]>())
}

/// Bytes of a batch of `rows` rows.
pub fn batch_bytes(rows: usize, pairs: usize) -> u64 {
    row_bytes(pairs).saturating_mul(rows).saturating_add(size_of::<BatchHeader>()) as u64
}
