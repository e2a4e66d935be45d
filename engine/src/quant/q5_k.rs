//! Q5_K: 256 values of 5 bits; every 32 share a 6-bit scale and a 6-bit minimum. *w* = d · s · q − dmin · m.
//!
//! Block (176 bytes): d f16 | dmin f16 | 12 bytes of scales and minima | 32 bytes of fifth bits in planes |
//! 128 bytes of nibbles in planes. Layout: ggml `block_q5_K`. The stream `scales` holds the first 16 bytes
//! as they are in the file.

use std::array::from_fn;

use bytemuck::{Pod, Zeroable};

use super::block::{Block, Codec};
use super::packing::{GroupScales, bits, nibbles, plane};
use super::{Family, Quant, Stream};
use crate::wgsl::source;

/// 5 bits, 6-bit scales and minima for 32 values in a superblock of 256.
pub const Q5_K: Quant = Quant {
    name: "q5_k",
    id: 13,
    values: 256,
    bytes: 176,
    ragged: false,
    streams: &[
        Stream { name: "nibbles", bytes: 128 },
        Stream { name: "bits", bytes: 32 },
        Stream { name: "scales", bytes: 16 },
    ],
    family: Family::Affine,
    fragment: source!("quant/q5_k.wgsl"),
    codec: Codec::of::<BlockQ5K>(),
};

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct BlockQ5K {
    scales: GroupScales,
    bits: [u8; 32],
    nibbles: [u8; 128],
}

impl Block for BlockQ5K {
    type Values = [f32; 256];
    type Streams = ([[u8; 16]; 8], [[u8; 4]; 8], GroupScales);

    fn decode(&self) -> Self::Values {
        let scales = self.scales.unpack();
        from_fn(|i| {
            let (scale, min) = scales[i / 32];
            let q = plane::<4>(&self.nibbles, i) | plane::<1>(&self.bits, i) << 4;
            scale * q as f32 - min
        })
    }

    fn repack(&self) -> Self::Streams {
        (nibbles(&self.nibbles), bits(&self.bits), self.scales)
    }

    fn tame(&mut self, spread: f32) {
        // The standard deviation of s · q − 15.5 m over random bytes is 527.
        self.scales.tame(spread / 527.0, 15.5);
    }
}
