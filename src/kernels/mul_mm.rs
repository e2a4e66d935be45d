//! Matrices times the vectors of many rows of a batch, by tiles in registers.

use super::Kernel;
use super::matmul::{Operands, SIDE, TILE_TOKENS, TileProduct, TileRows, TileVectors};
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

    /// Appends a product.
    pub(super) fn matmul(&mut self, label: &str, product: &TileProduct<'_>) -> Result<()> {
        if let Some(tile) = self.matrix_tile(label, product) {
            return self.matmul_by_matrices(label, product, tile);
        }
        product.check(KERNEL.name)?;
        let (tokens, rows) = self.chosen_tile(label, product).unwrap_or_else(|| tile_of(product));
        let variant = VariantBuilder::new(KERNEL.name, OP, SIDE * tokens / TOKENS);
        let variant = variant.constant("TILE_TOKENS", "t", tokens).constant("ROWS", "r", rows);
        let variant = variant.constant("SIDE", "", SIDE).constant("TILE_ROWS", "", SIDE * rows);
        let variant = product.files(self, variant, Operands::F32);
        let (grid, cost) = (product.grid(tokens, SIDE * rows), product.cost(tokens, SIDE * rows));
        self.computes(KERNEL.name, product.reference(Operands::F32));
        self.step_in_parts(label, variant, product.bindings(self), (grid, 0), cost)
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
