//! Choices for one GPU that override the built-in ones: plain data that a person can write and read.
//!
//! The built-in choices are made where they are used: `kernels/tiling.rs` for products of few vectors,
//! `kernels/mul_mm_matrix.rs` and `kernels/mul_mm.rs` for tiles, `kernels/mla_attention.rs` for splits,
//! `kernels/mla_attention_expanded.rs` for when keys and values are expanded, `model/batch_plan.rs` for the rows that
//! few-rows steps compute. Each of these looks here first.

use super::tiling::unlike;
use super::{ProductTile, Tiling, Tilings};
use crate::error::{Error, Result};
use crate::quant::Arithmetic;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Choices that override the built-in tables. Empty by default.
///
/// Lists are searched from the front: the first entry for a step and a number of rows is used. A choice that the target
/// cannot use, such as tiles of matrices that it lacks, is ignored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Choices {
    /// The table of tilings; `None` for the adapter's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[doc(hidden)]
    pub table: Option<Tilings>,
    /// The arithmetic of products with few vectors; `None` for what suits the adapter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arithmetic: Option<Arithmetic>,
    /// Whether steps of few rows use no cooperative matrices.
    #[serde(skip_serializing_if = "is_false")]
    pub few_without_matrices: bool,
    /// Whether the steps of prompts use no cooperative matrices.
    #[serde(skip_serializing_if = "is_false")]
    pub prompts_without_matrices: bool,
    /// Whether a separate step selects the experts of few rows, and not each workgroup of the following step; `None`
    /// for what suits the adapter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route_apart: Option<bool>,
    /// How products of bytes are computed for several vectors together; `None` for the usual form.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[doc(hidden)]
    pub grouping: Option<Grouping>,
    /// Tilings of products with few vectors.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[doc(hidden)]
    pub tilings: Vec<StepChoice<Tiling>>,
    /// Into how many splits attention of few rows divides the cache, by the rows of the plan.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[doc(hidden)]
    pub splits: Vec<SplitsChoice>,
    /// Tiles of products with many vectors.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[doc(hidden)]
    pub tiles: Vec<StepChoice<ProductTile>>,
    /// The maximum number of rows of a prompt that the steps of few rows compute, at most 32; more rows are computed by
    /// tiles.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub few_rows: Option<usize>,
    /// The minimum number of rows in a batch of one sequence for attention over keys and values expanded from the
    /// latents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expanded_rows: Option<usize>,
    /// The number of tokens of a prompt that are computed together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunk: Option<usize>,
}

fn is_false(value: &bool) -> bool {
    !value
}

impl Choices {
    /// Whether nothing is chosen.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The tiling of a step in a plan of `rows` rows.
    #[doc(hidden)]
    pub fn tiling(&self, step: &str, rows: usize) -> Option<Tiling> {
        StepChoice::find(&self.tilings, step, rows)
    }

    /// The tile of a step in a plan of `rows` rows.
    #[doc(hidden)]
    pub fn tile(&self, step: &str, rows: usize) -> Option<ProductTile> {
        StepChoice::find(&self.tiles, step, rows)
    }

    /// Into how many splits a plan of `rows` rows divides the cache.
    pub fn splits(&self, rows: usize) -> Option<usize> {
        self.splits.iter().find(|choice| choice.rows.contains(rows)).map(|choice| choice.splits)
    }

    /// These choices, and those of `others` for whatever they leave open.
    pub fn or(&self, others: &Self) -> Self {
        Self {
            table: self.table.or(others.table),
            arithmetic: self.arithmetic.or(others.arithmetic),
            few_without_matrices: self.few_without_matrices || others.few_without_matrices,
            prompts_without_matrices: self.prompts_without_matrices || others.prompts_without_matrices,
            route_apart: self.route_apart.or(others.route_apart),
            grouping: self.grouping.or(others.grouping),
            tilings: [self.tilings.as_slice(), &others.tilings].concat(),
            splits: [self.splits.as_slice(), &others.splits].concat(),
            tiles: [self.tiles.as_slice(), &others.tiles].concat(),
            few_rows: self.few_rows.or(others.few_rows),
            expanded_rows: self.expanded_rows.or(others.expanded_rows),
            chunk: self.chunk.or(others.chunk),
        }
    }
}

/// The numbers of rows of the plans that a choice is for. Written as `8` or `4-7`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RowRange {
    /// The minimum.
    pub from: usize,
    /// The maximum.
    pub to: usize,
}

