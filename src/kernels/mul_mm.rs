//! Matrices times the vectors of many rows of a batch, by tiles in registers.

use super::matmul::{Operands, SIDE, TILE_TOKENS, TileProduct, TileRows, TileVectors};
use super::matvec::Norm;
use super::sum_parts::Summands;
use super::{Kernel, Residual, Slots};
use crate::error::Result;
use crate::plan::{Builder, PART_FIELDS, ProductTile, Tensor, VariantBuilder, Weight};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/mul_mm.wgsl");
/// Vectors that an invocation multiplies with its rows.
const TOKENS: usize = 4;
/// Tiles that occupy a large GPU. They are counted for a batch of MANY_TOKENS rows whatever its size, so that batches of
/// all sizes have the same tiles, and need no pipelines of their own.
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

    /// As [`Builder::mul_mm`], into a tensor that is there.
    ///
    /// # Errors
    /// As [`Builder::mul_mm`].
    pub fn mul_mm_into(&mut self, label: &str, w: &Weight, x: &Tensor, y: &Tensor) -> Result<()> {
        self.matmul(label, &TileProduct { rows: TileRows::One { w, add: false }, vectors: TileVectors::Batch, x, y })
    }

    /// y {rows, n} += w · x for every token: a product that joins the residual stream.
    ///
    /// # Errors
    /// As [`Builder::mul_mm`].
    pub fn mul_mm_add(&mut self, label: &str, w: &Weight, x: &Tensor, y: &Tensor) -> Result<()> {
        self.matmul(label, &TileProduct { rows: TileRows::One { w, add: true }, vectors: TileVectors::Batch, x, y })
    }

    /// y {rows} = silu(gate · x) · (up · x) for every token, for gate and up {columns, rows} and x {columns}.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn gate_up_mm(&mut self, label: &str, gate: &Weight, up: &Weight, x: &Tensor) -> Result<Tensor> {
        let y = self.tensor(label, [gate.shape[1], gate.shape[2] * x.rows]);
        self.matmul(label, &TileProduct { rows: TileRows::Gated { gate, up }, vectors: TileVectors::Batch, x, y: &y })?;
        Ok(y)
    }

    /// y {rows} = w · x for every token, or += that and, if there are any, the weighted outputs of `slots`, on which the norm
    /// `next` follows.
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
        let product = TileProduct { rows: TileRows::One { w, add }, vectors: TileVectors::Batch, x, y };
        let Some(parts) = self.matmul_in_parts(label, "parts", &product)? else {
            if let Some(Slots { routed, y: outputs }) = slots {
                self.moe_combine("moe.sum", &routed.weights, outputs, y)?;
            }
            self.matmul_of(label, &product, None)?;
            return Ok(Residual::from(*y));
        };
        let h = self.sum_normed(&format!("{label}.sum"), &parts, (y, add), slots, next)?;
        Ok(Residual { normed: Some(h), ..Residual::from(*y) })
    }

    /// w · x {rows} for every token, as parts that are still to be added up where several workgroups share a tile.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn mul_mm_summands(&mut self, label: &str, w: &Weight, x: &Tensor) -> Result<Summands> {
        let y = self.tensor(label, [w.shape[1], x.rows]);
        let product = TileProduct { rows: TileRows::One { w, add: false }, vectors: TileVectors::Batch, x, y: &y };
        match self.matmul_in_parts(label, &format!("{label}.parts"), &product)? {
            Some(parts) => Ok(parts),
            None => self.matmul_of(label, &product, None).map(|()| y.into()),
        }
    }

    /// Appends a product.
    pub(super) fn matmul(&mut self, label: &str, product: &TileProduct<'_>) -> Result<()> {
        match self.matmul_in_parts(label, "parts", product)? {
            Some(parts) => self.sum_parts(&format!("{label}.sum"), product, &parts),
            None => self.matmul_of(label, product, None),
        }
    }

    /// Appends a product of which several workgroups share a tile, and returns the parts that they leave in a buffer of
    /// this name; none where there are so many tiles, or so few columns, that it would not pay.
    pub(super) fn matmul_in_parts(
        &mut self,
        label: &str,
        name: &str,
        product: &TileProduct<'_>,
    ) -> Result<Option<Summands>> {
        let tile = self.matrix_tile(label, product);
        let (size, step) = match tile {
            Some(tile) if tile.side == 8 => return Ok(None),
            Some(tile) => ((tile.tokens(), tile.rows()), (tile.down * tile.across, tile.groups)),
            None => {
                let (tokens, rows) = self.chosen_tile(label, product).unwrap_or_else(|| tile_of(product));
                ((tokens, SIDE * rows), (SIDE * tokens / TOKENS / 32, 1))
            }
        };
        let sharing = self.sharing(product, size, step, tile.is_some());
        if sharing == 1 {
            return Ok(None);
        }
        let parts = self.parts_of(name, product, size, sharing);
        self.matmul_of(label, product, Some(&parts))?;
        Ok(Some(parts))
    }

    fn matmul_of(&mut self, label: &str, product: &TileProduct<'_>, parts: Option<&Summands>) -> Result<()> {
        if let Some(tile) = self.matrix_tile(label, product) {
            return self.matmul_by_matrices(label, product, tile, parts);
        }
        product.check(KERNEL.name)?;
        let (tokens, rows) = self.chosen_tile(label, product).unwrap_or_else(|| tile_of(product));
        let variant = VariantBuilder::new(KERNEL.name, OP, SIDE * tokens / TOKENS);
        let variant = variant.constant("TILE_TOKENS", "t", tokens).constant("ROWS", "r", rows);
        let variant = variant.constant("SIDE", "", SIDE).constant("TILE_ROWS", "", SIDE * rows);
        let variant = product.files(self, variant, Operands::F32, parts);
        let (grid, cost) = (product.shared_grid((tokens, SIDE * rows), parts), product.cost(tokens, SIDE * rows));
        self.computes_product(KERNEL.name, product, Operands::F32, (parts, 1));
        self.step_in_parts(label, variant, product.bindings(self, parts), (grid, 0), cost)
    }

    /// The tile that was chosen for this adapter, if it suits the product: an expert's slots have to fit a tile.
    fn chosen_tile(&self, label: &str, product: &TileProduct<'_>) -> Option<(usize, usize)> {
        match self.target().choices.tile(label, self.rows())? {
            ProductTile::Registers { vectors, rows } => product.holds(vectors).then_some((vectors, rows)),
            ProductTile::Matrices { .. } => None,
        }
    }
}

/// Vectors of a tile and rows of an invocation: the most that still leave enough tiles to occupy a large GPU.
fn tile_of(product: &TileProduct<'_>) -> (usize, usize) {
    let most = product.most_vectors().next_multiple_of(SIDE).min(TILE_TOKENS);
    if let TileVectors::Slots { .. } = product.vectors {
        return (most, 4);
    }
    let tiles = |tokens: usize, rows: usize| {
        MANY_TOKENS / tokens * product.rows.first().shape[2] * product.rows.staged().div_ceil(SIDE * rows)
    };
    let suits = |&(tokens, rows): &(usize, usize)| tokens <= most && tiles(tokens, rows) >= MANY_TILES;
    [(TILE_TOKENS, 4), (32, 4), (16, 4)].into_iter().find(suits).unwrap_or((most.min(16), 2))
}
