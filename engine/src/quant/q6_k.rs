//! Q6_K: 256 values of 6 bits; every 16 share an 8-bit scale. *w* = d · s · (q − 32).
//!
//! Block (210 bytes): 128 bytes of nibbles, the low bits | 64 bytes of crumbs in planes, the high bits | 16 scales i8 |
//! d f16. Layout: ggml `block_q6_K`. The nibbles' planes are in another order: the first 32 bytes hold groups 0 and 2,
//! the next 32 groups 1 and 3, and groups 4 to 7 likewise.

use std::array::from_fn;

use bytemuck::{Pod, Zeroable};

use super::block::{Block, Codec, Half};
use super::packing::{crumbs, nibbles, plane};
use super::{Family, Quant, Stream};
use crate::wgsl::source;

/// 6 bits, 8-bit scales for 16 values in a superblock of 256.
pub const Q6_K: Quant = Quant {
    name: "q6_k",
    id: 14,
    values: 256,
    bytes: 210,
    ragged: false,
    streams: &[
        Stream { name: "nibbles", bytes: 128 },
        Stream { name: "crumbs", bytes: 64 },
        Stream { name: "scales", bytes: 16 },
        Stream { name: "supers", bytes: 2 },
    ],
    family: Family::Affine,
    fragment: source!("quant/q6_k.wgsl"),
    codec: Codec::of::<BlockQ6K>(),
};

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct BlockQ6K {
    nibbles: [u8; 128],
    crumbs: [u8; 64],
    scales: [i8; 16],
    d: Half,
}

/// The index of each group in planes of the usual order.
const PLACE: [usize; 8] = [0, 2, 1, 3, 4, 6, 5, 7];

impl Block for BlockQ6K {
    type Values = [f32; 256];
    type Streams = ([[u8; 16]; 8], [[u8; 8]; 8], [i8; 16], Half);

    fn decode(&self) -> Self::Values {
        let d = self.d.get();
        let scales = self.scales.map(|scale| d * scale as f32);
        from_fn(|i| {
            let low = plane::<4>(&self.nibbles, PLACE[i / 32] * 32 + i % 32);
            let q = low | plane::<2>(&self.crumbs, i) << 4;
            scales[i / 16] * (q as f32 - 32.0)
        })
    }

    fn repack(&self) -> Self::Streams {
        let nibbles = nibbles(&self.nibbles);
        (PLACE.map(|place| nibbles[place]), crumbs(&self.crumbs), self.scales, self.d)
    }

    fn tame(&mut self, spread: f32) {
        // The standard deviation of s · (q − 32) over random bytes is 1366.
        self.d = Half::of(spread / 1366.0);
    }
}