impl RowRange {
    /// Any number of rows.
    pub const ALL: Self = Self { from: 1, to: usize::MAX };

    /// From one number to another.
    pub const fn new(from: usize, to: usize) -> Self {
        Self { from, to }
    }

    /// Whether the range contains `rows`.
    pub fn contains(&self, rows: usize) -> bool {
        (self.from..=self.to).contains(&rows)
    }
}

impl FromStr for RowRange {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (from, to) = text.split_once('-').unwrap_or((text, text));
        match (from.parse(), to.parse()) {
            (Ok(from), Ok(to)) if 1 <= from && from <= to => Ok(Self { from, to }),
            _ => Err(unlike("rows", "a number of rows, or a range such as 4-7", text)),
        }
    }
}

impl fmt::Display for RowRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to } = self;
        if from == to { write!(f, "{from}") } else { write!(f, "{from}-{to}") }
    }
}

/// A choice for one kind of step. Written as `STEP=CHOICE`, or `STEP@ROWS=CHOICE` for plans with that many rows.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String", bound = "T: FromStr<Err = Error> + fmt::Display + Clone")]
pub struct StepChoice<T> {
    /// The label of the step, without its layer.
    pub step: String,
    /// The rows of the plan.
    pub rows: RowRange,
    /// What is chosen.
    pub choice: T,
}

impl<T: Copy> StepChoice<T> {
    fn find(among: &[Self], step: &str, rows: usize) -> Option<T> {
        among.iter().find(|choice| choice.step == step && choice.rows.contains(rows)).map(|choice| choice.choice)
    }

    /// Replaces the choice for the same step and rows, or inserts this one before all others.
    pub(crate) fn put_into(self, list: &mut Vec<Self>) {
        match list.iter_mut().find(|other| other.step == self.step && other.rows == self.rows) {
            Some(other) => *other = self,
            None => list.insert(0, self),
        }
    }
}

impl<T: FromStr<Err = Error>> FromStr for StepChoice<T> {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (place, choice) = text
            .split_once('=')
            .ok_or_else(|| unlike("choice", "STEP=… or STEP@ROWS=…, such as moe.down@4-7=…", text))?;
        let (step, rows) = match place.split_once('@') {
            Some((step, rows)) => (step, rows.parse()?),
            None => (place, RowRange::ALL),
        };
        Ok(Self { step: step.to_owned(), rows, choice: choice.parse()? })
    }
}

impl<T: fmt::Display> fmt::Display for StepChoice<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, rows, choice } = self;
        match *rows {
            RowRange::ALL => write!(f, "{step}={choice}"),
            rows => write!(f, "{step}@{rows}={choice}"),
        }
    }
}

/// Into how many splits attention of few rows divides the cache. Written as `ROWS=SPLITS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct SplitsChoice {
    /// The rows of the plan.
    pub rows: RowRange,
    /// The number of splits.
    pub splits: usize,
}

impl FromStr for SplitsChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let unlike = || unlike("splits", "ROWS=SPLITS, such as 1=32", text);
        let (rows, splits) = text.split_once('=').ok_or_else(unlike)?;
        let splits = splits.parse().ok().filter(|splits| (1..=64).contains(splits)).ok_or_else(unlike)?;
        Ok(Self { rows: rows.parse()?, splits })
    }
}

impl fmt::Display for SplitsChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.rows, self.splits)
    }
}

/// How plans of few rows compute products of bytes for several vectors together: each group of weights is decoded once
/// for a number of them. Written as `FROMxSLOTSxROWS`, or `off`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Grouping {
    /// The minimum number of rows in a plan that does so.
    pub from: usize,
    /// The maximum number of slots that an expert computes together: 1, 2, 4 or 8, or 0 if each workgroup computes one
    /// slot.
    pub slots: usize,
    /// The maximum number of rows of the batch that other matrices are multiplied with together: 2, 4 or 8, or 0 for
    /// one at a time.
    pub rows: usize,
}

impl Grouping {
    /// The usual form.
    pub const USUAL: Self = Self { from: 9, slots: 8, rows: 8 };
    /// No plan does so.
    pub const OFF: Self = Self { from: 1, slots: 0, rows: 0 };
    const NAME_OF_OFF: &str = "off";
}

