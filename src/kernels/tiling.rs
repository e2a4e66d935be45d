//! How the matrix-vector products divide their rows among lanes: the one place that knows what suits which
//! shape.

use crate::plan::{Target, Team, Tiling};
use crate::quant::Arithmetic;

/// Bytes of staged activations at most: several workgroups fit beside each other, on Metal too.
const STAGED_BYTES: usize = 16 << 10;
/// Rows of a team at most: they stand in a vec4.
const MOST_ROWS: usize = 4;
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

    /// With workgroups of a multiple of `unit` rows, 16 at most: of more invocations if there may be as many, of teams
    /// that take more rows, up to the four that a vec4 holds, or of smaller teams.
    pub(super) fn in_blocks_of(mut self, unit: usize, target: &Target) -> Self {
        while !self.block().is_multiple_of(unit) {
            match self {
                Self { rows: 3, .. } => self.rows = MOST_ROWS,
                Self { workgroup, .. } if 2 * workgroup <= target.invocations.min(512) => self.workgroup *= 2,
                Self { rows, .. } if rows < MOST_ROWS => self.rows *= 2,
                Self { lanes, .. } => self.lanes = target.lanes(lanes / 2),
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

#[cfg(test)]
mod tests {
    use super::{MOST_ROWS, Target, Tiling};

    #[test]
    fn whatever_is_asked_for_leaves_whole_halves_of_groups() {
        let powers = |most: u32| (0..=most).map(|power| 1usize << power);
        for (subgroup, invocations) in [4, 8, 32, 64].into_iter().flat_map(|s| [128, 256, 1024].map(|i| (s, i))) {
            let target = Target { subgroup, invocations, ..Target::default() };
            for (lanes, workgroup) in powers(10).flat_map(|lanes| powers(10).map(move |workgroup| (lanes, workgroup))) {
                for rows in 1..=if lanes <= workgroup { MOST_ROWS } else { 0 } {
                    let tiling = Tiling { lanes, rows, workgroup }.on(&target).in_blocks_of(16, &target);
                    let Tiling { lanes, rows, workgroup } = tiling;
                    let sound = lanes <= workgroup && workgroup <= invocations && rows <= MOST_ROWS;
                    assert!(sound && tiling.block().is_multiple_of(16), "{tiling:?} of {target:?}");
                }
            }
        }
    }
}
