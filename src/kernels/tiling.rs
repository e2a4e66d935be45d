//! How the matrix-vector products divide their rows among lanes: the one place that knows what suits which
//! shape.

use crate::plan::{Target, Team, Tiling, Tilings};
use crate::quant::Arithmetic;

/// Bytes of staged activations at most: several workgroups fit beside each other, on Metal too. Where a workgroup has no
/// more than that altogether, they leave some for what else it shares.
const STAGED_BYTES: usize = 16 << 10;
const SHARED_BYTES: usize = 1 << 10;
/// Rows of a team at most: they stand in a vec4.
const MOST_ROWS: usize = 4;
/// Rows up to which a product stages nothing: there are about as many workgroups as rows.
pub(super) const FEW_ROWS: usize = 256;
/// Rows from which on a team takes several: there are enough for every core of a large GPU.
const MANY_ROWS: usize = 32 << 10;

impl Tiling {
    /// For the product `step` of `rows` rows, those of all matrices, of `groups` groups, with vectors of `tokens`
    /// tokens.
    pub(super) fn of(
        target: &Target,
        arithmetic: Arithmetic,
        step: &str,
        (rows, groups): (usize, usize),
        tokens: usize,
    ) -> Self {
        if target.team == Team::Workgroup {
            return Self { lanes: 64, rows: 4, workgroup: 64, columns: 1 };
        }
        if let Some(wish) = target.tiling_overrides.iter().find(|division| division.step == step) {
            return wish.tiling.on(target);
        }
        if target.tilings == Tilings::Apple {
            return Self::of_apple(groups).on(target);
        }
        let usual = Self::of_one(arithmetic, rows, groups);
        let several = if tokens > 1 { Self::of_several(arithmetic, rows, groups, tokens) } else { None };
        several.unwrap_or(usual).on(target)
    }

    /// On Apple's GPUs, of any number of tokens.
    ///
    /// Not measured by us: where llama.cpp's Metal kernels begin, two subgroups of which each takes four rows of Q4_0.
    /// What a lane has read of the activations serves all four. Shorter rows than a subgroup has lanes share it.
    fn of_apple(groups: usize) -> Self {
        Self { lanes: groups.next_power_of_two().clamp(8, 32), rows: MOST_ROWS, workgroup: 64, columns: 1 }
    }

    /// Of one token.
    ///
    /// Measured on an H100 (docs/performance.md). A row is spread over as many lanes as find work in it; teams take
    /// one row at a time but where there are very many, for rows side by side are computed one after another, while
    /// those of other teams overlap; workgroups are large where there is much to stage, or a row has many groups.
    fn of_one(arithmetic: Arithmetic, rows: usize, groups: usize) -> Self {
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
        Self { lanes, rows: together, workgroup, columns: 1 }
    }

    /// Of several tokens, where that differs from one.
    ///
    /// Measured on an H100 as well. There is work enough now for teams to take several rows, which share what they load
    /// of the activations. To share what they load of the weights instead, several columns, is slower: those come from
    /// the cache. Where that is a small one it may be otherwise.
    fn of_several(arithmetic: Arithmetic, rows: usize, groups: usize, tokens: usize) -> Option<Self> {
        let many = tokens >= 4;
        let (lanes, together, workgroup) = match (arithmetic, rows, groups) {
            (_, ..=FEW_ROWS | MANY_ROWS.., _) => return None,
            (Arithmetic::Int, _, ..=8) => (8, 2, 128),
            (Arithmetic::Int, _, ..=31) => (8, tokens.div_ceil(4).min(2), 256),
            (Arithmetic::Int, ..=4096, ..=127) if many => (32, 2, 512),
            (Arithmetic::Float, _, ..=31) if many => (8, 4, 128),
            (_, _, ..=127) if many => (16, 2, 256),
            (_, ..=4096, 128..) if tokens >= 8 => (32, 4, 512),
            (_, ..=4096, 200..) => (32, 2, 512),
            (_, ..=4096, 128..) if many => (32, 4, 512),
            _ => return None,
        };
        Some(Self { lanes, rows: together, workgroup, columns: 1 })
    }

    /// As far as a target can do it.
    fn on(self, target: &Target) -> Self {
        let workgroup = self.workgroup.min(target.invocations);
        let wide = target.wide && (Target::WIDE..=workgroup).contains(&self.lanes);
        let lanes = if wide { self.lanes } else { target.lanes(self.lanes) };
        Self { lanes, workgroup, ..self }
    }

    /// With columns of which `tokens` are a multiple.
    pub(super) fn for_tokens(self, tokens: usize) -> Self {
        let columns = (1..=self.columns).rev().find(|columns| tokens.is_multiple_of(*columns));
        Self { columns: columns.unwrap_or(1), ..self }
    }

    /// With workgroups of a multiple of `unit` rows, 16 at most: of more invocations if there may be as many, of teams
    /// that take more rows, up to the four sums that a vec4 holds, or of smaller teams.
    pub(super) fn in_blocks_of(mut self, unit: usize, target: &Target) -> Self {
        while !self.block().is_multiple_of(unit) {
            match self {
                Self { rows: 3, .. } => self.rows = MOST_ROWS,
                Self { workgroup, .. } if 2 * workgroup <= target.invocations.min(512) => self.workgroup *= 2,
                Self { rows, columns: 1, .. } if rows < MOST_ROWS => self.rows *= 2,
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

/// Groups of each of `columns` vectors staged at a time, of `groups` altogether: as few times as possible, and about as
/// many each time.
pub(super) fn tile(target: &Target, arithmetic: Arithmetic, groups: usize, columns: usize) -> usize {
    let most = STAGED_BYTES.min(target.workgroup_bytes.saturating_sub(SHARED_BYTES));
    let bytes = match arithmetic {
        Arithmetic::Float => 136,
        Arithmetic::Int => 48,
    };
    groups.div_ceil(groups.div_ceil((most / (bytes * columns)).max(1))).max(1)
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
                let rows = 1..=if lanes <= workgroup { MOST_ROWS } else { 0 };
                for (rows, columns) in rows.map(|rows| (rows, 1)).chain([(1, 4)]) {
                    let tiling = Tiling { lanes, rows, columns, workgroup: workgroup.max(lanes) };
                    let tiling = tiling.on(&target).in_blocks_of(16, &target);
                    let Tiling { lanes, rows, workgroup, .. } = tiling;
                    let sound = lanes <= workgroup && workgroup <= invocations && rows * columns <= MOST_ROWS;
                    assert!(sound && tiling.block().is_multiple_of(16), "{tiling:?} of {target:?}");
                }
            }
        }
    }
}
