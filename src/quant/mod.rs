//! Weight formats: what a block of each holds, how the CPU decodes it, how it is laid out for the GPU.
//!
//! A format is one constant of type [`Quant`], one entry in [`QUANTS`] and one fragment under
//! `wgsl/quant/`. Nothing outside this folder branches on a format.
//!
//! # The GPU layout
//! Kernels walk a row in *groups* of 32 values, whatever the file's block length. The blocks of the
//! file are taken apart into *streams*, each with a fixed number of bytes per block, so that every load
//! is aligned and neighbouring lanes read neighbouring bytes. Four kinds of stream hold the quants:
//!
//! * `nibbles`, 16 bytes a group: byte *i* holds value *i* in its low and value *i* + 16 in its high half;
//! * `bits`, 4 bytes a group: bit *i* is one bit of value *i*;
//! * `crumbs`, 8 bytes a group: byte *i* holds the 2-bit values *i*, *i* + 8, *i* + 16, *i* + 24, lowest first;
//! * `values`: the values themselves, as many bytes as they have.
//!
//! `scales` holds what the values are multiplied by and offset with, in the file's own encoding unless
//! the format says otherwise, and `supers` a superblock's f16 scales where they stand apart.

mod bf16;
mod block;
mod f16;
mod f32;
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

pub use self::f32::F32;
pub use bf16::BF16;
pub use f16::F16;
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

use std::fmt;

use crate::wgsl::Source;
use block::Codec;

/// Values a kernel takes from a row at a time.
pub const GROUP: usize = 32;

/// One of the arrays that a tensor's blocks are taken apart into for the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    /// The name the WGSL fragment binds it by, without its `w_` prefix.
    pub name: &'static str,
    /// Bytes per block.
    pub bytes: usize,
}

/// What a format's values are made of, and so which WGSL they share with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// The values themselves.
    Plain,
    /// Bytes times a scale plus an offset, both for half a group.
    Affine,
}

/// In what a matrix-vector product multiplies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Arithmetic {
    /// f32 activations.
    #[default]
    Float,
    /// Activations rounded to signed bytes, a scale for 16 values. Formats of the plain family stay with f32.
    Int,
}

impl Arithmetic {
    /// Its name, as options and reports have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Float => "float",
            Self::Int => "int",
        }
    }
}

/// A weight format.
pub struct Quant {
    /// GGML's name in lower case, the stem of the format's files.
    pub name: &'static str,
    /// GGML's number for the type in a GGUF file.
    pub id: u32,
    /// Values that share a block. Rows of block formats are whole blocks; the float formats, whose rows
    /// may have any length, are padded to whole groups with zeros on their way to the GPU.
    pub values: usize,
    /// Bytes of one block in the file.
    pub bytes: usize,
    /// True for the float formats: a row may end inside a block, and the only stream is a copy of the row.
    pub ragged: bool,
    /// The arrays of the GPU layout.
    pub streams: &'static [Stream],
    /// What its values are made of.
    pub family: Family,
    /// Its own WGSL file.
    pub fragment: Source,
    codec: Codec,
}

/// Every format, in GGML's order.
pub static QUANTS: &[&Quant] =
    &[&F32, &F16, &Q4_0, &Q4_1, &Q5_0, &Q5_1, &Q8_0, &Q2_K, &Q3_K, &Q4_K, &Q5_K, &Q6_K, &BF16];

/// The format with GGML's number `id`.
pub fn by_id(id: u32) -> Option<&'static Quant> {
    QUANTS.iter().copied().find(|quant| quant.id == id)
}

/// The format called `name`, as GGML writes it but in lower case.
pub fn by_name(name: &str) -> Option<&'static Quant> {
    QUANTS.iter().copied().find(|quant| quant.name == name)
}

impl fmt::Debug for Quant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Quant({})", self.name)
    }
}
