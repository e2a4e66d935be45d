//! IQ3_XXS: 256 values; a quant of 8 bits is the index of a grid entry of four magnitudes; the sign of every eighth
//! value makes the number of negative ones among the eight even; every 32 share a 4-bit scale. *w* = d · (s + ½) / 2 ·
//! ± magnitude.
//!
//! Block (98 bytes): d f16 | 64 quants u8 | for each group a u32 of four times 7 signs below a scale of 4 bits. Layout:
//! ggml `block_iq3_xxs`. The stream `signs` holds the scales next to the signs.

use std::array::from_fn;

use bytemuck::{Pod, Zeroable};

use super::block::{Block, Codec, Half};
use super::grids::{FOURS, Grid, GridBuffer, MIDDLE};
use super::signs::{codes_of, eight_of, signed, signs_beside};
use super::{Family, Quant, Stream, Table};
use crate::wgsl::source;

/// 3-bit indices into a grid of 256 entries, 4-bit scales for 32 values in a superblock of 256.
pub const IQ3_XXS: Quant = Quant {
    name: "iq3_xxs",
    id: 18,
    values: 256,
    bytes: 98,
    ragged: false,
    streams: &[
        Stream { name: "entries", bytes: 64 },
        Stream { name: "signs", bytes: 32 },
        Stream { name: "supers", bytes: 2 },
    ],
    family: Family::Table(Table::Grid(Grid { buffer: GridBuffer::Fours, first: FIRST })),
    fragment: source!("quant/iq3_xxs.wgsl"),
    codec: Codec::of::<BlockIq3Xxs>(),
};

/// The first entry of the grid.
const FIRST: usize = 0;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct BlockIq3Xxs {
    d: Half,
    quants: [u8; 64],
    signs: [[u8; 4]; 8],
}

impl Block for BlockIq3Xxs {
    type Values = [f32; 256];
    type Streams = ([u8; 64], [[u8; 4]; 8], Half);

    fn decode(&self) -> Self::Values {
        let scaled = self.signs.map(|word| {
            let (codes, scale) = codes_of(word);
            (self.d.get() * (f32::from(scale) + 0.5) * 0.5, codes.map(eight_of))
        });
        from_fn(|i| {
            let (scale, signs) = scaled[i / 32];
            let magnitude = FOURS[FIRST + usize::from(self.quants[i / 4])][i % 4] - MIDDLE;
            scale * signed(f32::from(magnitude), signs[i % 32 / 8], i % 8)
        })
    }

    fn repack(&self) -> Self::Streams {
        let signs = self.signs.map(|word| {
            let (codes, scale) = codes_of(word);
            signs_beside(codes, scale).to_le_bytes()
        });
        (self.quants, signs, self.d)
    }

    fn tame(&mut self, spread: f32) {
        // The standard deviation of (s + ½) / 2 · ± magnitude over random bytes is 142.
        self.d = Half::of(spread / 142.0);
    }
}
