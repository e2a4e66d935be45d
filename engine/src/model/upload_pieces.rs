//! Cuts an upload into groups that fit staging memory. A group consists of pieces of weights.
//!
//! A large weight takes many groups, and hundreds of small ones share one. Every byte of every weight's buffer is in
//! some piece, bytes between the streams included, because wgpu zeroes bytes that were never written when they are
//! first used, which would be in the first token.

use crate::plan::{Weight, WeightId};
use std::ops::Range;

/// Pieces that are staged and copied together.
#[derive(Debug, Default)]
pub(super) struct PieceGroup {
    /// The pieces, in the order of the weights.
    pub pieces: Vec<UploadPiece>,
    /// The size in staging memory in bytes.
    pub bytes: usize,
}

/// A run of rows of a weight.
#[derive(Debug)]
pub(super) struct UploadPiece {
    /// The weight.
    pub weight: WeightId,
    /// The rows, counted over all matrices.
    pub rows: Range<usize>,
    /// The part of every stream that belongs to the rows.
    pub parts: Vec<StreamRange>,
}

/// The part of a stream that belongs to some rows.
#[derive(Debug)]
pub(super) struct StreamRange {
    /// The position in the staging memory.
    pub staged: usize,
    /// The position in the weight's buffer.
    pub offset: u64,
    /// The number of bytes for each row.
    pub row_bytes: usize,
    /// The number of bytes that are copied: those of the rows and, after the last row, zeros up to the next stream.
    pub bytes: usize,
}

impl UploadPiece {
    /// The number of bytes on the GPU.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes as u64).sum()
    }
}

/// The alignment of copies in the staging memory.
const ALIGNMENT: usize = 16;

/// Cuts the `wanted` weights into groups of about `most` bytes. A group is larger only if four rows are.
pub(super) fn groups(weights: &[Weight], most: usize, wanted: impl Fn(&Weight) -> bool) -> Vec<PieceGroup> {
    let mut groups = Vec::new();
    let mut open = PieceGroup::default();
    for weight in weights.iter().filter(|weight| wanted(weight)) {
        let count = weight.shape[1] * weight.shape[2];
        let row = weight.quant.gpu_bytes(weight.quant.blocks(weight.shape[0]));
        // For four rows every stream has whole words, which copies need.
        let run = (most / row.max(1) / 4 * 4).max(4);
        for first in (0..count).step_by(run) {
            let (piece, bytes) = piece(weight, first..count.min(first + run));
            if open.bytes + bytes > most && !open.pieces.is_empty() {
                groups.push(std::mem::take(&mut open));
            }
            open.add(piece, bytes);
        }
    }
    groups.extend(Some(open).filter(|open| !open.pieces.is_empty()));
    groups
}

impl PieceGroup {
    fn add(&mut self, mut piece: UploadPiece, bytes: usize) {
        piece.parts.iter_mut().for_each(|part| part.staged += self.bytes);
        self.pieces.push(piece);
        self.bytes += bytes;
    }
}

/// A piece with rows of a weight, at position 0, and the staging memory that it takes.
fn piece(weight: &Weight, rows: Range<usize>) -> (UploadPiece, usize) {
    let (blocks, streams) = (weight.quant.blocks(weight.shape[0]), weight.streams());
    let ends = streams.iter().skip(1).map(|(start, _)| *start).chain([weight.bytes()]);
    let last = rows.end == weight.shape[1] * weight.shape[2];
    let (mut parts, mut staged) = (Vec::with_capacity(streams.len()), 0);
    for ((stream, (start, _)), end) in weight.quant.streams.iter().zip(&streams).zip(ends) {
        let row_bytes = stream.bytes * blocks;
        let offset = start + (rows.start * row_bytes) as u64;
        let bytes = if last { (end - offset) as usize } else { rows.len() * row_bytes };
        parts.push(StreamRange { staged, offset, row_bytes, bytes });
        staged += bytes.next_multiple_of(ALIGNMENT);
    }
    (UploadPiece { weight: weight.id, rows, parts }, staged)
}
