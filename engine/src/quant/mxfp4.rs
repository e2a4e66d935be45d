//! MXFP4: 32 values, each a float q of 1 sign bit, 2 bits of exponent and 1 of mantissa; one exponent. *w* = 2^(e −
//! 127) · q.
//!
//! Block (17 bytes): e u8 | 16 bytes of nibbles, value *i* low and value *i* + 16 high in byte *i*. Layout: ggml
//! `block_mxfp4`. It is computed as 2^(e − 128) · t\[nibble\], with a table t of the integers 2q.

use std::array::from_fn;

use bytemuck::{Pod, Zeroable};

use super::block::{Block, Codec};
use super::packing::{bit_planes, nibble};
use super::{Family, Quant, Stream, Table};
use crate::wgsl::source;

/// 4-bit floats, an exponent for 32 values.
pub const MXFP4: Quant = Quant {
    name: "mxfp4",
    id: 39,
    values: 32,
    bytes: 17,
    ragged: false,
    streams: &[Stream { name: "planes", bytes: 16 }, Stream { name: "scales", bytes: 1 }],
    family: Family::Table(Table::Planes),
    fragment: source!("quant/mxfp4.wgsl"),
    codec: Codec::of::<BlockMxfp4>(),
};

/// Twice the values of the quants.
const DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct BlockMxfp4 {
    e: u8,
    nibbles: [u8; 16],
}

/// 2^(e − 128).
fn half_power(e: u8) -> f32 {
    f32::from_bits(if e < 2 { 0x0020_0000 << e } else { u32::from(e - 1) << 23 })
}

impl Block for BlockMxfp4 {
    type Values = [f32; 32];
    type Streams = ([u8; 16], u8);

    fn decode(&self) -> Self::Values {
        let d = half_power(self.e);
        from_fn(|i| d * f32::from(DOUBLED[usize::from(nibble(&self.nibbles, i))]))
    }

    fn repack(&self) -> Self::Streams {
        (bit_planes(&self.nibbles), self.e)
    }

    /// The scale is a power of two. The random byte that was there decides between the two nearest ones, so that the
    /// mean of squares is right.
    fn tame(&mut self, spread: f32) {
        // The standard deviation of t[q] over random nibbles is 5.85.
        let wanted = spread.abs() / 5.85;
        let below = wanted.log2().floor();
        let share = ((wanted / below.exp2()).powi(2) - 1.0) / 3.0;
        let above = f32::from(self.e) < 256.0 * share;
        self.e = (128.0 + below) as u8 + u8::from(above);
    }
}
