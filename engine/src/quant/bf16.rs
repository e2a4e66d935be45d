//! BF16: every value is the upper half of an IEEE single, little-endian. A row may have any length.
//!
//! Block: any 32 values (64 bytes); GGML's block is a single `ggml_bf16_t`.

use bytemuck::{Pod, Zeroable};
use half::bf16;

use super::block::{Block, Codec};
use super::noise::moderate;
use super::{Family, Quant, Stream};
use crate::wgsl::source;

/// The upper halves of 32-bit floats.
pub const BF16: Quant = Quant {
    name: "bf16",
    id: 30,
    values: 32,
    bytes: 64,
    ragged: true,
    streams: &[Stream { name: "values", bytes: 64 }],
    family: Family::Plain,
    fragment: source!("quant/bf16.wgsl"),
    codec: Codec::of::<Brain>(),
};

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(transparent)]
struct Brain([u8; 2]);

impl Block for Brain {
    type Values = f32;
    type Streams = (Brain,);

    fn decode(&self) -> f32 {
        bf16::from_le_bytes(self.0).to_f32()
    }

    fn repack(&self) -> (Brain,) {
        (*self,)
    }

    fn tame(&mut self, spread: f32) {
        self.0 = bf16::from_f32(moderate(self.decode(), spread)).to_le_bytes();
    }
}