impl FromStr for Grouping {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == Self::NAME_OF_OFF {
            return Ok(Self::OFF);
        }
        let expected =
            "FROMxSLOTSxROWS, from 1 row on, with 0, 1, 2, 4 or 8 slots and 0, 2, 4 or 8 rows, such as 9x0x8, or off";
        let unlike = || unlike("grouping", expected, text);
        let numbers: Option<Vec<usize>> = text.split('x').map(|number| number.parse().ok()).collect();
        match numbers.as_deref() {
            Some(&[from @ (1..), slots @ (0 | 1 | 2 | 4 | 8), rows @ (0 | 2 | 4 | 8)]) => {
                Ok(Self { from, slots, rows })
            }
            _ => Err(unlike()),
        }
    }
}

impl fmt::Display for Grouping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::OFF => f.write_str(Self::NAME_OF_OFF),
            Self { from, slots, rows } => write!(f, "{from}x{slots}x{rows}"),
        }
    }
}

/// Serializes through the written form.
macro_rules! written {
    ($($type:ty $(where $t:ident)?),*) => {$(
        impl$(<$t: FromStr<Err = Error>>)? TryFrom<String> for $type {
            type Error = Error;

            fn try_from(text: String) -> Result<Self> {
                text.parse()
            }
        }

        impl$(<$t: fmt::Display>)? From<$type> for String {
            fn from(choice: $type) -> Self {
                choice.to_string()
            }
        }
    )*};
}

written!(StepChoice<T> where T, SplitsChoice, Grouping);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn choices(tilings: &[&str]) -> Choices {
        let tilings = tilings.iter().map(|text| text.parse().unwrap()).collect();
        Choices { tilings, ..Choices::default() }
    }

    #[test]
    fn choices_are_written_as_they_are_read() {
        let all = Choices {
            table: Some(Tilings::Apple),
            arithmetic: Some(Arithmetic::Int),
            few_without_matrices: true,
            prompts_without_matrices: false,
            route_apart: Some(true),
            grouping: Some("17x8x4".parse().unwrap()),
            tilings: choices(&["moe.down=32x1x512", "attn_q@4-7=16x1x256x4", "output=32x4x64d"]).tilings,
            splits: vec!["1=32".parse().unwrap()],
            tiles: ["attn_output@129-4096=4x2x2x4x1", "moe.down@33-128=64x4"].map(|t| t.parse().unwrap()).to_vec(),
            few_rows: Some(16),
            expanded_rows: Some(512),
            chunk: Some(2048),
        };
        let text = serde_json::to_string(&all).unwrap();
        assert!(
            text.contains(r#""tilings":["moe.down=32x1x512","attn_q@4-7=16x1x256x4","output=32x4x64d"]"#),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<Choices>(&text).unwrap(), all);
        assert_eq!(serde_json::to_string(&Choices::default()).unwrap(), "{}");
    }

    #[test]
    fn what_is_no_choice_is_refused() {
        let wrong = [
            r#"{"tilings": ["moe.down"]}"#,
            r#"{"tilings": ["moe.down=3x1x64"]}"#,
            r#"{"tilings": ["moe.down=32x1x64dd"]}"#,
            r#"{"tilings": ["moe.down=32x1xd64"]}"#,
            r#"{"tilings": ["moe.down@0=8x1x64"]}"#,
            r#"{"tilings": ["moe.down@7-4=8x1x64"]}"#,
            r#"{"tiles": ["moe.down=64x4x1"]}"#,
            r#"{"tilings": ["moe.down=32x1x32"]}"#,
            r#"{"tiles": ["moe.down=8x8x1x2x1"]}"#,
            r#"{"tiles": ["moe.down=1x1x1x2x1"]}"#,
            r#"{"splits": ["1=65"]}"#,
            r#"{"grouping": "9x4"}"#,
            r#"{"grouping": "9x3x4"}"#,
            r#"{"grouping": "0x4x4"}"#,
            r#"{"arithmetic": "double"}"#,
            r#"{"chunks": 3}"#,
        ];
        for text in wrong {
            assert!(serde_json::from_str::<Choices>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_first_that_fits_counts() {
        let asked = choices(&["moe.down=8x1x64"]);
        let tuned = choices(&["moe.down@1=16x1x64", "attn_q@2-3=32x1x64"]);
        let both = asked.or(&tuned);
        let lanes = |of: &Choices, step, rows| of.tiling(step, rows).map(|tiling| tiling.lanes);
        assert_eq!([lanes(&tuned, "moe.down", 1), lanes(&both, "moe.down", 1)], [Some(16), Some(8)]);
        assert_eq!([1, 2, 3, 4].map(|rows| lanes(&both, "attn_q", rows)), [None, Some(32), Some(32), None]);
    }
}
