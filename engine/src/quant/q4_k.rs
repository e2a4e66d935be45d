//! Q4_K: 256 values of 4 bits; every 32 share a 6-bit scale and a 6-bit minimum. *w* = d · s · q − dmin · m.
//!
//! Block (144 bytes): d f16 | dmin f16 | 12 bytes of scales and minima | 128 bytes of nibbles in planes.
//! Layout: ggml `block_q4_K`. The stream `scales` holds the first 16 bytes as they are in the file.

use std::array::from_fn;

use bytemuck::{Pod, Zeroable};

use super::block::{Block, Codec};
use super::packing::{GroupScales, nibbles, plane};
use super::{Family, Quant, Stream};
use crate::wgsl::source;

/// 4 bits, 6-bit scales and minima for 32 values in a superblock of 256.
pub const Q4_K: Quant = Quant {
    name: "q4_k",
    id: 12,
    values: 256,
    bytes: 144,
    ragged: false,
    streams: &[Stream { name: "nibbles", bytes: 128 }, Stream { name: "scales", bytes: 16 }],
    family: Family::Affine,
    fragment: source!("quant/q4_k.wgsl"),
    codec: Codec::of::<BlockQ4K>(),
};

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct BlockQ4K {
    scales: GroupScales,
    nibbles: [u8; 128],
}

impl Block for BlockQ4K {
    type Values = [f32; 256];
    type Streams = ([[u8; 16]; 8], GroupScales);

    fn decode(&self) -> Self::Values {
        let scales = self.scales.unpack();
        from_fn(|i| {
            let (scale, min) = scales[i / 32];
            scale * plane::<4>(&self.nibbles, i) as f32 - min
        })
    }

    fn repack(&self) -> Self::Streams {
        (nibbles(&self.nibbles), self.scales)
    }

    fn tame(&mut self, spread: f32) {
        // The standard deviation of s · q − 7.5 m over random bytes is 258.
        self.scales.tame(spread / 258.0, 7.5);
    }
}
