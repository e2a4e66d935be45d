//! Matrices times the vectors of many rows of a batch, with tiles in registers.

use super::computes::RotatedQueries;
use super::matmul::{Operands, SIDE, TILE_TOKENS, TileProduct, TileRows, TileVectors};
use super::matvec::{Norm, buffers_of};
use super::mul_mm_matrix::MatrixTile;
use super::sum_parts::Summands;
use super::{Kernel, Residual, Slots, expect_shape};
use crate::error::Result;
use crate::gpu::Matrices;
use crate::plan::{ALIGNMENT, Builder, PART_FIELDS, ProductTile, Tensor, VariantBuilder, Weight};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/mul_mm.wgsl");
/// The number of vectors that an invocation multiplies by its rows.
const TOKENS: usize = 4;
/// The number of tiles that occupies a large GPU. They are always counted for a batch of MANY_TOKENS rows, so that
/// batches of all sizes have the same tiles and share pipelines.
const MANY_TILES: usize = 128;
const MANY_TOKENS: usize = 512;

pub(super) const KERNEL: Kernel = Kernel { name: "mul_mm", op: OP, params: PART_FIELDS, matrices: &[] };

impl Builder {
    /// y {rows, n} = w · x for every token, for w {columns, rows, n} and x {columns, n}: matrix *i* times vector *i*.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn mul_mm(&mut self, label: &str, w: &Weight, x: &Tensor) -> Result<Tensor> {
        let y = self.tensor(label, [w.shape[1], w.shape[2] * x.rows]);
        self.mul_mm_into(label, w, x, &y)?;
        Ok(y)
    }

    /// As [`Builder::mul_mm`], into an existing tensor.
    ///
    /// # Errors
    /// As [`Builder::mul_mm`].
    pub fn mul_mm_into(&mut self, label: &str, w: &Weight, x: &Tensor, y: &Tensor) -> Result<()> {
        self.matmul(label, &TileProduct::of(TileRows::One { w, add: false }, x, y))
    }

    /// y {rows, n} += w · x for every token: a product that joins the residual stream.
    ///
    /// # Errors
    /// As [`Builder::mul_mm`].
    pub fn mul_mm_add(&mut self, label: &str, w: &Weight, x: &Tensor, y: &Tensor) -> Result<()> {
        self.matmul(label, &TileProduct::of(TileRows::One { w, add: true }, x, y))
    }

    /// y {rows} = silu(gate · x) · (up · x) for every token, for gate and up {columns, rows} and x {columns}.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn gate_up_mm(&mut self, label: &str, gate: &Weight, up: &Weight, x: &Tensor) -> Result<Tensor> {
        let y = self.tensor(label, [gate.shape[1], gate.shape[2] * x.rows]);
        self.matmul(label, &TileProduct::of(TileRows::Gated { gate, up }, x, &y))?;
        Ok(y)
    }

    /// y {rows} = w · x for every token, or += that plus, if there are any, the weighted outputs of `slots`. The norm
    /// `next` is applied to the result.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub(super) fn mul_mm_normed(
        &mut self,
        label: &str,
        w: &Weight,
        x: &Tensor,
        (y, add): (&Tensor, bool),
        slots: Option<&Slots>,
        next: &Norm,
    ) -> Result<Residual> {
        let product = TileProduct::of(TileRows::One { w, add }, x, y);
        let tile = self.tile(label, &product);
        let Some(parts) = self.matmul_in_parts(label, "parts", &product, tile)? else {
            if let Some(Slots { routed, y: outputs }) = slots {
                self.moe_combine("moe.sum", &routed.weights, outputs, y)?;
            }
            self.matmul_of(label, &product, tile, None)?;
            return Ok(Residual::from(*y));
        };
        let h = self.sum_normed(&format!("{label}.sum"), &parts, (y, add), slots, next)?;
        Ok(Residual { normed: Some(h), ..Residual::from(*y) })
    }

    /// w · x {rows} for every token, as parts that remain to be summed if several workgroups share a tile.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn mul_mm_summands(&mut self, label: &str, w: &Weight, x: &Tensor) -> Result<Summands> {
        let y = self.tensor(label, [w.shape[1], x.rows]);
        let product = TileProduct::of(TileRows::One { w, add: false }, x, &y);
        let tile = self.tile(label, &product);
        match self.matmul_in_parts(label, &format!("{label}.parts"), &product, tile)? {
            Some(parts) => Ok(parts),
            None => self.matmul_of(label, &product, tile, None).map(|()| y.into()),
        }
    }

    /// Whether [`Builder::mul_mm_pair`] suits the two matrices: in one step they occupy more of a large GPU. Without
    /// matrices of 16 x 16, this was not measured.
    pub(super) fn suits_pair(&self, [w, other]: [&Weight; 2]) -> bool {
        const OTHERS: usize = 3; // x, y, batch
        let target = self.target();
        let fits = buffers_of(&[w, other]) + OTHERS <= target.buffers;
        let [small, large] = [w.shape[1].min(other.shape[1]), w.shape[1].max(other.shape[1])];
        let alike = 2 * large <= 3 * small; // both get as many workgroups as the larger one
        let halves = !w.quant.exceeds_half() && !other.quant.exceeds_half();
        fits && alike
            && halves
            && target.fusions.latent
            && target.matrices == Matrices::Sixteen
            && self.multiplies_halves()
    }

    /// w · x {rows of w} and other · x {rows of other} for every token, computed in one step and left in parts. `None`,
    /// and nothing is appended, if a step with both cannot leave parts.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub(crate) fn mul_mm_pair(
        &mut self,
        label: &str,
        [w, other]: [&Weight; 2],
        x: &Tensor,
    ) -> Result<Option<(Summands, Summands)>> {
        let rows = w.shape[1].max(other.shape[1]);
        let y = Tensor { shape: [rows, 2 * x.rows], stride: rows, pitch: 2 * rows, ..*x }; // nothing is written to it
        let one = |w| TileRows::One { w, add: false };
        let product = TileProduct { other: Some(one(other)), ..TileProduct::of(one(w), x, &y) };
        let tile = self.tile(label, &product);
        let bindable = (tile.size().1 * size_of::<f32>()).is_multiple_of(ALIGNMENT as usize);
        let whole = [w, other].iter().all(|w| w.shape[1].is_multiple_of(4)); // what follows in a part is not zero
        if !bindable || !whole {
            return Ok(None);
        }
        let parts = self.matmul_in_parts(label, &format!("{label}.parts"), &product, tile)?;
        Ok(parts.and_then(|parts| {
            let (first, second) = product.split(&parts);
            Some((first, second?))
        }))
    }

    /// y {rank + rotary, n} for every token: the first values of q {nope + rotary, n} times w {nope, rank, n}, followed
    /// by the rest, rotated. Returns `false`, and appends nothing, if one step cannot do both.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub(crate) fn mul_mm_rotating(&mut self, label: &str, w: &Weight, q: &Tensor, y: &Tensor) -> Result<bool> {
        let [nope, rank, heads] = w.shape;
        let rotary = q.shape[0].saturating_sub(nope);
        expect_shape(KERNEL.name, "y", y.shape[0], rank + rotary)?;
        let first = |tensor: &Tensor, values| Tensor { shape: [values, tensor.shape[1]], ..*tensor };
        let (x, products) = (first(q, nope), first(y, rank));
        let rotated = Some(RotatedQueries { q: *q, y: *y, rotary });
        let product = TileProduct { rotated, ..TileProduct::of(TileRows::One { w, add: false }, &x, &products) };
        let tile = self.tile(label, &product);
        let whole = nope.is_multiple_of(4) && rotary.is_multiple_of(4) && rotary > 0 && heads == q.per_row();
        if !whole || self.sharing(&product, tile) > 1 {
            return Ok(false);
        }
        self.matmul_of(label, &product, tile, None)?;
        Ok(true)
    }

    /// Appends a product.
    pub(super) fn matmul(&mut self, label: &str, product: &TileProduct<'_>) -> Result<()> {
        let tile = self.tile(label, product);
        match self.matmul_in_parts(label, "parts", product, tile)? {
            Some(parts) => self.sum_parts(&format!("{label}.sum"), product, &parts),
            None => self.matmul_of(label, product, tile, None),
        }
    }

    /// Appends a product. If several workgroups share a tile, they write parts to a buffer of this name, which this
    /// returns. They do not if that would not pay off because there are many tiles or few columns.
    pub(super) fn matmul_in_parts(
        &mut self,
        label: &str,
        name: &str,
        product: &TileProduct<'_>,
        tile: Tile,
    ) -> Result<Option<Summands>> {
        let sharing = self.sharing(product, tile);
        if sharing == 1 {
            return Ok(None);
        }
        let parts = self.parts_of(name, product, tile, sharing);
        self.matmul_of(label, product, tile, Some(&parts))?;
        Ok(Some(parts))
    }

    fn matmul_of(
        &mut self,
        label: &str,
        product: &TileProduct<'_>,
        tile: Tile,
        parts: Option<&Summands>,
    ) -> Result<()> {
        match tile {
            Tile::Matrices(tile) => self.matmul_by_matrices(label, product, tile, parts),
            Tile::Registers(tile) => self.matmul_in_registers(label, product, tile, parts),
        }
    }

    /// Appends a product with tiles in registers.
    fn matmul_in_registers(
        &mut self,
        label: &str,
        product: &TileProduct<'_>,
        tile: RegisterTile,
        parts: Option<&Summands>,
    ) -> Result<()> {
        product.check(KERNEL.name)?;
        let variant = VariantBuilder::new(KERNEL.name, OP, SIDE * tile.vectors / TOKENS);
        let variant = variant.constant("TILE_TOKENS", "t", tile.vectors).constant("ROWS", "r", tile.rows);
        let variant = variant.constant("SIDE", "", SIDE).constant("TILE_ROWS", "", SIDE * tile.rows);
        let (vectors, rows) = Tile::Registers(tile).size();
        let (grid, cost) = (product.shared_grid((vectors, rows), parts), product.cost(vectors, rows));
        let variant = product.files(self, variant, Operands::F32, grid[1], parts);
        self.computes_product(KERNEL.name, product, Operands::F32, (parts, 1));
        self.step_in_parts(label, variant, product.bindings(self, parts), (grid, 0), cost)
    }

    /// The tiles of a product: with matrices if they can multiply it, and in the shape that was chosen for this adapter
    /// if the product allows it.
    pub(super) fn tile(&self, label: &str, product: &TileProduct<'_>) -> Tile {
        let rows = match product.vectors {
            TileVectors::Batch => self.rows_alone(),
            TileVectors::Slots { .. } => self.rows(), // the sums of a slot do not depend on its tile
        };
        let chosen = self.target().choices.tile(label, rows);
        if let Some(tile) = self.matrix_tile(product, chosen) {
            return Tile::Matrices(tile);
        }
        Tile::Registers(match chosen {
            // an expert's slots must fit into a tile
            Some(ProductTile::Registers { vectors, rows }) if product.holds(vectors) => RegisterTile { vectors, rows },
            _ => RegisterTile::of(product, product.most_vectors(self)),
        })
    }
}

