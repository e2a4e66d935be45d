//! How the matrix-vector products divide their rows among lanes: the one place that knows what suits which
//! shape.

use crate::plan::{Target, Team, Tiling};
use crate::quant::Arithmetic;

/// Bytes of staged activations at most: several workgroups fit beside each other, on Metal too.
const STAGED_BYTES: usize = 16 << 10;
/// Rows up to which a product stages nothing: there are about as many workgroups as rows.
pub(super) const FEW_ROWS: usize = 256;
/// Rows from which on a team takes two: there are enough for every core of a large GPU.
const MANY_ROWS: usize = 32 << 10;

impl Tiling {
    /// For the product `step` of `rows` rows, those of all matrices, of `groups` groups.
    ///
    /// Measured on an H100 (docs/performance.md). A row is spread over as many lanes as find work in it; teams take
    /// one row at a time but where there are very many, for rows side by side are computed one after another, while
    /// those of other teams overlap; workgroups are large where there is much to stage, or a row has many groups.
    pub(super) fn of(target: &Target, arithmetic: Arithmetic, step: &str, rows: usize, groups: usize) -> Self {
        if target.team == Team::Workgroup {
            return Self { lanes: 64, rows: 4, workgroup: 64 };
        }
        if let Some(wish) = target.divisions.iter().find(|division| division.step == step) {
            return wish.tiling.on(target);
        }
        let (lanes, together, workgroup) = match (arithmetic, rows, groups) {
            (_, _, ..=8) => (8, 1, 128),
            (Arithmetic::Int, _, ..=16) => (8, 1, 256),
            (Arithmetic::Float, _, ..=16) => (16, 1, 128),
            (Arithmetic::Int, _, ..=31) => (32, 1, 512),
            (Arithmetic::Float, _, ..=31) => (32, 2, 256),
            (Arithmetic::Int, MANY_ROWS.., _) => (32, 2, 256),
            (Arithmetic::Float, MANY_ROWS.., _) => (32, 4, 256),
            (_, ..=FEW_ROWS, _) => (64, 1, 64),
            (Arithmetic::Int, ..=2048, 128..) => (64, 1, 1024),
            (Arithmetic::Float, ..=2048, 128..) => (32, 1, 512),
            _ => (32, 1, 256),
        };
        Self { lanes, rows: together, workgroup }.on(target)
    }

    /// As far as a target can do it.
    fn on(self, target: &Target) -> Self {
        let workgroup = self.workgroup.min(target.invocations);
        let wide = target.wide && (Target::WIDE..=workgroup).contains(&self.lanes);
        let lanes = if wide { self.lanes } else { target.lanes(self.lanes) };
        Self { lanes, workgroup, ..self }
    }

    /// With workgroups of a multiple of `unit` rows, a power of two: of more invocations if there may be as many, or
    /// of teams that take more rows.
    pub(super) fn in_blocks_of(mut self, unit: usize, invocations: usize) -> Self {
        while !self.block().is_multiple_of(unit) {
            if 2 * self.workgroup <= invocations.min(512) {
                self.workgroup *= 2;
            } else {
                self.rows *= 2;
            }
        }
        self
    }

    /// Rows of a workgroup.
    pub(super) fn block(&self) -> usize {
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
