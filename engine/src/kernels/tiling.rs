//! How the matrix-vector products divide their rows among lanes: the only module that chooses by shape.

use crate::plan::{Target, Team, Tiling, Tilings};
use crate::quant::{Arithmetic, Quant};

/// The maximum number of bytes of staged activations, so that several workgroups fit on a core, on Metal too. If this
/// is all the memory that a workgroup may have, `SHARED_BYTES` of it are reserved for other arrays.
const STAGED_BYTES: usize = 16 << 10;
const SHARED_BYTES: usize = 1 << 10;
/// The maximum number of rows or columns of a team, whose sums are in a vec4.
pub(super) const MAX_SUMS: usize = 4;
/// Up to this many rows, an input with a norm is not staged: there are about as many workgroups as rows, and each would
/// stage all of it.
const FEW_ROWS: usize = 256;
/// From this many rows on, a team takes several: there are enough for every core of a large GPU.
const MANY_ROWS: usize = 32 << 10;

/// The properties of a product that decide how it is divided.
pub(super) struct ProductShape {
    /// The number of rows of all its matrices together.
    pub rows: usize,
    /// The number of groups of a row.
    pub groups: usize,
    /// Whether the product applies a norm to its vectors.
    pub normed: bool,
    /// The arithmetic.
    pub arithmetic: Arithmetic,
    /// The format of its first matrices, which have most of the weights.
    pub format: Option<&'static Quant>,
}

impl Tiling {
    /// The tiling of the product `step` in a plan of `tokens` rows.
    pub(super) fn of(target: &Target, step: &str, shape: &ProductShape, tokens: usize) -> Self {
        let direct = shape.normed && shape.rows <= FEW_ROWS;
        if target.team == Team::Workgroup {
            return Self { lanes: 64, rows: 4, workgroup: 64, columns: 1, direct };
        }
        if let Some(chosen) = target.choices.tiling(step, tokens) {
            return chosen.on(target);
        }
        if target.tilings == Tilings::Apple {
            return Self::of_apple(shape).on(target);
        }
        let ProductShape { arithmetic, rows, groups, .. } = *shape;
        let usual = Self::of_one(arithmetic, rows, groups);
        let several = if tokens > 1 { Self::of_several(arithmetic, rows, groups, tokens) } else { None };
        Self { direct, ..several.unwrap_or(usual).on(target) }
    }

    /// The tiling on Apple's GPUs and software drivers, for any number of rows of a batch.
    ///
    /// Not measured on an Apple GPU; on lavapipe it is faster than the tilings for NVIDIA's GPUs (docs/performance.md).
    /// It is the tiling of llama.cpp's Metal kernels: two subgroups, each of which takes a few rows
    /// ([`Quant::rows_in_registers`]) and reads activations into registers for all of them. If a row has fewer groups
    /// than a subgroup has lanes, several teams share the subgroup.
    fn of_apple(shape: &ProductShape) -> Self {
        let lanes = shape.groups.next_power_of_two().clamp(8, 32);
        let format = shape.format.filter(|_| shape.arithmetic == Arithmetic::Float);
        let rows = format.map_or(MAX_SUMS, Quant::rows_in_registers);
        Self { lanes, rows, workgroup: 64, columns: 1, direct: true }
    }

