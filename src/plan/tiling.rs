//! How a product's rows are divided among lanes, and wishes for it.

use crate::error::{Error, Result};
use std::str::FromStr;

/// How a product's rows are divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tiling {
    /// Lanes that share a row, a power of two.
    pub lanes: usize,
    /// Rows such a team works on at a time, sharing the activations it holds.
    pub rows: usize,
    /// Tokens whose activations it multiplies with a row at a time, sharing the weights it holds: of rows and columns
    /// one is 1, and the other 4 at most.
    pub columns: usize,
    /// Invocations of a workgroup, which share what is staged.
    pub workgroup: usize,
}

/// A wish for how one product's rows are divided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TilingOverride {
    /// The step's label, without its layer.
    pub step: String,
    /// How.
    pub tiling: Tiling,
}

/// How a wish is written.
const FORM: &str = concat!(
    "STEP=LANESxROWSxWORKGROUP or STEP=LANESx1xWORKGROUPxCOLUMNS, ",
    "lanes and workgroup powers of two, 1 to 4 rows or columns"
);

impl FromStr for TilingOverride {
    type Err = Error;

    /// Of `STEP=LANESxROWSxWORKGROUP`, as `moe.down=32x1x512`, or with columns behind that.
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
