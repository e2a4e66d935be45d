//! Two checksums of a weight's buffer, to verify uploads. No plan of a token uses them.
//!
//! Each is Σ wᵢ · fᵢ modulo 2³² over the buffer's words wᵢ. A buffer is divided into tiles of [`TILE`] words. Within a
//! tile the factor fᵢ grows by a constant from word to word; its first value and the constant are pseudorandom for each
//! tile and each of the two sums. So the sums of parts add up, in any order, and the CPU needs no product for each
//! word.
//!
//! Factors are odd, so a single changed word is always detected. Words that are lost, stale, misplaced or changed in
//! any other way that does not depend on the factors go unnoticed with a probability of about 2⁻⁶³, except changes of
//! several words within a tile that preserve both the sum of its words and the sum of its words times their indices.
//! The sums do not protect against deliberate changes.

use super::computes::WordSums;
use super::sampling::pcg4d;
use super::{Kernel, expect_multiple, params};
use crate::error::Result;
use crate::plan::{Bound, BufferRef, Builder, Cost, VariantBuilder};
use crate::wgsl::{Source, source};
use std::ops::Range;

const OP: Source = source!("op/weight_sum.wgsl");
const WORKGROUP: usize = 256;
/// The number of outstanding reads of an invocation, of four words each.
pub(crate) const CHUNKS: usize = 4;
/// Enough workgroups to saturate any memory, and few enough that their final additions cost little.
pub(crate) const MAX_WORKGROUPS: usize = 256;

/// The number of words of a tile.
pub(crate) const TILE: usize = 4 * WORKGROUP;

params! { count: u32, tile: u32, place: u32 }

pub(super) const KERNEL: Kernel = Kernel { name: "weight_sum", op: OP, params: Params::FIELDS, matrices: &[] };

/// For each sum, the factor of a tile's first word and its increment from word to word.
pub(crate) fn factors(tile: u32) -> [[u32; 2]; 2] {
    let [x, y, z, w] = pcg4d([tile, 0, 0, 0]);
    [[x | 1, y << 1], [z | 1, w << 1]]
}

impl Builder {
    /// Adds the sums of a range of a buffer's bytes, which begins at a tile and consists of whole vectors of four
    /// words, to pair `place` of `sums`. An empty range adds nothing.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the bytes are not such a range.
    pub fn weight_sum(
        &mut self,
        label: &str,
        words: BufferRef,
        bytes: Range<u64>,
        (sums, place): (BufferRef, usize),
    ) -> Result<()> {
        let [start, count] = [bytes.start, bytes.end.saturating_sub(bytes.start)].map(|n| n as usize);
        expect_multiple(KERNEL.name, "the range's start", start, 4 * TILE)?;
        expect_multiple(KERNEL.name, "the range", count, 16)?;
        if count == 0 {
            return Ok(());
        }
        let variant = VariantBuilder::new(KERNEL.name, OP, WORKGROUP)
            .constant("CHUNKS", "c", CHUNKS)
            .file(source!("lib/noise.wgsl"));
        let range = Bound { name: "words".into(), buffer: words, offset: bytes.start, bytes: count as u64 };
        let bindings = vec![range, self.bound("sums", sums)];
        let params = Params { count: (count / 16) as u32, tile: (start / (4 * TILE)) as u32, place: place as u32 };
        let cost = Cost { weights: count as u64, ..Cost::default() };
        let summed = WordSums { words, range: start / 4..(start + count) / 4, sums, place };
        self.computes(KERNEL.name, summed);
        let workgroups = count.div_ceil(4 * TILE * CHUNKS).min(MAX_WORKGROUPS);
        self.step(label, variant, bindings, &params, [workgroups, 1, 1], cost)
    }
}
