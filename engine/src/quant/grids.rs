//! The grids of the IQ2 and IQ3 formats: fixed tables whose entries are four or eight magnitudes. A quant is the index
//! of an entry; the format stores the signs separately.
//!
//! Kernels read a grid from a buffer, which all weights of a model share: a constant array of this size lies in slow
//! memory on some GPUs. There are two such buffers, with entries of four and of eight bytes, and each holds the grids
//! of several formats one after the other. A byte is what kernels multiply by if its sign is not set: the magnitude
//! plus 64, except in the last grid of fours, whose magnitudes are the odd numbers up to 15: there it is half the
//! magnitude plus 7.5.

/// All entries, 16 bits each, which hold the index of every magnitude in the list of the format's magnitudes. They are
/// GGML's: `tests/fixtures/quant/make.py` extracted them from its Python package.
const INDICES: &[u8] = include_bytes!("grids.bin");

/// The magnitudes of a grid of eights.
const EIGHTS_OF: [u8; 3] = [8, 25, 43];
/// The magnitudes of the first grid of fours.
const FOURS_OF: [u8; 8] = [4, 12, 20, 28, 36, 44, 52, 62];

/// What is added to magnitudes.
pub const MIDDLE: u8 = 64;

/// The entries of all grids of fours: 256, then 512.
pub static FOURS: [[u8; 4]; 768] = fours();
/// The entries of all grids of eights: 256, then 512, then 1024.
pub static EIGHTS: [[u8; 8]; 1792] = eights();

/// Where the shaders of a format find its grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// The buffer.
    pub buffer: GridBuffer,
    /// The index of its first entry there.
    pub first: usize,
}

/// A buffer of grids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GridBuffer {
    /// Entries of four bytes.
    Fours,
    /// Entries of eight bytes.
    Eights,
}

impl GridBuffer {
    /// The name of its binding in WGSL, and of its weight.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fours => "fours",
            Self::Eights => "eights",
        }
    }

    /// Its contents, in whole groups of words.
    pub fn bytes(self) -> &'static [u8] {
        match self {
            Self::Fours => FOURS.as_flattened(),
            Self::Eights => EIGHTS.as_flattened(),
        }
    }
}

/// The index of magnitude `k` of entry `i`, which takes `bits` bits.
const fn magnitude_index(i: usize, k: usize, bits: usize) -> usize {
    let entry = u16::from_le_bytes([INDICES[2 * i], INDICES[2 * i + 1]]) as usize;
    entry >> (k * bits) & ((1 << bits) - 1)
}

const fn fours() -> [[u8; 4]; 768] {
    let mut entries = [[0; 4]; 768];
    let mut at = 0;
    while at < 4 * 768 {
        let index = magnitude_index(at / 4, at % 4, 3);
        entries[at / 4][at % 4] = if at < 4 * 256 { MIDDLE + FOURS_OF[index] } else { 8 + index as u8 };
        at += 1;
    }
    entries
}

const fn eights() -> [[u8; 8]; 1792] {
    let mut entries = [[0; 8]; 1792];
    let mut at = 0;
    while at < 8 * 1792 {
        entries[at / 8][at % 8] = MIDDLE + EIGHTS_OF[magnitude_index(768 + at / 8, at % 8, 2)];
        at += 1;
    }
    entries
}
