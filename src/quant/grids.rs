//! The grids: fixed tables of runs of magnitudes. A quant of the formats that have one names an entry, that is four or
//! eight values at once, beside which the format stores signs.
//!
//! Kernels read a grid from a buffer, which all weights of a model share: a constant array of this size lies in slow
//! memory on some GPUs. There are two such buffers, of entries of four and of eight bytes, and each holds the grids of
//! several formats one behind the other. The bytes are what kernels multiply with if no sign is set: a magnitude and
//! 64, and in the last grid of fours, whose magnitudes are the odd numbers to 15, half of one and 7.5.

/// All entries, 16 bits for each magnitude's place in the order of the format's magnitudes, which are those of GGML:
/// `tests/fixtures/quant/make.py` made them of its Python package.
const PLACES: &[u8] = include_bytes!("grids.bin");

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

/// A grid of a format, as its shaders find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// The buffer.
    pub buffer: GridBuffer,
    /// Its first entry there.
    pub first: usize,
}

/// A buffer of grids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GridBuffer {
    /// Of entries of four bytes.
    Fours,
    /// Of entries of eight bytes.
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

    /// What it holds: whole groups of words.
    pub fn bytes(self) -> &'static [u8] {
        match self {
            Self::Fours => FOURS.as_flattened(),
            Self::Eights => EIGHTS.as_flattened(),
        }
    }
}

/// The place of magnitude `k` of entry `i`, of `bits` bits.
const fn place(i: usize, k: usize, bits: usize) -> usize {
    let entry = u16::from_le_bytes([PLACES[2 * i], PLACES[2 * i + 1]]) as usize;
    entry >> (k * bits) & ((1 << bits) - 1)
}

const fn fours() -> [[u8; 4]; 768] {
    let mut entries = [[0; 4]; 768];
    let mut at = 0;
    while at < 4 * 768 {
        let place = place(at / 4, at % 4, 3);
        entries[at / 4][at % 4] = if at < 4 * 256 { MIDDLE + FOURS_OF[place] } else { 8 + place as u8 };
        at += 1;
    }
    entries
}

const fn eights() -> [[u8; 8]; 1792] {
    let mut entries = [[0; 8]; 1792];
    let mut at = 0;
    while at < 8 * 1792 {
        entries[at / 8][at % 8] = MIDDLE + EIGHTS_OF[place(768 + at / 8, at % 8, 2)];
        at += 1;
    }
    entries
}
