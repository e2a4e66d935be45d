//! Q5_1: 32 values of 5 bits, one scale, one minimum. *w* = d · q + m.
//!
//! Block (24 bytes): d f16 | m f16 | fifth bits, that of value *i* in bit *i* of a u32 | 16 bytes of nibbles,
//! value *i* low and value *i* + 16 high in byte *i*. Layout: ggml `block_q5_1`. The stream `scales` holds d, m.

use std::array::from_fn;

use bytemuck::{Pod, Zeroable};

use super::block::{Block, Codec, Half};
use super::packing::{bit, bits_of_words, nibble};
use super::{Family, Quant, Stream};
use crate::wgsl::source;

/// 5 bits, a scale and a minimum for 32 values.
pub const Q5_1: Quant = Quant {
    name: "q5_1",
    id: 7,
    values: 32,
    bytes: 24,
    ragged: false,
    streams: &[
        Stream { name: "nibbles", bytes: 16 },
        Stream { name: "bits", bytes: 4 },
        Stream { name: "scales", bytes: 4 },
    ],
    family: Family::Affine,
    fragment: source!("quant/q5_1.wgsl"),
    codec: Codec::of::<BlockQ5_1>(),
};

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct BlockQ5_1 {
    scales: [Half; 2],
    bits: [u8; 4],
    nibbles: [u8; 16],
}

impl Block for BlockQ5_1 {
    type Values = [f32; 32];
    type Streams = ([u8; 16], [u8; 4], [Half; 2]);

    fn decode(&self) -> Self::Values {
        let [d, m] = self.scales.map(Half::get);
        from_fn(|i| {
            let q = nibble(&self.nibbles, i) | bit(&self.bits, i) << 4;
            d * q as f32 + m
        })
    }

    fn repack(&self) -> Self::Streams {
        (self.nibbles, bits_of_words(self.bits).to_le_bytes(), self.scales)
    }

    fn tame(&mut self, spread: f32) {
        let d = spread / 9.2;
        self.scales = [d, -15.5 * d].map(Half::of);
    }
}
