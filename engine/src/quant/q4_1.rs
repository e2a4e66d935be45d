//! Q4_1: 32 values of 4 bits, one scale, one minimum. *w* = d · q + m.
//!
//! Block (20 bytes): d f16 | m f16 | 16 bytes of nibbles, value *i* low and value *i* + 16 high in byte *i*.
//! Layout: ggml `block_q4_1`. The stream `scales` holds d, m.

use std::array::from_fn;

use bytemuck::{Pod, Zeroable};

use super::block::{Block, Codec, Half};
use super::packing::nibble;
use super::{Family, Quant, Stream};
use crate::wgsl::source;

/// 4 bits, a scale and a minimum for 32 values.
pub const Q4_1: Quant = Quant {
    name: "q4_1",
    id: 3,
    values: 32,
    bytes: 20,
    ragged: false,
    streams: &[Stream { name: "nibbles", bytes: 16 }, Stream { name: "scales", bytes: 4 }],
    family: Family::Affine,
    fragment: source!("quant/q4_1.wgsl"),
    codec: Codec::of::<BlockQ4_1>(),
};

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct BlockQ4_1 {
    scales: [Half; 2],
    nibbles: [u8; 16],
}

impl Block for BlockQ4_1 {
    type Values = [f32; 32];
    type Streams = ([u8; 16], [Half; 2]);

    fn decode(&self) -> Self::Values {
        let [d, m] = self.scales.map(Half::get);
        from_fn(|i| d * nibble(&self.nibbles, i) as f32 + m)
    }

    fn repack(&self) -> Self::Streams {
        (self.nibbles, self.scales)
    }

    fn tame(&mut self, spread: f32) {
        let d = spread / 4.6;
        self.scales = [d, -7.5 * d].map(Half::of);
    }
}
