//! Q3_K: 256 values of 3 bits; every 16 share a 6-bit scale. *w* = d · (s − 32) · (q − 4).
//!
//! Block (110 bytes): 32 bytes of third bits in planes | 64 bytes of crumbs in planes | 12 bytes of scales |
//! d f16. Layout: ggml `block_q3_K`.
//!
//! The low 4 bits of scale *j* are in byte *j* mod 8 (low half if *j* < 8, else high half), its high 2 bits in byte 8 +
//! *j* mod 4 at bit 2 · ⌊*j* / 4⌋. The stream `scales` holds s − 32 as i8, two by two; `bits` is the third bit of q.

use std::array::from_fn;

use bytemuck::{Pod, Zeroable};

use super::block::{Block, Codec, Half};
use super::packing::{bits, crumbs, plane, two_by_two};
use super::{Family, Quant, Stream};
use crate::wgsl::source;

/// 3 bits, 6-bit scales for 16 values in a superblock of 256.
pub const Q3_K: Quant = Quant {
    name: "q3_k",
    id: 11,
    values: 256,
    bytes: 110,
    ragged: false,
    streams: &[
        Stream { name: "crumbs", bytes: 64 },
        Stream { name: "bits", bytes: 32 },
        Stream { name: "scales", bytes: 16 },
        Stream { name: "supers", bytes: 2 },
    ],
    family: Family::Affine,
    fragment: source!("quant/q3_k.wgsl"),
    codec: Codec::of::<BlockQ3K>(),
};

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct BlockQ3K {
    bits: [u8; 32],
    crumbs: [u8; 64],
    scales: [u8; 12],
    d: Half,
}

impl BlockQ3K {
    fn scales(&self) -> [i8; 16] {
        from_fn(|j| {
            let low = self.scales[j % 8] >> (j / 8 * 4) & 15;
            let high = self.scales[8 + j % 4] >> (j / 4 * 2) & 3;
            (low | high << 4) as i8 - 32
        })
    }
}

impl Block for BlockQ3K {
    type Values = [f32; 256];
    type Streams = ([[u8; 8]; 8], [[u8; 4]; 8], [i8; 16], Half);

    fn decode(&self) -> Self::Values {
        let d = self.d.get();
        let scales = self.scales().map(|scale| d * scale as f32);
        from_fn(|i| {
            let q = plane::<2>(&self.crumbs, i) | plane::<1>(&self.bits, i) << 2;
            scales[i / 16] * (q as f32 - 4.0)
        })
    }

    fn repack(&self) -> Self::Streams {
        (crumbs(&self.crumbs), bits(&self.bits), two_by_two(self.scales()), self.d)
    }

    fn tame(&mut self, spread: f32) {
        // The standard deviation of (s − 32) · (q − 4) over random bytes is 43.
        self.d = Half::of(spread / 43.0);
    }
}