/// How a workgroup computes a tile of a product.
#[derive(Debug, Clone, Copy)]
pub(super) enum Tile {
    Registers(RegisterTile),
    Matrices(MatrixTile),
}

/// A tile that invocations sum in registers.
#[derive(Debug, Clone, Copy)]
pub(super) struct RegisterTile {
    /// The number of vectors of the tile.
    vectors: usize,
    /// The number of rows of an invocation.
    rows: usize,
}

impl Tile {
    /// The numbers of vectors and of staged rows.
    pub fn size(self) -> (usize, usize) {
        match self {
            Self::Registers(tile) => (tile.vectors, SIDE * tile.rows),
            Self::Matrices(tile) => (tile.tokens(), tile.rows()),
        }
    }

    /// The number of subgroups of a workgroup if they have 32 lanes.
    pub fn subgroups(self) -> usize {
        match self {
            Self::Registers(tile) => SIDE * tile.vectors / TOKENS / 32,
            Self::Matrices(tile) => tile.down * tile.across,
        }
    }

    /// The number of groups of 32 columns that are staged at a time.
    pub fn groups(self) -> usize {
        match self {
            Self::Registers(_) => 1,
            Self::Matrices(tile) => tile.groups,
        }
    }
}

impl RegisterTile {
    /// The maximum number of vectors and rows that still leave enough tiles to occupy a large GPU.
    fn of(product: &TileProduct<'_>, most: usize) -> Self {
        let most = most.next_multiple_of(SIDE).min(TILE_TOKENS);
        if let TileVectors::Slots { .. } = product.vectors {
            return Self { vectors: most, rows: 4 };
        }
        let matrices = product.rows.first().shape[2];
        let tiles =
            |tile: &Self| MANY_TOKENS / tile.vectors * matrices * product.rows.staged().div_ceil(SIDE * tile.rows);
        [(TILE_TOKENS, 4), (32, 4), (16, 4)]
            .map(|(vectors, rows)| Self { vectors, rows })
            .into_iter()
            .find(|tile| tile.vectors <= most && tiles(tile) >= MANY_TILES)
            .unwrap_or(Self { vectors: most.min(16), rows: 2 })
    }
}
