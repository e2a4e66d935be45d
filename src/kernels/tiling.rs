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
/// Lanes at work at once that keep a large GPU's memory busy.
const BUSY_LANES: usize = 128 << 10;

impl Tiling {
    /// For `rows` rows, those of all matrices, of `groups` groups.
    pub fn of(target: &Target, rows: usize, groups: usize) -> Self {
        if target.team == Team::Workgroup {
            return Self { lanes: 64, rows: 4, workgroup: 64 };
        }
        let most = target.lanes(32);
        let used = |lanes: usize| groups as f64 / groups.next_multiple_of(lanes) as f64;
        let choices = [32, 16, 8].map(|lanes: usize| lanes.min(most));
        let lanes = choices.into_iter().find(|&lanes| used(lanes) > 0.9).unwrap_or(choices[2]);
        let rows = match rows * lanes / BUSY_LANES {
            0 => 1,
            1..4 => 2,
            _ => 4,
        };
        Self { lanes, rows, workgroup: 256 }
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
