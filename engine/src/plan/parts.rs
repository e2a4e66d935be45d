//! Splits steps that are too long for one dispatch into several dispatches of the same shader, each for a part of the
//! grid. The result of a workgroup does not depend on the other workgroups of its dispatch, so the results are
//! bit-identical.

use super::{Bound, Builder, Cost, Step, VariantBuilder};
use crate::error::Result;
use crate::wgsl::source;

/// The parameters by which the kernel of a step that may be split finds its part of the grid: see `lib/grid_part.wgsl`.
pub const PART_FIELDS: &[(&str, usize, usize)] = &[("x", 0, 4), ("y", 4, 4), ("z", 8, 4)];

/// A part of a grid.
struct GridPart {
    /// The first workgroup of the part.
    origin: [usize; 3],
    /// Workgroups in x, y, z.
    grid: [usize; 3],
}

impl Builder {
    /// Appends a step whose kernel finds its workgroup by `in_grid`, as several dispatches if it may take longer than
    /// the target's limit. The grid is split along dimension `first` and those after it, z before y before x, so that
    /// adjacent workgroups stay together. The steps of a token are never split, and do not use this.
    ///
    /// # Errors
    /// The errors of [`Builder::step`].
    pub fn step_in_parts(
        &mut self,
        label: &str,
        variant: VariantBuilder,
        bindings: Vec<Bound>,
        grid: ([usize; 3], usize),
        cost: Cost,
    ) -> Result<()> {
        self.step_in_parts_from(label, variant, bindings, [0; 3], grid, cost)
    }

    /// Like [`Builder::step_in_parts`], for a grid that is already part of a larger one, in which it begins at
    /// workgroup `from`.
    ///
    /// # Errors
    /// The errors of [`Builder::step`].
    pub fn step_in_parts_from(
        &mut self,
        label: &str,
        variant: VariantBuilder,
        bindings: Vec<Bound>,
        from: [usize; 3],
        (grid, first): ([usize; 3], usize),
        cost: Cost,
    ) -> Result<()> {
        let whole = || self.counts(grid, first, &cost) == [1; 3];
        if !self.tiles && from == [0; 3] && (self.plan.rows == 1 || whole()) {
            return self.step(label, variant.file(source!("lib/grid_whole.wgsl")), bindings, &(), grid, cost);
        }
        let whole =
            self.prepared(label, variant.tagged((source!("lib/grid_part.wgsl"), "part")), bindings, grid, cost)?;
        let counts = self.counts(grid, first, &cost);
        let parts = counts.into_iter().product::<usize>();
        let total = grid.into_iter().product::<usize>();
        let mut done = 0;
        for (index, GridPart { origin, grid }) in parts_of(grid, counts).enumerate() {
            let next = done + grid.into_iter().product::<usize>();
            let number = if parts == 1 { String::new() } else { format!(" {}/{parts}", index + 1) };
            let step = Step {
                label: whole.label.clone() + &number,
                params: bytemuck::bytes_of(&[0, 1, 2].map(|axis| (from[axis] + origin[axis]) as u32)).to_vec(),
                grid: grid.map(|n| n as u32),
                cost: cost.share(done..next, total),
                ..whole.clone()
            };
            self.push(step);
            done = next;
        }
        Ok(())
    }

    /// The number of parts along each dimension: the fewest that keep every part within the limit, if possible.
    fn counts(&self, grid: [usize; 3], first: usize, cost: &Cost) -> [usize; 3] {
        let limit = &self.target().limit;
        let (seconds, most) = (limit.seconds(cost, self.depth), limit.time.as_secs_f64());
        let total = grid.into_iter().product::<usize>();
        let mut wanted = (seconds / most).ceil().max(1.0) as usize;
        loop {
            let counts = counts_for(wanted, grid, first);
            let largest: usize = (0..3).map(|axis| grid[axis].div_ceil(counts[axis])).product();
            let cut_through = (first..3).all(|axis| counts[axis] == grid[axis]);
            if cut_through || seconds * largest as f64 <= most * total as f64 {
                return counts;
            }
            wanted += 1;
        }
    }
}

/// Numbers of parts along each dimension that give at least `wanted` parts, if there are enough workgroups.
fn counts_for(wanted: usize, grid: [usize; 3], first: usize) -> [usize; 3] {
    let (mut counts, mut left) = ([1; 3], wanted);
    for axis in (first..3).rev() {
        counts[axis] = left.clamp(1, grid[axis].max(1));
        left = left.div_ceil(counts[axis]);
    }
    counts
}

/// The parts, in about the order in which a GPU would run their workgroups.
fn parts_of(grid: [usize; 3], counts: [usize; 3]) -> impl Iterator<Item = GridPart> {
    let from = move |axis: usize, n: usize| n * grid[axis] / counts[axis];
    (0..counts.into_iter().product()).map(move |index: usize| {
        let place = [index % counts[0], index / counts[0] % counts[1], index / (counts[0] * counts[1])];
        let origin = [0, 1, 2].map(|axis| from(axis, place[axis]));
        GridPart { origin, grid: [0, 1, 2].map(|axis| from(axis, place[axis] + 1) - origin[axis]) }
    })
}

#[cfg(test)]
mod tests {
    use super::{GridPart, counts_for, parts_of};

    #[test]
    fn parts_cover_a_grid_once() {
        for (grid, counts) in [([5, 4, 3], [1, 1, 1]), ([5, 4, 3], [2, 3, 3]), ([7, 1, 2], [3, 1, 2])] {
            let mut seen = vec![0; grid.into_iter().product()];
            for GridPart { origin, grid: size } in parts_of(grid, counts) {
                assert!(size.iter().all(|n| *n > 0), "{size:?}");
                for n in 0..size.into_iter().product() {
                    let [x, y, z] = [n % size[0], n / size[0] % size[1], n / (size[0] * size[1])];
                    let at = ((origin[2] + z) * grid[1] + origin[1] + y) * grid[0] + origin[0] + x;
                    seen[at] += 1;
                }
            }
            assert!(seen.iter().all(|times| *times == 1), "{grid:?} by {counts:?}");
        }
    }

    #[test]
    fn the_last_dimension_is_cut_first() {
        assert_eq!(counts_for(1, [10, 10, 3], 0), [1, 1, 1]);
        assert_eq!(counts_for(3, [10, 10, 3], 0), [1, 1, 3]);
        assert_eq!(counts_for(7, [10, 10, 3], 0), [1, 3, 3]);
        assert_eq!(counts_for(31, [10, 10, 3], 0), [2, 10, 3]);
        assert_eq!(counts_for(7, [10, 10, 3], 2), [1, 1, 3]);
        assert_eq!(counts_for(1000, [10, 10, 3], 0), [10, 10, 3]);
    }
}
