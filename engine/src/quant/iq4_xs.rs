//! IQ4_XS: 256 values of 4 bits; every 32 share a 6-bit scale. *w* = d · (s − 32) · t\[q\], with the table t of IQ4_NL.
//!
//! Block (136 bytes): d f16 | high 2 bits of the scales u16, those of group *j* at bit 2 *j* | 4 bytes of the low 4
//! bits, those of group *j* in nibble *j* | for each group 16 bytes of nibbles, value *i* low and value *i* + 16 high
//! in byte *i*. Layout: ggml `block_iq4_xs`. The stream `scales` holds the first 8 bytes as they are in the file.

use std::array::from_fn;

use bytemuck::{Pod, Zeroable};

use super::block::{Block, Codec, Half};
use super::iq4_nl::UNEVEN;
use super::packing::{bit_planes, nibble};
use super::{Family, Quant, Stream, Table};
use crate::wgsl::source;

/// 4-bit indices into a table, 6-bit scales for 32 values in a superblock of 256.
pub const IQ4_XS: Quant = Quant {
    name: "iq4_xs",
    id: 23,
    values: 256,
    bytes: 136,
    ragged: false,
    streams: &[Stream { name: "planes", bytes: 128 }, Stream { name: "scales", bytes: 8 }],
    family: Family::Table(Table::Planes),
    fragment: source!("quant/iq4_xs.wgsl"),
    codec: Codec::of::<BlockIq4Xs>(),
};

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct BlockIq4Xs {
    scales: Scales,
    nibbles: [[u8; 16]; 8],
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Scales {
    d: Half,
    high: [u8; 2],
    low: [u8; 4],
}

impl Block for BlockIq4Xs {
    type Values = [f32; 256];
    type Streams = ([[u8; 16]; 8], Scales);

    fn decode(&self) -> Self::Values {
        let Scales { d, high, low } = self.scales;
        let scales: [f32; 8] = from_fn(|j| {
            let s = low[j / 2] >> (j % 2 * 4) & 15 | (high[j / 4] >> (j % 4 * 2) & 3) << 4;
            d.get() * f32::from(s as i8 - 32)
        });
        from_fn(|i| scales[i / 32] * f32::from(UNEVEN[usize::from(nibble(&self.nibbles[i / 32], i % 32))]))
    }

    fn repack(&self) -> Self::Streams {
        (self.nibbles.map(|group| bit_planes(&group)), self.scales)
    }

    fn tame(&mut self, spread: f32) {
        // The standard deviation of (s − 32) · t[q] over random bytes is 1246.
        self.scales.d = Half::of(spread / 1246.0);
    }
}
