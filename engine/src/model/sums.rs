//! Checksums of the weights that the host sends (see `kernels/weight_sum.rs`), computed where their bytes are made.
//!
//! A checksum depends only on the weight's bytes on the GPU, and not on how the upload is cut or which thread sums
//! what.

use crate::kernels::{SUM_TILE, sum_factors};
use crate::plan::WeightId;
use std::sync::atomic::{AtomicU32, Ordering};

/// The size of a tile in bytes.
const TILE: usize = 4 * SUM_TILE;
/// The number of words that are summed in parallel, as many as the vector registers of any processor hold.
const LANES: usize = 16;

/// The checksums of all weights. Any thread can add to any of them.
pub(super) struct Sums(Vec<[AtomicU32; 2]>);

impl Sums {
    /// The checksums of `count` weights of which nothing was sent yet.
    pub fn of(count: usize) -> Self {
        Self((0..count).map(|_| Default::default()).collect())
    }

    /// Adds bytes of a weight's buffer at `offset`, a multiple of a word. Only the end of a stream may lie inside a
    /// word; the rest of that word is zero on the GPU as well.
    pub fn add(&self, weight: WeightId, offset: u64, bytes: &[u8]) {
        for (sum, more) in self.0[weight.index()].iter().zip(sums(offset, bytes)) {
            sum.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// The checksums, indexed like the table of weights.
    pub fn finish(self) -> Vec<[u32; 2]> {
        self.0.into_iter().map(|pair| pair.map(AtomicU32::into_inner)).collect()
    }
}

/// The checksum of bytes at `offset` of a buffer.
fn sums(offset: u64, bytes: &[u8]) -> [u32; 2] {
    let inside = (offset % TILE as u64) as usize;
    let (first, rest) = bytes.split_at(bytes.len().min(TILE - inside));
    let tiles = std::iter::once((inside, first)).chain(rest.chunks(TILE).map(|tile| (0, tile)));
    let mut sums = [0u32; 2];
    for ((inside, bytes), tile) in tiles.zip((offset / TILE as u64) as u32..) {
        let (plain, placed) = plain_and_placed((inside / 4) as u32, bytes);
        for (sum, [start, step]) in sums.iter_mut().zip(sum_factors(tile)) {
            *sum = sum.wrapping_add(start.wrapping_mul(plain)).wrapping_add(step.wrapping_mul(placed));
        }
    }
    sums
}

/// The sum of a tile's words, the first of which has index `first`, and the sum of the words times their indices.
fn plain_and_placed(first: u32, bytes: &[u8]) -> (u32, u32) {
    let (runs, rest) = bytes.as_chunks();
    let (sums, running) = by_lane(runs);
    let (runs, lanes) = (runs.len() as u32, LANES as u32);
    let (mut plain, mut placed) = (0u32, 0u32);
    for ((sum, running), lane) in sums.into_iter().zip(running).zip(0u32..) {
        plain = plain.wrapping_add(sum);
        // The running sum contains the words of run r `runs - r` times.
        let times_run = runs.wrapping_mul(sum).wrapping_sub(running);
        placed = placed.wrapping_add(lanes.wrapping_mul(times_run)).wrapping_add(lane.wrapping_mul(sum));
    }
    for (word, place) in rest.chunks(4).zip(lanes * runs..) {
        let mut four = [0; 4];
        four[..word.len()].copy_from_slice(word);
        let word = u32::from_le_bytes(four);
        plain = plain.wrapping_add(word);
        placed = placed.wrapping_add(place.wrapping_mul(word));
    }
    (plain, placed.wrapping_add(first.wrapping_mul(plain)))
}

/// For each lane the sum, and the sum of its values after every run. Compilers turn this into vector instructions with
/// two additions for each word, which is far faster than a core repacks.
fn by_lane(runs: &[[u8; 4 * LANES]]) -> ([u32; LANES], [u32; LANES]) {
    let (mut sums, mut running) = ([0u32; LANES], [0u32; LANES]);
    for run in runs {
        for ((sum, running), word) in sums.iter_mut().zip(&mut running).zip(run.as_chunks().0) {
            *sum = sum.wrapping_add(u32::from_le_bytes(*word));
            *running = running.wrapping_add(*sum);
        }
    }
    (sums, running)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(bytes: usize) -> Vec<u8> {
        let mut seed = 1u64;
        let mut next = || {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 56) as u8
        };
        (0..bytes).map(|_| next()).collect()
    }

    /// The definition in the kernel's file, word by word.
    fn defined(offset: usize, bytes: &[u8]) -> [u32; 2] {
        let mut sums = [0u32; 2];
        for (word, at) in bytes.chunks(4).zip(offset / 4..) {
            let word = (0..4).map(|i| u32::from(*word.get(i).unwrap_or(&0)) << (8 * i)).sum::<u32>();
            for (sum, [start, step]) in sums.iter_mut().zip(sum_factors((at / SUM_TILE) as u32)) {
                let factor = start.wrapping_add(step.wrapping_mul((at % SUM_TILE) as u32));
                *sum = sum.wrapping_add(word.wrapping_mul(factor));
            }
        }
        sums
    }

    #[test]
    fn they_are_what_they_are_defined_as() {
        let bytes = noise(5 * TILE);
        for offset in [0, 4, 60, 64, TILE - 4, TILE, 7 * TILE + 12] {
            for count in [0, 1, 2, 4, 7, 63, 64, 65, 1000, TILE - 4, TILE, TILE + 1, 4 * TILE + 100] {
                assert_eq!(
                    sums(offset as u64, &bytes[..count]),
                    defined(offset, &bytes[..count]),
                    "{count} at {offset}"
                );
            }
        }
    }

    /// The checksum does not depend on how a buffer is cut, or on the order of its pieces.
    #[test]
    fn pieces_add_up() {
        let bytes = noise(3 * TILE + 20);
        let of_pieces = |cuts: &[usize], reversed: bool| {
            let sums = Sums::of(2);
            let ends = cuts.iter().copied().skip(1).chain([bytes.len()]);
            let mut pieces: Vec<(usize, usize)> = cuts.iter().copied().zip(ends).collect();
            if reversed {
                pieces.reverse();
            }
            pieces.into_iter().for_each(|(start, end)| sums.add(WeightId::new(1), start as u64, &bytes[start..end]));
            sums.finish()
        };
        let whole = of_pieces(&[0], false);
        assert_eq!(whole, [[0; 2], defined(0, &bytes)]);
        assert_eq!(of_pieces(&[0, 4, 100, TILE, 2 * TILE + 8], true), whole);
        assert_eq!(of_pieces(&[0, TILE + 4, 3 * TILE + 16], false), whole);
    }

    /// Tests pieces that are missing, exchanged, moved by any power of two, duplicated, or outdated.
    #[test]
    fn what_an_upload_can_do_wrong_shows() {
        let right = noise(64 * TILE);
        let other: Vec<u8> = right.iter().rev().copied().collect();
        let sum = |bytes: &[u8]| sums(0, bytes);
        let want = sum(&right);
        for piece in [4, 64, TILE, 3 * TILE + 4, 16 * TILE] {
            let with = |at: usize, from: &[u8]| {
                let mut wrong = right.clone();
                wrong[at..at + piece].copy_from_slice(&from[..piece]);
                sum(&wrong)
            };
            for at in [0, 4, TILE, 48 * TILE] {
                assert_ne!(with(at, &vec![0; piece]), want, "{piece} bytes at {at} are missing");
                assert_ne!(with(at, &other[at..]), want, "{piece} bytes at {at} are another's");
                for from in (2..19).map(|shift| 1 << shift).filter(|from| from + piece <= right.len() && *from != at) {
                    assert_ne!(with(at, &right[from..]), want, "{piece} bytes at {at} are from {from}");
                    let mut exchanged = right.clone();
                    exchanged[at..at + piece].copy_from_slice(&right[from..from + piece]);
                    exchanged[from..from + piece].copy_from_slice(&right[at..at + piece]);
                    assert_ne!(sum(&exchanged), want, "{piece} bytes at {at} and {from} are exchanged");
                }
            }
        }
    }
}
