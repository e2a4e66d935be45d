//! F32: every value is an IEEE single, little-endian. A row may have any length.
//!
//! Block: any 32 values (128 bytes); GGML's block is a single `float`.

use bytemuck::{Pod, Zeroable};

use super::block::{Block, Codec};
use super::noise::moderate;
use super::{Family, Quant, Stream};
use crate::wgsl::source;

/// 32-bit floats.
pub const F32: Quant = Quant {
    name: "f32",
    id: 0,
    values: 32,
    bytes: 128,
    ragged: true,
    streams: &[Stream { name: "values", bytes: 128 }],
    family: Family::Plain,
    fragment: source!("quant/f32.wgsl"),
    codec: Codec::of::<Single>(),
};

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(transparent)]
struct Single([u8; 4]);

impl Block for Single {
    type Values = f32;
    type Streams = (Single,);

    fn decode(&self) -> f32 {
        f32::from_le_bytes(self.0)
    }

    fn repack(&self) -> (Single,) {
        (*self,)
    }

    fn tame(&mut self, spread: f32) {
        self.0 = moderate(self.decode(), spread).to_le_bytes();
    }
}
