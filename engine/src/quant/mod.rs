//! Weight formats: the contents of a block, how the CPU decodes it, and how it is laid out on the GPU.
//!
//! A format is one constant of type [`Quant`], one entry in [`QUANTS`] and one WGSL fragment under `wgsl/quant/`.
//! Nothing outside this folder depends on a particular format.
//!
//! # The GPU layout
//! Kernels process a row in *groups* of 32 values, whatever the length of the file's blocks. Loading repacks the blocks
//! of the file into *streams*. A stream has a fixed number of bytes for each block, so every load is aligned and
//! neighbouring lanes read neighbouring bytes. These kinds of stream hold the quants:
//!
//! * `nibbles`, 16 bytes a group: byte *i* holds value *i* in its low and value *i* + 16 in its high half;
//! * `bits`, 4 bytes a group: bit 8 *c* + *j* is a bit of value 4 *j* + *c*;
//! * `crumbs`, 8 bytes a group: byte *i* holds the 2-bit values *i*, *i* + 8, *i* + 16, *i* + 24, lowest first;
//! * `planes`, 16 bytes a group: bit 8 *c* + *j* of word *k* is bit *k* of the 4-bit value 4 *j* + *c*;
//! * `entries`, 8 bytes a group: the low 8 bits of quants, which are indices of entries of four values;
//! * `signs`, 4 bytes a group: bit 8 *c* + *j* is the sign of value 4 *j* + *c*. Every eighth value may have none: its
//!   bit is then part of a scale or of an entry's index;
//! * `words`, 8 bytes a group: the low 8 bits of quants, which are indices of entries of eight values, then `signs`;
//! * `values`: the values themselves, in their own size.
//!
//! `scales` holds the factors and offsets of the values, in the encoding of the file unless the format says otherwise,
//! and `supers` the f16 scales of a superblock if they are stored separately. If the halves of a group have a byte of
//! scales each, these are stored *two by two*: the first halves' bytes of groups 2 *n* and 2 *n* + 1, then the second
//! halves'.
//!
//! A weight is one buffer. Its streams start at multiples of 256 bytes, and kernels bind each under the name of the
//! stream with the weight's role: `w_nibbles`, `w_scales`.

mod bf16;
mod block;
mod f16;
mod f32;
mod grids;
mod iq2_s;
mod iq2_xs;
mod iq2_xxs;
mod iq3_s;
mod iq3_xxs;
mod iq4_nl;
mod iq4_xs;
mod mxfp4;
mod noise;
mod packing;
mod q2_k;
mod q3_k;
mod q4_0;
mod q4_1;
mod q4_k;
mod q5_0;
mod q5_1;
mod q5_k;
mod q6_k;
mod q8_0;
mod rows;
mod shader;
mod signs;

pub use self::f32::F32;
pub use bf16::BF16;
pub use f16::F16;
pub use grids::{Grid, GridBuffer};
pub use iq2_s::IQ2_S;
pub use iq2_xs::IQ2_XS;
pub use iq2_xxs::IQ2_XXS;
pub use iq3_s::IQ3_S;
pub use iq3_xxs::IQ3_XXS;
pub use iq4_nl::IQ4_NL;
pub use iq4_xs::IQ4_XS;
pub use mxfp4::MXFP4;
pub use q2_k::Q2_K;
pub use q3_k::Q3_K;
pub use q4_0::Q4_0;
pub use q4_1::Q4_1;
pub use q4_k::Q4_K;
pub use q5_0::Q5_0;
pub use q5_1::Q5_1;
pub use q5_k::Q5_K;
pub use q6_k::Q6_K;
pub use q8_0::Q8_0;

use serde::{Deserialize, Serialize};
use std::fmt;

use crate::wgsl::Source;
use block::Codec;

/// The number of values in a group, which kernels process together.
pub const GROUP: usize = 32;

/// One of the arrays into which the blocks of a tensor are repacked for the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    /// The name of its binding in the WGSL fragment, without the prefix `w_`.
    pub name: &'static str,
    /// The number of bytes for each block.
    pub bytes: usize,
}

/// How a format encodes values, which decides the WGSL that it shares with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// The values themselves.
    Plain,
    /// Bytes times a scale plus an offset. Half a group shares both.
    Affine,
    /// The same with bytes that are looked up in a fixed table by the quants.
    Table(Table),
}

/// How shaders look up a quant in the table of a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// By boolean functions of the bits of 4-bit quants.
    Planes,
    /// In a buffer: a quant is the index of an entry of four or eight values.
    Grid(Grid),
}

/// The arithmetic of a matrix-vector product.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arithmetic {
    /// Multiplies f32 activations.
    #[default]
    Float,
    /// Multiplies activations that are rounded to signed bytes, with a scale for 16 values. Formats of the plain family
    /// use f32 in any case.
    Int,
}

impl Arithmetic {
    /// The name in options and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Float => "float",
            Self::Int => "int",
        }
    }
}

/// A weight format.
pub struct Quant {
    /// The name in GGML in lower case, which is the stem of the format's files.
    pub name: &'static str,
    /// The number of the type in GGUF files.
    pub id: u32,
    /// The number of values in a block. Rows of block formats consist of whole blocks. Rows of float formats can have
    /// any length, and are padded to whole groups with zeros on their way to the GPU.
    pub values: usize,
    /// The size of a block in the file in bytes.
    pub bytes: usize,
    /// Whether this is a float format, whose rows may end inside a block, and whose only stream is a copy of the row.
    pub ragged: bool,
    /// The streams of the GPU layout.
    pub streams: &'static [Stream],
    /// How its values are encoded.
    pub family: Family,
    /// The WGSL file of the format.
    pub fragment: Source,
    codec: Codec,
}

/// Every format, in GGML's order.
pub static QUANTS: &[&Quant] = &[
    &F32, &F16, &Q4_0, &Q4_1, &Q5_0, &Q5_1, &Q8_0, &Q2_K, &Q3_K, &Q4_K, &Q5_K, &Q6_K, &IQ2_XXS, &IQ2_XS, &IQ3_XXS,
    &IQ4_NL, &IQ3_S, &IQ2_S, &IQ4_XS, &BF16, &MXFP4,
];

/// The format with GGML's number `id`.
pub fn by_id(id: u32) -> Option<&'static Quant> {
    QUANTS.iter().copied().find(|quant| quant.id == id)
}

/// The format called `name`, as GGML writes it but in lower case.
pub fn by_name(name: &str) -> Option<&'static Quant> {
    QUANTS.iter().copied().find(|quant| quant.name == name)
}

impl Quant {
    /// How many rows of a matrix share the activations that a lane of an Apple GPU holds in registers. These are
    /// llama.cpp's numbers (`N_R0` in ggml-metal-impl.h, and 2 for floats), except for Q2_K, where llama.cpp uses 4:
    /// fewer rows if decoding needs many registers, for scales of superblocks or planes of bits, or if a row has many
    /// bytes.
    pub fn rows_in_registers(&self) -> usize {
        match self.family {
            Family::Affine if self.values <= GROUP && self.bytes < self.values => 4,
            Family::Table(Table::Grid(_)) => 4,
            Family::Plain | Family::Affine | Family::Table(Table::Planes) => 2,
        }
    }
}

impl fmt::Debug for Quant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Quant({})", self.name)
    }
}
