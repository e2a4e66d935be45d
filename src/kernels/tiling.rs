//! How the matrix-vector products divide their rows among lanes: the one place that knows what suits which
//! shape.

use crate::plan::{Target, Team};
use crate::quant::Arithmetic;

/// How a product divides its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tiling {
    /// Lanes that share a row, a power of two.
    pub lanes: usize,
    /// Rows such a team works on at a time, sharing the activations it holds.
    pub rows: usize,
    /// Invocations of a workgroup, which share what is staged.
    pub workgroup: usize,
}

/// Bytes of staged activations at most: several workgroups fit beside each other, on Metal too.
const STAGED_BYTES: usize = 16 << 10;
/// Rows from which on a team takes two: there are enough for every core of a large GPU.
const MANY_ROWS: usize = 32 << 10;

impl Tiling {
    /// For `rows` rows, those of all matrices, of `groups` groups.
    ///
    /// Measured on an H100 (docs/performance.md). A row is spread over as many lanes as find work in it; teams take
    /// one row at a time, for a longer kernel costs more to fetch than it saves; workgroups are large where there
    /// is much to stage and small where there are few rows.
    pub fn of(target: &Target, rows: usize, groups: usize) -> Self {
        if target.team == Team::Workgroup {
            return Self { lanes: 64, rows: 4, workgroup: 64 };
        }
        let (lanes, together, workgroup) = match (rows, groups) {
            (_, ..=8) => (8, 1, 128),
            (_, ..=16) => (16, 1, 128),
            (_, ..=31) => (32, 2, 256),
            (MANY_ROWS.., _) => (32, 2, 256),
            (..=256, _) => (32, 1, 128),
            (..=2048, 128..) => (32, 1, 512),
            _ => (32, 1, 256),
        };
        Self { lanes: target.lanes(lanes), rows: together, workgroup: workgroup.min(target.invocations) }
    }

    /// Rows of a workgroup.
    pub fn block(&self) -> usize {
        self.workgroup / self.lanes * self.rows
    }
}

/// Groups staged at a time of `groups` altogether: as few times as possible, and about as many each time.
pub(super) fn tile(arithmetic: Arithmetic, groups: usize) -> usize {
    let bytes = match arithmetic {
        Arithmetic::Float => 136,
        Arithmetic::Int => 48,
    };
    groups.div_ceil(groups.div_ceil(STAGED_BYTES / bytes).max(1)).max(1)
}
