//! IQ2_XXS: 256 values; a quant of 8 bits is the index of a grid entry of eight magnitudes; the sign of every eighth
//! value makes the number of negative ones among the eight even; every 32 share a 4-bit scale. *w* = d · (s + ½) / 4 ·
//! ± magnitude.
//!
//! Block (66 bytes): d f16 | for each group 4 quants u8, and a u32 of four times 7 signs below a scale of 4 bits.
//! Layout: ggml `block_iq2_xxs`. The stream `words` holds a group's quants, and its signs with scales next to them.

use std::array::from_fn;

use bytemuck::{Pod, Zeroable};

use super::block::{Block, Codec, Half};
use super::grids::{EIGHTS, Grid, GridBuffer, MIDDLE};
use super::signs::{codes_of, eight_of, signed, signs_beside};
use super::{Family, Quant, Stream, Table};
use crate::wgsl::source;

/// 2-bit indices into a grid of 256 entries, 4-bit scales for 32 values in a superblock of 256.
pub const IQ2_XXS: Quant = Quant {
    name: "iq2_xxs",
    id: 16,
    values: 256,
    bytes: 66,
    ragged: false,
    streams: &[Stream { name: "words", bytes: 64 }, Stream { name: "supers", bytes: 2 }],
    family: Family::Table(Table::Grid(Grid { buffer: GridBuffer::Eights, first: FIRST })),
    fragment: source!("quant/iq2_xxs.wgsl"),
    codec: Codec::of::<BlockIq2Xxs>(),
};

/// The first entry of the grid.
const FIRST: usize = 0;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct BlockIq2Xxs {
    d: Half,
    groups: [Group; 8],
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Group {
    quants: [u8; 4],
    signs: [u8; 4],
}

impl Block for BlockIq2Xxs {
    type Values = [f32; 256];
    type Streams = ([[[u8; 4]; 2]; 8], Half);

    fn decode(&self) -> Self::Values {
        let scaled: [_; 8] = from_fn(|group| {
            let (codes, scale) = codes_of(self.groups[group].signs);
            (self.d.get() * (f32::from(scale) + 0.5) * 0.25, codes.map(eight_of))
        });
        from_fn(|i| {
            let ((scale, signs), entry) = (scaled[i / 32], i % 32 / 8);
            let magnitude = EIGHTS[FIRST + usize::from(self.groups[i / 32].quants[entry])][i % 8] - MIDDLE;
            scale * signed(f32::from(magnitude), signs[entry], i % 8)
        })
    }

    fn repack(&self) -> Self::Streams {
        let words = self.groups.map(|Group { quants, signs }| {
            let (codes, scale) = codes_of(signs);
            [quants, signs_beside(codes, scale).to_le_bytes()]
        });
        (words, self.d)
    }

    fn tame(&mut self, spread: f32) {
        // The standard deviation of (s + ½) / 4 · ± magnitude over random bytes is 53.4.
        self.d = Half::of(spread / 53.4);
    }
}
