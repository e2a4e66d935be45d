//! Matrices times the vectors of many rows of a batch, with cooperative matrices: products of f16, summed in f32.

use super::Kernel;
use super::matmul::{Operands, TileProduct, TileRows};
use super::sum_parts::Summands;
use crate::error::Result;
use crate::gpu::Matrices;
use crate::plan::{Builder, PART_FIELDS, ProductTile, Target, Team, VariantBuilder};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/mul_mm_matrix.wgsl");
/// The maximum number of chunks of vectors and groups of rows that an invocation loads for a step: each is a separate
/// variable in the shader.
const MAX_VECTORS: usize = 16;
const MAX_ROWS: usize = 4;

pub(crate) const KERNEL: Kernel =
    Kernel { name: "mul_mm_matrix", op: OP, params: PART_FIELDS, matrices: &[Matrices::Eight, Matrices::Sixteen] };

/// How a workgroup divides a tile among its subgroups, which form rows and columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MatrixTile {
    /// Rows and columns of a cooperative matrix.
    pub side: usize,
    /// The number of subgroups along the vectors.
    pub down: usize,
    /// The number of subgroups along the rows.
    pub across: usize,
    /// The number of matrices of vectors that a subgroup multiplies, at most 4.
    pub lefts: usize,
    /// The number of matrices of rows that a subgroup multiplies: 2 or 4.
    pub rights: usize,
    /// The number of groups of 32 columns that are staged at a time.
    pub groups: usize,
}

impl MatrixTile {
    /// The number of vectors of a tile.
    pub fn tokens(&self) -> usize {
        self.down * self.lefts * self.side
    }

    /// The number of staged rows of a tile.
    pub fn rows(&self) -> usize {
        self.across * self.rights * self.side
    }

    /// A tile that was chosen, of matrices of `side` x `side`.
    fn chosen(tile: ProductTile, side: usize) -> Option<Self> {
        match tile {
            ProductTile::Matrices { down, across, lefts, rights, groups } => {
                Some(Self { side, down, across, lefts, rights, groups })
            }
            ProductTile::Registers { .. } => None,
        }
    }

    /// Whether a workgroup of the target can compute such tiles of the product.
    fn suits(&self, product: &TileProduct<'_>, target: &Target) -> bool {
        let (subgroups, pitch) = (self.down * self.across, 32 * self.groups + 8);
        let abreast = if self.side == 8 { self.rights } else { 1 }; // matrices of sums that are written together
        let sums = 4 * subgroups * abreast * self.side * self.side;
        let staged = 2 * pitch * (self.tokens() + self.rows()) + sums + 16;
        let shares = |values: usize| (values * self.groups).div_ceil(32 * subgroups);
        let named = shares(8 * self.tokens()) <= MAX_VECTORS && shares(self.rows()) <= MAX_ROWS;
        let whole = product.rows.first().groups().is_multiple_of(self.groups);
        let sizes = Target::MIN_WORKGROUP..=target.invocations;
        let fits = sizes.contains(&(32 * subgroups)) && staged <= target.workgroup_bytes;
        whole && fits && named && product.holds(self.tokens())
    }

    /// The tile for matrices of 16 x 16, as measured on an H100.
    fn of_sixteen(product: &TileProduct<'_>, most: usize) -> Self {
        let even = if product.rows.first().groups().is_multiple_of(2) { 2 } else { 1 };
        let tile = |down, across, lefts, rights, groups| Self { side: 16, down, across, lefts, rights, groups };
        match (most, product.rows) {
            (0..=16, TileRows::One { .. }) => tile(1, 8, 1, 2, even),
            (0..=16, TileRows::Gated { .. }) => tile(1, 2, 1, 2, even),
            (17..=32, _) => tile(1, 2, 2, 2, even),
            (33..=48, _) => tile(1, 2, 3, 4, 1),
            (129.., TileRows::Gated { .. }) => tile(4, 2, 2, 4, even),
            _ => tile(1, 4, 4, 2, even),
        }
    }

    /// The tile for matrices of 8 x 8, not measured: subgroups that sum 32 x 32, as in other programs on Metal.
    fn of_eight(most: usize) -> Self {
        let tile = |down, across, lefts| Self { side: 8, down, across, lefts, rights: 4, groups: 1 };
        match most {
            0..=16 => tile(1, 4, 2),
            17..=32 => tile(1, 4, 4),
            _ => tile(2, 2, 4),
        }
    }
}

impl Builder {
    /// The tile of a product, which is the chosen one if that is possible; `None` if matrices cannot multiply it,
    /// because values have more bits than f16.
    pub(super) fn matrix_tile(&self, product: &TileProduct<'_>, chosen: Option<ProductTile>) -> Option<MatrixTile> {
        let target = self.target_for(KERNEL.name);
        if product.exceeds_half() || target.team != Team::Subgroup {
            return None;
        }
        let most = product.most_vectors(self);
        let (side, usual) = match target.matrices {
            Matrices::None => return None,
            Matrices::Eight => (8, MatrixTile::of_eight(most)),
            Matrices::Sixteen => (16, MatrixTile::of_sixteen(product, most)),
        };
        let chosen = chosen.and_then(|chosen| MatrixTile::chosen(chosen, side));
        Some(chosen.filter(|tile| tile.suits(product, target)).unwrap_or(usual))
    }

    /// Whether products of tiles may read f16, so that the vectors they multiply must be in its range.
    pub(super) fn multiplies_halves(&self) -> bool {
        let target = self.target_for(KERNEL.name);
        target.matrices != Matrices::None && target.team == Team::Subgroup
    }

    /// Appends a product with matrices.
    pub(super) fn matmul_by_matrices(
        &mut self,
        label: &str,
        product: &TileProduct<'_>,
        tile: MatrixTile,
        parts: Option<&Summands>,
    ) -> Result<()> {
        product.check(KERNEL.name)?;
        let of_side = match tile.side {
            8 => vec![source!("lib/matrix8.wgsl"), source!("lib/store8.wgsl")],
            _ => vec![source!("lib/coop16.wgsl"), source!("lib/matrix16.wgsl"), source!("lib/store16.wgsl")],
        };
        let variant = VariantBuilder::new(KERNEL.name, OP, 32 * tile.down * tile.across)
            .matrices()
            .constant("ROW_SUBGROUPS", "r", tile.across)
            .constant("LEFTS", "m", tile.lefts)
            .constant("RIGHTS", "n", tile.rights)
            .constant("STEP_GROUPS", "s", tile.groups)
            .constant("SIDE", "", tile.side)
            .constant("TILE_TOKENS", "", tile.tokens())
            .constant("TILE_ROWS", "", tile.rows())
            .switch("DIRECT", "d", product.leaves_whole(tile.rows()));
        let variant = of_side.into_iter().fold(variant, VariantBuilder::file).file(source!("lib/halves.wgsl"));
        let size = (tile.tokens(), tile.rows());
        let (grid, cost) = (product.shared_grid(size, parts), product.cost(size.0, size.1));
        let variant = product.files(self, variant, Operands::F16, grid[1], parts);
        self.computes_product(KERNEL.name, product, Operands::F16, (parts, tile.groups));
        self.step_in_parts(label, variant, product.bindings(self, parts), (grid, 0), cost)
    }
}
