//! What products share that decode each group of weights once for several vectors of a batch, the places of a tile.
//! Each is another form of a matrix-vector kernel for batches of more rows. It multiplies bytes that the previous step
//! has rounded, and adds up the same products in the same order: no bit of the output depends on which form computes
//! it.

use super::Kernel;
use super::matvec::{Input, MatvecProduct};
use super::rounded::{Rounded, WORDS};
use super::tiling::{SHARED_BYTES, STAGED_BYTES};
use crate::plan::{Builder, Grouping, MAX_GRID, Team, Tiling, VariantBuilder};
use crate::quant::Arithmetic;
use crate::wgsl::source;

/// The most sums of a team for each place, which are in a vec4.
pub(super) const MOST_SUMS: usize = 4;

/// The form of a product.
pub(super) struct Places<'a> {
    kernel: &'static Kernel,
    input: (&'a Input, Rounded),
    tiling: Tiling,
    /// The number of sums for each row of a team.
    own: usize,
    /// The most vectors that share decoded weights.
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
    /// The form of `product` in which `kernel` adds up sums in the same order, `own` for each of up to `most_rows`
    /// rows, and of up to `most` vectors; `None` if there is none.
    pub fn of(
        plan: &Builder,
        product: &'a MatvecProduct<'a>,
        (kernel, own, most_rows): (&'static Kernel, usize, usize),
        most: usize,
    ) -> Option<Self> {
        let (target, usual) = (plan.target_for(kernel.name), product.tiling(plan));
        let input = product.rounded_input(plan)?;
        let with = |rows| Tiling { rows, ..usual }.in_blocks_of(product.epilogue.unit(), target);
        let tiling = with(usual.rows.min(most_rows));
        let Tiling { lanes, rows, .. } = tiling;
        let alike = lanes == usual.lanes && lanes <= target.subgroup && usual.columns == 1;
        let able = alike && rows.is_power_of_two() && rows * own <= MOST_SUMS && target.team == Team::Subgroup;
        let places = most.min(lanes / rows);
        // All groups, or a multiple of the lanes, so that each lane takes the same groups in the same order.
        let room = STAGED_BYTES.min(target.workgroup_bytes.saturating_sub(SHARED_BYTES)) / (4 * WORDS * places.max(1));
        let tile = if product.groups <= room { product.groups } else { room / lanes * lanes };
        (able && places > 0 && tile > 0).then_some(Self { kernel, input, tiling, own, places, tile })
    }

    /// The shader, up to the files of rows and of the output.
    pub fn variant(&self, plan: &Builder, product: &MatvecProduct<'_>) -> VariantBuilder {
        let Tiling { lanes, rows, workgroup, .. } = self.tiling;
        let mut variant = VariantBuilder::new(self.kernel.name, self.kernel.op, workgroup)
            .constant("ROWS", "r", rows)
            .team(Team::Subgroup, lanes)
            .constant("OWN", "", self.own)
            .constant("PLACES", "by", self.places)
            .constant("COLUMNS", "", self.places)
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
        product.epilogue.files(variant.file(source!("lib/places.wgsl")))
    }

    /// The grid for matrices of up to `rows` rows, in `layers` layers.
    pub fn grid(&self, rows: usize, layers: usize) -> [usize; 3] {
        let (blocks, width) = (rows.div_ceil(self.tiling.block()), MAX_GRID as usize);
        [blocks.min(width), blocks.div_ceil(width), layers]
    }
}
