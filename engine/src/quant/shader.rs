//! The WGSL files of a format.
//!
//! A kernel needs of a weight either `w_decode(g)`, the 32 values of group g, or `w_dot(g, &x)`, their dot product with
//! activations; products of matrices need `w_halves`. Formats of the family [`Family::Plain`] provide `w_decode`. All
//! others provide bytes, scales and offsets, and the files `quant/affine*.wgsl` make the rest from these: a table only
//! changes how the bytes are found. So every kernel works with every format.

use super::{Arithmetic, Family, GROUP, Grid, GridBuffer, Quant, Table};
use crate::wgsl::{Source, source};

impl Quant {
    /// The files that provide `w_decode`.
    pub fn decode_files(&self) -> Vec<Source> {
        match self.family {
            Family::Plain => vec![self.fragment],
            Family::Affine | Family::Table(_) => vec![source!("quant/affine.wgsl"), self.fragment],
        }
    }

    /// The files for looking up tables, which a shader needs once for all of its weights.
    pub fn table_files(&self) -> Vec<Source> {
        match self.family {
            Family::Plain | Family::Affine => vec![],
            Family::Table(Table::Planes) => vec![source!("lib/planes.wgsl")],
            Family::Table(Table::Grid(grid)) => match grid.buffer {
                GridBuffer::Fours => vec![source!("lib/signs.wgsl"), source!("lib/fours.wgsl")],
                GridBuffer::Eights => vec![source!("lib/signs.wgsl"), source!("lib/eights.wgsl")],
            },
        }
    }

    /// The grid of the format, if it has one.
    pub fn grid(&self) -> Option<Grid> {
        match self.family {
            Family::Table(Table::Grid(grid)) => Some(grid),
            Family::Plain | Family::Affine | Family::Table(Table::Planes) => None,
        }
    }

    /// The files that provide `w_raw` and `w_halves`, besides `w_decode`.
    pub fn half_files(&self) -> Vec<Source> {
        let mut files = self.decode_files();
        files.push(match self.family {
            Family::Plain => source!("quant/plain_half.wgsl"),
            Family::Affine | Family::Table(_) => source!("quant/affine_half.wgsl"),
        });
        files
    }

    /// Whether values of the format have more precision than f16.
    pub fn exceeds_half(&self) -> bool {
        self.bytes > 2 * self.values
    }

    /// Whether converting a weight to f16 rounds three times, each within 2^-11: its scale, its offset, and itself. The
    /// scales and offsets of superblocks are products of two numbers, which are not exact in f16, and both can be
    /// larger than the group's weights.
    pub fn rounds_scales(&self) -> bool {
        self.values > GROUP
    }

    /// The files that provide `w_dot`, besides `w_decode`.
    pub fn dot_files(&self, arithmetic: Arithmetic) -> Vec<Source> {
        let dot = match (self.family, arithmetic) {
            (Family::Plain, _) => source!("quant/plain.wgsl"),
            (Family::Affine | Family::Table(_), Arithmetic::Float) => source!("quant/affine_float.wgsl"),
            (Family::Affine | Family::Table(_), Arithmetic::Int) => source!("quant/affine_int.wgsl"),
        };
        let mut files = self.decode_files();
        files.push(dot);
        files
    }
}

impl Arithmetic {
    /// The arithmetic of a product with weights of these formats, which is f32 if one of them is plain.
    #[doc(hidden)]
    pub fn with(self, formats: &[&Quant]) -> Self {
        if formats.iter().any(|quant| quant.family == Family::Plain) { Self::Float } else { self }
    }

    /// The WGSL file with the type in which a lane holds activations, and its part of a label.
    pub fn product_file(self) -> (Source, &'static str) {
        match self {
            Self::Float => (source!("lib/floats.wgsl"), ""),
            Self::Int => (source!("lib/bytes.wgsl"), "i8"),
        }
    }

    /// The WGSL file that stages activations.
    pub fn staged_file(self) -> Source {
        match self {
            Self::Float => source!("lib/staged_float.wgsl"),
            Self::Int => source!("lib/staged_int.wgsl"),
        }
    }
}
