//! The questions of a tuning, and their candidates.

use crate::plan::{Choices, Grouping, ProductTile, SplitsChoice, StepChoice, Tiling};
use crate::quant::Arithmetic;
use std::fmt;

/// Work whose time is measured as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Workload {
    /// A generated token, with `depth` tokens in the cache.
    Token { depth: usize },
    /// A part of a prompt with `rows` rows, in the smallest plan that holds them, after `depth` tokens.
    Rows { rows: usize, depth: usize },
    /// A prompt of `tokens` tokens, cut into chunks.
    Prompt { tokens: usize },
}

impl fmt::Display for Workload {
    /// Prints the name that `wglm bench` would print.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let depth = match *self {
            Self::Token { depth } => {
                f.write_str("tg")?;
                depth
            }
            Self::Rows { rows, depth } => {
                write!(f, "pp{rows}")?;
                depth
            }
            Self::Prompt { tokens } => return write!(f, "pp{tokens}"),
        };
        if depth > 0 { write!(f, " @ d{depth}") } else { Ok(()) }
    }
}

/// The parts of a tuning that can be dropped separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TuningPart {
    /// The choices for a single token.
    Token,
    /// The choices for a few rows.
    Few,
    /// The choices for prompts.
    Prompts,
}

impl Workload {
    /// The same after `depth` tokens.
    pub fn at(self, depth: usize) -> Self {
        match self {
            Self::Token { .. } => Self::Token { depth },
            Self::Rows { rows, .. } => Self::Rows { rows, depth },
            Self::Prompt { .. } => self,
        }
    }

    /// The part that the work depends on.
    pub fn part(&self) -> TuningPart {
        match self {
            Self::Token { .. } => TuningPart::Token,
            Self::Rows { rows, .. } if *rows <= 32 => TuningPart::Few,
            Self::Rows { .. } | Self::Prompt { .. } => TuningPart::Prompts,
        }
    }
}

/// A candidate: a change to the choices.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Edit {
    Arithmetic(Arithmetic),
    FewWithoutMatrices,
    PromptsWithoutMatrices,
    RouteApart(bool),
    Grouping(Grouping),
    Tiling(StepChoice<Tiling>),
    Splits(SplitsChoice),
    Tile(StepChoice<ProductTile>),
    FewRows(usize),
    ExpandedRows(usize),
    Chunk(usize),
}

impl Edit {
    /// The choices with this one.
    pub fn of(&self, choices: &Choices) -> Choices {
        let mut choices = choices.clone();
        match self {
            Self::Arithmetic(arithmetic) => choices.arithmetic = Some(*arithmetic),
            Self::FewWithoutMatrices => choices.few_without_matrices = true,
            Self::PromptsWithoutMatrices => choices.prompts_without_matrices = true,
            Self::RouteApart(apart) => choices.route_apart = Some(*apart),
            Self::Grouping(grouping) => choices.grouping = Some(*grouping),
            Self::Tiling(tiling) => tiling.clone().put_into(&mut choices.tilings),
            Self::Tile(tile) => tile.clone().put_into(&mut choices.tiles),
            Self::Splits(splits) => match choices.splits.iter_mut().find(|other| other.rows == splits.rows) {
                Some(other) => *other = *splits,
                None => choices.splits.insert(0, *splits),
            },
            Self::FewRows(rows) => choices.few_rows = Some(*rows),
            Self::ExpandedRows(rows) => choices.expanded_rows = Some(*rows),
            Self::Chunk(tokens) => choices.chunk = Some(*tokens),
        }
        choices
    }

    /// Whether it is part of these choices.
    pub fn is_in(&self, choices: &Choices) -> bool {
        self.of(choices) == *choices
    }
}

impl fmt::Display for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arithmetic(arithmetic) => f.write_str(arithmetic.name()),
            Self::FewWithoutMatrices | Self::PromptsWithoutMatrices => f.write_str("no matrices"),
            Self::RouteApart(true) => f.write_str("in a separate step"),
            Self::RouteApart(false) => f.write_str("by each workgroup"),
            Self::Grouping(grouping) => grouping.fmt(f),
            Self::Tiling(tiling) => tiling.choice.fmt(f),
            Self::Splits(splits) => write!(f, "{} splits", splits.splits),
            Self::Tile(tile) => tile.choice.fmt(f),
            Self::FewRows(rows) => write!(f, "tiles from {} rows on", rows + 1),
            Self::ExpandedRows(rows) => write!(f, "expanded from {rows} rows on"),
            Self::Chunk(tokens) => write!(f, "{tokens} tokens"),
        }
    }
}

/// A choice to make.
#[derive(Debug, Clone)]
pub(super) struct Question {
    /// Its display name.
    pub name: String,
    /// The work that candidates are measured by, all of it together.
    pub works: Vec<Workload>,
    /// The candidates, the most promising first: if time is short, the rest are left out.
    pub candidates: Vec<Edit>,
    /// The share of the total time that it deserves, relative to other questions.
    pub weight: f64,
    /// The minimum gain, as a fraction of the time, that makes a change worthwhile.
    pub least: f64,
}

/// The choices with one part reset to `start`.
pub(super) fn without(choices: &Choices, part: TuningPart, start: &Choices) -> Choices {
    let mut kept = choices.clone();
    let is_token = |from: usize, to: usize| from == 1 && to == 1;
    match part {
        TuningPart::Token => {
            kept.tilings.retain(|it| !is_token(it.rows.from, it.rows.to) || start.tilings.contains(it));
            kept.splits.retain(|it| !is_token(it.rows.from, it.rows.to) || start.splits.contains(it));
            (kept.arithmetic, kept.few_without_matrices) = (start.arithmetic, start.few_without_matrices);
            kept.route_apart = start.route_apart;
        }
        TuningPart::Few => {
            kept.tilings.retain(|it| is_token(it.rows.from, it.rows.to) || start.tilings.contains(it));
            kept.splits.retain(|it| is_token(it.rows.from, it.rows.to) || start.splits.contains(it));
            kept.grouping = start.grouping;
        }
        TuningPart::Prompts => {
            (kept.tiles, kept.few_rows, kept.chunk) = (start.tiles.clone(), start.few_rows, start.chunk);
            kept.expanded_rows = start.expanded_rows;
            kept.prompts_without_matrices = start.prompts_without_matrices;
        }
    }
    kept
}
