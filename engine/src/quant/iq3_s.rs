//! IQ3_S: 256 values; a quant of 9 bits is the index of a grid entry of four magnitudes; every value has a sign; every
//! 32 share a 4-bit scale. *w* = d · (2s + 1) · ± magnitude, which is an odd number up to 15.
//!
//! Block (110 bytes): d f16 | 64 bytes of the quants' low 8 bits | 8 bytes of their ninth bits, eight each | 32 bytes
//! of signs, eight each | 4 bytes of scales, two each. Layout: ggml `block_iq3_s`. The stream `scales` holds the ninth
//! bits, then the scales.

use std::array::from_fn;

use bytemuck::{Pod, Zeroable};

use super::block::{Block, Codec, Half};
use super::grids::{FOURS, Grid, GridBuffer};
use super::packing::bits_of_words;
use super::signs::signed;
use super::{Family, Quant, Stream, Table};
use crate::wgsl::source;

/// 3-bit indices into a grid of 512 entries, a sign for each value, 4-bit scales for 32 values in a superblock of 256.
pub const IQ3_S: Quant = Quant {
    name: "iq3_s",
    id: 21,
    values: 256,
    bytes: 110,
    ragged: false,
    streams: &[
        Stream { name: "entries", bytes: 64 },
        Stream { name: "signs", bytes: 32 },
        Stream { name: "scales", bytes: 12 },
        Stream { name: "supers", bytes: 2 },
    ],
    family: Family::Table(Table::Grid(Grid { buffer: GridBuffer::Fours, first: FIRST })),
    fragment: source!("quant/iq3_s.wgsl"),
    codec: Codec::of::<BlockIq3S>(),
};

/// The first entry of the grid.
const FIRST: usize = 256;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct BlockIq3S {
    d: Half,
    low: [u8; 64],
    ninth: [u8; 8],
    signs: [[u8; 4]; 8],
    scales: [u8; 4],
}

impl Block for BlockIq3S {
    type Values = [f32; 256];
    type Streams = ([u8; 64], [[u8; 4]; 8], [[u8; 4]; 3], Half);

    fn decode(&self) -> Self::Values {
        let d = self.d.get();
        let scales: [f32; 8] = from_fn(|j| d * f32::from(1 + 2 * (self.scales[j / 2] >> (j % 2 * 4) & 15)));
        from_fn(|i| {
            let quant = usize::from(self.low[i / 4]) | usize::from(self.ninth[i / 32] >> (i / 4 % 8) & 1) << 8;
            let magnitude = 2 * FOURS[FIRST + quant][i % 4] - 15;
            scales[i / 32] * signed(f32::from(magnitude), self.signs[i / 32][i % 32 / 8], i % 8)
        })
    }

    fn repack(&self) -> Self::Streams {
        let ninth = |half: usize| from_fn(|i| self.ninth[4 * half + i]);
        (
            self.low,
            self.signs.map(|group| bits_of_words(group).to_le_bytes()),
            [ninth(0), ninth(1), self.scales],
            self.d,
        )
    }

    fn tame(&mut self, spread: f32) {
        // The standard deviation of (2s + 1) · ± magnitude over random bytes is 140.
        self.d = Half::of(spread / 140.0);
    }
}
