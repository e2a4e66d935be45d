//! IQ4_NL: 32 values of 4 bits, one scale. *w* = d · t\[q\], with a fixed table t of 16 signed bytes that lie closer
//! together around zero.
//!
//! Block (18 bytes): d f16 | 16 bytes of nibbles, value *i* low and value *i* + 16 high in byte *i*.
//! Layout: ggml `block_iq4_nl`.

use std::array::from_fn;

use bytemuck::{Pod, Zeroable};

use super::block::{Block, Codec, Half};
use super::packing::{bit_planes, nibble};
use super::{Family, Quant, Stream, Table};
use crate::wgsl::source;

/// 4-bit indices into a table, a scale for 32 values.
pub const IQ4_NL: Quant = Quant {
    name: "iq4_nl",
    id: 20,
    values: 32,
    bytes: 18,
    ragged: false,
    streams: &[Stream { name: "planes", bytes: 16 }, Stream { name: "scales", bytes: 2 }],
    family: Family::Table(Table::Planes),
    fragment: source!("quant/iq4_nl.wgsl"),
    codec: Codec::of::<BlockIq4Nl>(),
};

/// The table of values.
pub(super) const UNEVEN: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct BlockIq4Nl {
    d: Half,
    nibbles: [u8; 16],
}

impl Block for BlockIq4Nl {
    type Values = [f32; 32];
    type Streams = ([u8; 16], Half);

    fn decode(&self) -> Self::Values {
        let d = self.d.get();
        from_fn(|i| d * f32::from(UNEVEN[usize::from(nibble(&self.nibbles, i))]))
    }

    fn repack(&self) -> Self::Streams {
        (bit_planes(&self.nibbles), self.d)
    }

    fn tame(&mut self, spread: f32) {
        self.d = Half::of(spread / 67.4);
    }
}
