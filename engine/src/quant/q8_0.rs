//! Q8_0: 32 values of 8 bits, one scale. *w* = d · q.
//!
//! Block (34 bytes): d f16 | 32 values i8. Layout: ggml `block_q8_0`.

use std::array::from_fn;

use bytemuck::{Pod, Zeroable};

use super::block::{Block, Codec, Half};
use super::{Family, Quant, Stream};
use crate::wgsl::source;

/// 8 bits, a scale for 32 values.
pub const Q8_0: Quant = Quant {
    name: "q8_0",
    id: 8,
    values: 32,
    bytes: 34,
    ragged: false,
    streams: &[Stream { name: "values", bytes: 32 }, Stream { name: "scales", bytes: 2 }],
    family: Family::Affine,
    fragment: source!("quant/q8_0.wgsl"),
    codec: Codec::of::<BlockQ8_0>(),
};

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct BlockQ8_0 {
    d: Half,
    values: [i8; 32],
}

impl Block for BlockQ8_0 {
    type Values = [f32; 32];
    type Streams = ([i8; 32], Half);

    fn decode(&self) -> Self::Values {
        let d = self.d.get();
        from_fn(|i| d * self.values[i] as f32)
    }

    fn repack(&self) -> Self::Streams {
        (self.values, self.d)
    }

    fn tame(&mut self, spread: f32) {
        self.d = Half::of(spread / 74.0);
    }
}
