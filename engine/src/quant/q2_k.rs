//! Q2_K: 256 values of 2 bits; every 16 share a 4-bit scale and a 4-bit minimum. *w* = d · s · q − dmin · m.
//!
//! Block (84 bytes): 16 bytes of scales, s low and m high | 64 bytes of crumbs in planes | d f16 | dmin f16.
//! Layout: ggml `block_q2_K`. The stream `scales` holds the first 16 bytes two by two; `supers` holds d, dmin.

use std::array::from_fn;

use bytemuck::{Pod, Zeroable};

use super::block::{Block, Codec, Half};
use super::packing::{crumbs, plane, two_by_two};
use super::{Family, Quant, Stream};
use crate::wgsl::source;

/// 2 bits, 4-bit scales and minima for 16 values in a superblock of 256.
pub const Q2_K: Quant = Quant {
    name: "q2_k",
    id: 10,
    values: 256,
    bytes: 84,
    ragged: false,
    streams: &[
        Stream { name: "crumbs", bytes: 64 },
        Stream { name: "scales", bytes: 16 },
        Stream { name: "supers", bytes: 4 },
    ],
    family: Family::Affine,
    fragment: source!("quant/q2_k.wgsl"),
    codec: Codec::of::<BlockQ2K>(),
};

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct BlockQ2K {
    scales: [u8; 16],
    crumbs: [u8; 64],
    supers: [Half; 2],
}

impl Block for BlockQ2K {
    type Values = [f32; 256];
    type Streams = ([[u8; 8]; 8], [u8; 16], [Half; 2]);

    fn decode(&self) -> Self::Values {
        let [d, dmin] = self.supers.map(Half::get);
        let scales = self.scales.map(|byte| (d * (byte & 15) as f32, dmin * (byte >> 4) as f32));
        from_fn(|i| {
            let (scale, min) = scales[i / 16];
            scale * plane::<2>(&self.crumbs, i) as f32 - min
        })
    }

    fn repack(&self) -> Self::Streams {
        (crumbs(&self.crumbs), two_by_two(self.scales), self.supers)
    }

    fn tame(&mut self, spread: f32) {
        // The standard deviation of s · q − 1.5 m over random bytes is 13.9.
        let d = spread / 13.9;
        self.supers = [d, 1.5 * d].map(Half::of);
    }
}
