//! IQ2_S: 256 values; a quant of 10 bits is the index of a grid entry of eight magnitudes; every value has a sign;
//! every 16 share a 4-bit scale. *w* = d · (s + ½) / 4 · ± magnitude.
//!
//! Block (82 bytes): d f16 | 32 bytes of the quants' low 8 bits | 32 bytes of signs, eight each | 8 bytes of the
//! quants' high 2 bits, four each | 8 bytes of scales, two each. Layout: ggml `block_iq2_s`. The stream `words` holds
//! the low 8 bits of a group's quants, and its signs; `scales` holds for every four groups the bytes of the
//! quants' high bits, then those of the scales.

use std::array::from_fn;

use bytemuck::{Pod, Zeroable};

use super::block::{Block, Codec, Half};
use super::grids::{EIGHTS, Grid, GridBuffer, MIDDLE};
use super::packing::bits_of_words;
use super::signs::signed;
use super::{Family, Quant, Stream, Table};
use crate::wgsl::source;

/// 2-bit indices into a grid of 1024 entries, a sign for each value, 4-bit scales for 16 values in a superblock of 256.
pub const IQ2_S: Quant = Quant {
    name: "iq2_s",
    id: 22,
    values: 256,
    bytes: 82,
    ragged: false,
    streams: &[
        Stream { name: "words", bytes: 64 },
        Stream { name: "scales", bytes: 16 },
        Stream { name: "supers", bytes: 2 },
    ],
    family: Family::Table(Table::Grid(Grid { buffer: GridBuffer::Eights, first: FIRST })),
    fragment: source!("quant/iq2_s.wgsl"),
    codec: Codec::of::<BlockIq2S>(),
};

/// The first entry of the grid.
const FIRST: usize = 768;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct BlockIq2S {
    d: Half,
    low: [[u8; 4]; 8],
    signs: [[u8; 4]; 8],
    high: [u8; 8],
    scales: [u8; 8],
}

impl Block for BlockIq2S {
    type Values = [f32; 256];
    type Streams = ([[[u8; 4]; 2]; 8], [[u8; 4]; 4], Half);

    fn decode(&self) -> Self::Values {
        let d = self.d.get();
        let scales: [f32; 16] = from_fn(|j| d * (f32::from(self.scales[j / 2] >> (j % 2 * 4) & 15) + 0.5) * 0.25);
        from_fn(|i| {
            let (group, entry) = (i / 32, i % 32 / 8);
            let quant = usize::from(self.low[group][entry]) | usize::from(self.high[group] >> (2 * entry) & 3) << 8;
            let magnitude = EIGHTS[FIRST + quant][i % 8] - MIDDLE;
            scales[i / 16] * signed(f32::from(magnitude), self.signs[group][entry], i % 8)
        })
    }

    fn repack(&self) -> Self::Streams {
        let words = from_fn(|group| [self.low[group], bits_of_words(self.signs[group]).to_le_bytes()]);
        let [high, scales] = [self.high, self.scales].map(|bytes| [0, 4].map(|at| from_fn(|i| bytes[at + i])));
        (words, [high[0], scales[0], high[1], scales[1]], self.d)
    }

    fn tame(&mut self, spread: f32) {
        // The standard deviation of (s + ½) / 4 · ± magnitude over random bytes is 56.4.
        self.d = Half::of(spread / 56.4);
    }
}
