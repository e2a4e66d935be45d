//! Common parts of the kernels that decode weights once and multiply them with several vectors of a batch, the *places*
//! of a tile. They replace matrix-vector kernels in larger batches: they multiply bytes that the previous step has
//! rounded, and add up the same products in the same order, so no bit of the output depends on which kernel computes
//! it.

use super::Kernel;
use super::matvec::{Input, MatvecProduct};
use super::rounded::{Rounded, WORDS};
use super::tiling::{MAX_SUMS, staged_bytes};
use crate::plan::{Builder, Grouping, MAX_GRID, Team, Tiling, VariantBuilder};
use crate::quant::Arithmetic;
use crate::wgsl::source;

/// How a kernel computes a product for several vectors at a time.
pub(super) struct Places<'a> {
    kernel: &'static Kernel,
    input: (&'a Input, Rounded),
    tiling: Tiling,
    /// The number of sums for each row of a team.
    sums_per_row: usize,
    /// The maximum number of vectors that share decoded weights.
    pub places: usize,
    /// The number of groups of a vector that are staged at a time.
    tile: usize,
}

impl Builder {
    /// How the plan computes several vectors together, if it does.
    pub(super) fn grouping(&self) -> Option<Grouping> {
        let grouping = self.target().grouping();
        Some(grouping).filter(|grouping| self.rows() > 1 && self.rows() >= grouping.from)
    }
}

impl<'a> Places<'a> {
    /// How `kernel` computes `product` for up to `most` vectors at a time, with teams of up to `most_rows` rows and
    /// `sums_per_row` sums for each. `None` if it cannot add them in the order of the usual kernel.
    pub fn of(
        plan: &Builder,
        product: &'a MatvecProduct<'a>,
        (kernel, sums_per_row, most_rows): (&'static Kernel, usize, usize),
        most: usize,
    ) -> Option<Self> {
        let (target, usual) = (plan.target_for(kernel.name), product.tiling(plan));
        let input = product.rounded_input(plan)?;
        let tiling = Tiling { rows: usual.rows.min(most_rows), columns: 1, ..usual };
        let tiling = tiling.in_blocks_of(product.epilogue.unit(), target);
        let Tiling { lanes, rows, .. } = tiling;
        let alike = lanes == usual.lanes && lanes <= target.subgroup;
        let fits = rows <= most_rows && rows * sums_per_row <= MAX_SUMS && rows.is_power_of_two();
        let places = most.min(lanes / rows);
        // All groups, or a multiple of the lanes, so that each lane takes the same groups in the same order.
        let kept = product.epilogue.workgroup_bytes(tiling.block(), places);
        let most_groups = staged_bytes(target, kept) / (4 * WORDS * places.max(1));
        let tile = if product.groups <= most_groups { product.groups } else { most_groups / lanes * lanes };
        let able = alike && fits && target.team == Team::Subgroup && places > 0 && tile > 0;
        able.then_some(Self { kernel, input, tiling, sums_per_row, places, tile })
    }

    /// The shader, up to the files of rows and of the output.
    pub fn variant(&self, plan: &Builder, product: &MatvecProduct<'_>) -> VariantBuilder {
        let Tiling { lanes, rows, workgroup, .. } = self.tiling;
        let mut variant = VariantBuilder::new(self.kernel.name, self.kernel.op, workgroup)
            .constant("ROWS", "r", rows)
            .team(Team::Subgroup, lanes)
            .constant("OWN", "", self.sums_per_row)
            .constant("PLACES", "by", self.places)
            .constant("COLUMNS", "", self.places) // the epilogue's name for them
            .constant("TILE", "t", self.tile)
            .constant("INPUT_GROUPS", "", product.groups)
            .constant("GRID_WIDTH", "", MAX_GRID as usize)
            .tagged(Arithmetic::Int.product_file());
        variant = plan.bits_files(variant, Arithmetic::Int).constant("GROUP_WORDS", "", WORDS);
        variant = variant.file(source!("lib/rounding.wgsl")).file(source!("lib/decoded.wgsl"));
        for (role, weight) in &product.roles {
            variant = variant
                .constant(&format!("{role}_GROUPS"), "g", weight.groups())
                .constant(&format!("{role}_ROWS"), "n", weight.shape[1])
                .decode(role, weight.quant);
        }
        let variant = product.rounded_files(variant, self.input, source!("lib/input_gathered.wgsl"));
        let variant = variant.file(source!("lib/blocks.wgsl")).file(source!("lib/places.wgsl"));
        product.epilogue.files(variant)
    }

    /// The grid for matrices of up to `rows` rows, in `layers` layers.
    pub fn grid(&self, rows: usize, layers: usize) -> [usize; 3] {
        let (blocks, width) = (rows.div_ceil(self.tiling.block()), MAX_GRID as usize);
        [blocks.min(width), blocks.div_ceil(width), layers]
    }
}
