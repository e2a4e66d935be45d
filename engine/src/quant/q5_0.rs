//! Q5_0: 32 values of 5 bits, one scale. *w* = d · (q − 16).
//!
//! Block (22 bytes): d f16 | fifth bits, that of value *i* in bit *i* of a u32 | 16 bytes of nibbles, value
//! *i* low and value *i* + 16 high in byte *i*. Layout: ggml `block_q5_0`.

use std::array::from_fn;

use bytemuck::{Pod, Zeroable};

use super::block::{Block, Codec, Half};
use super::packing::{bit, bits_of_words, nibble};
use super::{Family, Quant, Stream};
use crate::wgsl::source;

/// 5 bits, a scale for 32 values.
pub const Q5_0: Quant = Quant {
    name: "q5_0",
    id: 6,
    values: 32,
    bytes: 22,
    ragged: false,
    streams: &[
        Stream { name: "nibbles", bytes: 16 },
        Stream { name: "bits", bytes: 4 },
        Stream { name: "scales", bytes: 2 },
    ],
    family: Family::Affine,
    fragment: source!("quant/q5_0.wgsl"),
    codec: Codec::of::<BlockQ5_0>(),
};

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct BlockQ5_0 {
    d: Half,
    bits: [u8; 4],
    nibbles: [u8; 16],
}

impl Block for BlockQ5_0 {
    type Values = [f32; 32];
    type Streams = ([u8; 16], [u8; 4], Half);

    fn decode(&self) -> Self::Values {
        let d = self.d.get();
        from_fn(|i| {
            let q = nibble(&self.nibbles, i) | bit(&self.bits, i) << 4;
            d * (q as f32 - 16.0)
        })
    }

    fn repack(&self) -> Self::Streams {
        (self.nibbles, bits_of_words(self.bits).to_le_bytes(), self.d)
    }

    fn tame(&mut self, spread: f32) {
        self.d = Half::of(spread / 9.2);
    }
}
