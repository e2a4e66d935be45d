//! Q4_0: 32 values of 4 bits, one scale. *w* = d · (q − 8).
//!
//! Block (18 bytes): d f16 | 16 bytes of nibbles, value *i* low and value *i* + 16 high in byte *i*.
//! Layout: ggml `block_q4_0`.

use std::array::from_fn;

use bytemuck::{Pod, Zeroable};

use super::block::{Block, Codec, Half};
use super::packing::nibble;
use super::{Family, Quant, Stream};
use crate::wgsl::source;

/// 4 bits, a scale for 32 values.
pub const Q4_0: Quant = Quant {
    name: "q4_0",
    id: 2,
    values: 32,
    bytes: 18,
    ragged: false,
    streams: &[Stream { name: "nibbles", bytes: 16 }, Stream { name: "scales", bytes: 2 }],
    family: Family::Affine,
    fragment: source!("quant/q4_0.wgsl"),
    codec: Codec::of::<BlockQ4_0>(),
};

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct BlockQ4_0 {
    d: Half,
    nibbles: [u8; 16],
}

impl Block for BlockQ4_0 {
    type Values = [f32; 32];
    type Streams = ([u8; 16], Half);

    fn decode(&self) -> Self::Values {
        let d = self.d.get();
        from_fn(|i| d * (nibble(&self.nibbles, i) as f32 - 8.0))
    }

    fn repack(&self) -> Self::Streams {
        (self.nibbles, self.d)
    }

    fn tame(&mut self, spread: f32) {
        self.d = Half::of(spread / 4.6);
    }
}
