//! Tilings: how the rows of a product are divided among lanes, and overrides of that.

use crate::error::{Error, Result};
use std::str::FromStr;

/// How the rows of a product are divided among lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tiling {
    /// The number of lanes that share a row, a power of two. They form a team.
    pub lanes: usize,
    /// The number of rows that a team computes at a time with the same activations in registers.
    pub rows: usize,
    /// The number of tokens that a team computes at a time with the same weights in registers. Either this or the
    /// number of rows is 1, and the other is at most 4.
    pub columns: usize,
    /// The number of invocations of a workgroup, which share staged activations.
    pub workgroup: usize,
}

/// A tiling override: the tiling of one product, in place of the table's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TilingOverride {
    /// The label of the step, without its layer.
    pub step: String,
    /// The tiling.
    pub tiling: Tiling,
}

/// The form in which an override is written.
const FORM: &str = concat!(
    "STEP=LANESxROWSxWORKGROUP or STEP=LANESx1xWORKGROUPxCOLUMNS, ",
    "lanes and workgroup powers of two, 1 to 4 rows or columns"
);

impl FromStr for TilingOverride {
    type Err = Error;

    /// Parses `STEP=LANESxROWSxWORKGROUP`, such as `moe.down=32x1x512`, optionally followed by columns.
    fn from_str(text: &str) -> Result<Self> {
        let unlike = || Error::Argument { argument: "tiling", expected: FORM.to_owned(), found: format!("`{text}`") };
        let (step, numbers) = text.split_once('=').ok_or_else(unlike)?;
        let numbers: Vec<usize> = numbers.split('x').map(str::parse).collect::<Result<_, _>>().map_err(|_| unlike())?;
        let tiling = match *numbers.as_slice() {
            [lanes, rows, workgroup] => Tiling { lanes, rows, workgroup, columns: 1 },
            [lanes, rows, workgroup, columns] => Tiling { lanes, rows, workgroup, columns },
            _ => return Err(unlike()),
        };
        let Tiling { lanes, rows, columns, workgroup } = tiling;
        let powers = lanes.is_power_of_two() && workgroup.is_power_of_two() && lanes <= workgroup && workgroup <= 1024;
        let sums = (1..=4).contains(&rows) && (1..=4).contains(&columns) && (rows == 1 || columns == 1);
        if powers && sums { Ok(Self { step: step.to_owned(), tiling }) } else { Err(unlike()) }
    }
}
