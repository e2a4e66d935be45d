//! How the work of a product is divided: with few vectors, the rows among lanes; with many vectors, into tiles.

use super::Target;
use crate::error::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// How the rows of a product are divided among lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tiling {
    /// The number of lanes that share a row, a power of two. They form a team.
    pub lanes: usize,
    /// The number of rows that a team computes at a time with the same activations in registers.
    pub rows: usize,
    /// The number of tokens that a team computes at a time with the same weights in registers. Either this or the
    /// number of rows is 1, and the other is at most 4.
    pub columns: usize,
    /// The number of invocations of a workgroup, which share staged activations. A plan raises fewer than
    /// [`Target::MIN_WORKGROUP`] to that number.
    pub workgroup: usize,
    /// Whether each lane reads its activations from the vector into registers. Otherwise the workgroup first stages the
    /// vector in its memory. This does not affect int8 products, which read what the previous step has rounded, nor
    /// products of merged splits of attention, which find their vector in workgroup memory.
    pub direct: bool,
}

/// The written form of a tiling.
const TILING: &str = concat!(
    "LANESxROWSxWORKGROUP or LANESx1xWORKGROUPxCOLUMNS, ",
    "lanes and workgroup powers of two, workgroup 64 to 1024, 1 to 4 rows or columns, ",
    "with a d at the end if lanes read activations directly instead of staging them"
);

/// The end of the written form of a tiling whose lanes read activations directly.
const DIRECT: char = 'd';

impl FromStr for Tiling {
    type Err = Error;

    /// Parses `LANESxROWSxWORKGROUP`, such as `32x1x512`, optionally followed by columns, and by a `d` if activations
    /// are read directly, as in `32x4x64d`.
    fn from_str(text: &str) -> Result<Self> {
        let (divided, direct) = text.strip_suffix(DIRECT).map_or((text, false), |divided| (divided, true));
        let tiling = match *numbers(divided).as_slice() {
            [lanes, rows, workgroup] => Self { lanes, rows, workgroup, columns: 1, direct },
            [lanes, rows, workgroup, columns] => Self { lanes, rows, workgroup, columns, direct },
            _ => return Err(unlike("tiling", TILING, text)),
        };
        let Self { lanes, rows, columns, workgroup, .. } = tiling;
        let sizes = (Target::MIN_WORKGROUP..=1024).contains(&workgroup);
        let powers = lanes.is_power_of_two() && workgroup.is_power_of_two() && lanes <= workgroup && sizes;
        let sums = (1..=4).contains(&rows) && (1..=4).contains(&columns) && (rows == 1 || columns == 1);
        if powers && sums { Ok(tiling) } else { Err(unlike("tiling", TILING, text)) }
    }
}

impl fmt::Display for Tiling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lanes, rows, columns, workgroup, direct } = self;
        write!(f, "{lanes}x{rows}x{workgroup}")?;
        if *columns > 1 {
            write!(f, "x{columns}")?;
        }
        if *direct { write!(f, "{DIRECT}") } else { Ok(()) }
    }
}

/// The tile of a product with many vectors that a workgroup computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProductTile {
    /// Of cooperative matrices: the number of subgroups along the vectors and along the rows, the number of matrices of
    /// vectors (up to 4) and of rows (2 or 4) that each of them multiplies, and the number of groups of 32 columns that
    /// are staged at a time.
    Matrices {
        /// Subgroups along the vectors.
        down: usize,
        /// Subgroups along the rows.
        across: usize,
        /// Matrices of vectors.
        lefts: usize,
        /// Matrices of rows.
        rights: usize,
        /// Groups of columns.
        groups: usize,
    },
    /// In registers: the vectors of the tile (16, 32 or 64), and the rows of an invocation (2 or 4).
    Registers {
        /// Vectors of the tile.
        vectors: usize,
        /// Rows of an invocation.
        rows: usize,
    },
}

/// The written form of a tile.
const TILE: &str = concat!(
    "VECTORSxROWS, 16, 32 or 64 vectors and 2 or 4 rows, or, for matrices, DOWNxACROSSxLEFTSxRIGHTSxGROUPS, ",
    "2 to 32 subgroups together, 1 to 4 lefts, 2 or 4 rights, 1 to 4 groups"
);

impl FromStr for ProductTile {
    type Err = Error;

    /// Parses `64x4` or `4x2x2x4x1`, as [`ProductTile`] lists them.
    fn from_str(text: &str) -> Result<Self> {
        match *numbers(text).as_slice() {
            [vectors @ (16 | 32 | 64), rows @ (2 | 4)] => Ok(Self::Registers { vectors, rows }),
            [down @ 1..=32, across @ 1..=32, lefts @ 1..=4, rights @ (2 | 4), groups @ 1..=4]
                if (Target::MIN_WORKGROUP..=1024).contains(&(32 * down * across)) =>
            {
                Ok(Self::Matrices { down, across, lefts, rights, groups })
            }
            _ => Err(unlike("tile", TILE, text)),
        }
    }
}

impl fmt::Display for ProductTile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Matrices { down, across, lefts, rights, groups } => {
                write!(f, "{down}x{across}x{lefts}x{rights}x{groups}")
            }
            Self::Registers { vectors, rows } => write!(f, "{vectors}x{rows}"),
        }
    }
}

/// Numbers separated by x; none if one of them is not a number.
fn numbers(text: &str) -> Vec<usize> {
    text.split('x').map(str::parse).collect::<Result<_, _>>().unwrap_or_default()
}

pub(super) fn unlike(argument: &'static str, form: &str, found: &str) -> Error {
    Error::Argument { argument, expected: form.to_owned(), found: format!("`{found}`") }
}
