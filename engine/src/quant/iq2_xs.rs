//! IQ2_XS: 256 values; a quant of 9 bits is the index of a grid entry of eight magnitudes; the sign of every eighth
//! value makes the number of negative ones among the eight even; every 16 share a 4-bit scale. *w* = d · (s + ½) / 4 ·
//! ± magnitude.
//!
//! Block (74 bytes): d f16 | 32 u16, each a quant of 9 bits below 7 signs | 8 bytes of scales, two each. Layout: ggml
//! `block_iq2_xs`. The stream `words` holds the low 8 bits of a group's quants, and its signs with the ninth bits next
//! to them.

use std::array::from_fn;

use bytemuck::{Pod, Zeroable};

use super::block::{Block, Codec, Half};
use super::grids::{EIGHTS, Grid, GridBuffer, MIDDLE};
use super::signs::{eight_of, signed, signs_beside};
use super::{Family, Quant, Stream, Table};
use crate::wgsl::source;

/// 2-bit indices into a grid of 512 entries, 4-bit scales for 16 values in a superblock of 256.
pub const IQ2_XS: Quant = Quant {
    name: "iq2_xs",
    id: 17,
    values: 256,
    bytes: 74,
    ragged: false,
    streams: &[
        Stream { name: "words", bytes: 64 },
        Stream { name: "scales", bytes: 8 },
        Stream { name: "supers", bytes: 2 },
    ],
    family: Family::Table(Table::Grid(Grid { buffer: GridBuffer::Eights, first: FIRST })),
    fragment: source!("quant/iq2_xs.wgsl"),
    codec: Codec::of::<BlockIq2Xs>(),
};

/// The first entry of the grid.
const FIRST: usize = 256;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct BlockIq2Xs {
    d: Half,
    quants: [[[u8; 2]; 4]; 8],
    scales: [u8; 8],
}

/// The index of the entry, and the seven signs.
fn parts(quant: [u8; 2]) -> (usize, u8) {
    let quant = u16::from_le_bytes(quant);
    (usize::from(quant & 511), (quant >> 9) as u8)
}

impl Block for BlockIq2Xs {
    type Values = [f32; 256];
    type Streams = ([[[u8; 4]; 2]; 8], [u8; 8], Half);

    fn decode(&self) -> Self::Values {
        let d = self.d.get();
        let scales: [f32; 16] = from_fn(|j| d * (f32::from(self.scales[j / 2] >> (j % 2 * 4) & 15) + 0.5) * 0.25);
        from_fn(|i| {
            let (entry, code) = parts(self.quants[i / 32][i % 32 / 8]);
            let magnitude = EIGHTS[FIRST + entry][i % 8] - MIDDLE;
            scales[i / 16] * signed(f32::from(magnitude), eight_of(code), i % 8)
        })
    }

    fn repack(&self) -> Self::Streams {
        let words = self.quants.map(|group| {
            let ninth = (0..4).fold(0, |bits, entry| bits | (group[entry][1] & 1) << entry);
            [group.map(|[low, _]| low), signs_beside(group.map(|quant| parts(quant).1), ninth).to_le_bytes()]
        });
        (words, self.scales, self.d)
    }

    fn tame(&mut self, spread: f32) {
        // The standard deviation of (s + ½) / 4 · ± magnitude over random bytes is 55.9.
        self.d = Half::of(spread / 55.9);
    }
}