    /// The tiling for a batch of a single row.
    ///
    /// Measured on an H100 (docs/performance.md). A row is divided among as many lanes as have work in it. A team takes
    /// one row at a time unless there are very many, because a team computes its rows one after another, while those of
    /// different teams overlap. Workgroups are large if there is much to stage or rows are long.
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
        Self { lanes, rows: together, workgroup, columns: 1, direct: false }
    }

    /// The tiling for several rows of a batch, if it differs from that for one.
    ///
    /// Measured on an H100 as well. There is enough work for teams to take several rows of the matrix, which share the
    /// loaded activations. Taking several columns, which share the weights, is slower if weights come from the cache
    /// the second time, and faster for the output matrix, which is larger than the cache. On a GPU with a small cache
    /// it may be faster elsewhere too.
    fn of_several(arithmetic: Arithmetic, rows: usize, groups: usize, tokens: usize) -> Option<Self> {
        let many = tokens >= 4;
        if rows >= MANY_ROWS && groups >= 32 {
            let lanes = match (arithmetic, many) {
                (Arithmetic::Int, false) => 16,
                (Arithmetic::Int, true) | (Arithmetic::Float, false) => 8,
                (Arithmetic::Float, true) => 4,
            };
            return Some(Self { lanes, rows: 1, workgroup: 256, columns: tokens.min(MAX_SUMS), direct: false });
        }
        let (lanes, together, workgroup) = match (arithmetic, rows, groups) {
            (_, ..=FEW_ROWS | MANY_ROWS.., _) | (Arithmetic::Float, _, ..=8) => return None,
            (Arithmetic::Int, _, ..=8) => (8, 2, 128),
            (Arithmetic::Int, _, ..=31) => (8, tokens.div_ceil(4).min(2), 256),
            (Arithmetic::Int, ..=4096, ..=127) if many => (32, 2, 512),
            (Arithmetic::Float, _, ..=16) if many => (8, 2, 256),
            (Arithmetic::Float, _, ..=31) if many => (8, 4, 128),
            (_, _, ..=127) if many => (16, 2, 256),
            (Arithmetic::Float, ..=4096, 128..) if many && tokens < 8 => (32, 2, 1024),
            (_, ..=4096, 128..) if tokens >= 8 => (32, 4, 512),
            (_, ..=4096, 200..) => (32, 2, 512),
            (_, ..=4096, 128..) if many => (32, 4, 512),
            _ => return None,
        };
        Some(Self { lanes, rows: together, workgroup, columns: 1, direct: false })
    }

    /// This tiling within the limits of the target.
    fn on(self, target: &Target) -> Self {
        let workgroup = self.workgroup.min(target.invocations).max(Target::MIN_WORKGROUP);
        let wide = target.wide && (Target::WIDE..=workgroup).contains(&self.lanes);
        let lanes = if wide { self.lanes } else { target.lanes(self.lanes) };
        Self { lanes, workgroup, ..self }
    }

    /// This tiling with a number of columns that divides `tokens`.
    pub(super) fn for_tokens(self, tokens: usize) -> Self {
        let columns = (1..=self.columns).rev().find(|columns| tokens.is_multiple_of(*columns));
        Self { columns: columns.unwrap_or(1), ..self }
    }

    /// This tiling with workgroups that take a multiple of `unit` rows, at most 16: with more invocations if the device
    /// allows them, with more rows for each team, up to the four sums of a vec4, or with smaller teams.
    pub(super) fn in_blocks_of(mut self, unit: usize, target: &Target) -> Self {
        while !self.block().is_multiple_of(unit) {
            match self {
                Self { rows: 3, .. } => self.rows = MAX_SUMS,
                Self { workgroup, .. } if 2 * workgroup <= target.invocations.min(512) => self.workgroup *= 2,
                Self { rows, columns: 1, .. } if rows < MAX_SUMS => self.rows *= 2,
                Self { lanes, .. } => self.lanes = target.lanes(lanes / 2),
            }
        }
        self
    }

    /// The number of rows of a workgroup.
    pub(super) fn block(&self) -> usize {
        self.workgroup / self.lanes * self.rows
    }
}

/// The bytes of a workgroup's memory for staged activations, if other arrays take `others` besides the
/// [`SHARED_BYTES`].
pub(super) fn staged_bytes(target: &Target, others: usize) -> usize {
    STAGED_BYTES.min(target.workgroup_bytes.saturating_sub(SHARED_BYTES + others))
}

/// How many of the `groups` groups of each of `columns` vectors are staged at a time: so that there are as few turns as
/// possible, with about the same number in each.
pub(super) fn tile(target: &Target, arithmetic: Arithmetic, groups: usize, columns: usize) -> usize {
    let bytes = match arithmetic {
        Arithmetic::Float => 136,
        Arithmetic::Int => 48,
    };
    groups.div_ceil(groups.div_ceil((staged_bytes(target, 0) / (bytes * columns)).max(1))).max(1)
}

#[cfg(test)]
mod tests {
    use super::{MAX_SUMS, Target, Tiling};

    #[test]
    fn whatever_is_asked_for_leaves_whole_halves_of_groups() {
        let powers = |most: u32| (0..=most).map(|power| 1usize << power);
        for (subgroup, invocations) in [4, 8, 32, 64].into_iter().flat_map(|s| [128, 256, 1024].map(|i| (s, i))) {
            let target = Target { subgroup, invocations, ..Target::default() };
            for (lanes, workgroup) in powers(10).flat_map(|lanes| powers(10).map(move |workgroup| (lanes, workgroup))) {
                let rows = 1..=if lanes <= workgroup { MAX_SUMS } else { 0 };
                for (rows, columns) in rows.map(|rows| (rows, 1)).chain([(1, 4)]) {
                    let tiling = Tiling { lanes, rows, columns, workgroup: workgroup.max(lanes), direct: false };
                    let tiling = tiling.on(&target).in_blocks_of(16, &target);
                    let Tiling { lanes, rows, workgroup, .. } = tiling;
                    let sizes = Target::MIN_WORKGROUP..=invocations;
                    let sound = lanes <= workgroup && sizes.contains(&workgroup) && rows * columns <= MAX_SUMS;
                    assert!(sound && tiling.block().is_multiple_of(16), "{tiling:?} of {target:?}");
                }
            }
        }
    }
}
