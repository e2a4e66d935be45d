//! F16: every value is an IEEE half, little-endian. A row may have any length.
//!
//! Block: any 32 values (64 bytes); GGML's block is a single `ggml_half`.

use super::block::{Block, Codec, Half};
use super::noise::moderate;
use super::{Family, Quant, Stream};
use crate::wgsl::source;

/// 16-bit floats.
pub const F16: Quant = Quant {
    name: "f16",
    id: 1,
    values: 32,
    bytes: 64,
    ragged: true,
    streams: &[Stream { name: "values", bytes: 64 }],
    family: Family::Plain,
    fragment: source!("quant/f16.wgsl"),
    codec: Codec::of::<Half>(),
};

impl Block for Half {
    type Values = f32;
    type Streams = (Half,);

    fn decode(&self) -> f32 {
        self.get()
    }

    fn repack(&self) -> (Half,) {
        (*self,)
    }

    fn tame(&mut self, spread: f32) {
        *self = Half::of(moderate(self.get(), spread));
    }
}
