//! Matrices times the vectors of a chunk of tokens, by tiles in registers.

use super::experts_mm;
use super::matmul::{Operands, TILE_TOKENS, TileProduct, TileRows, TileVectors, products};
use super::matvec::{self, columns_for, gated, wide};
use super::mul_mm_matrix::bound;
use super::{Case, CaseBuilder, Kernel};
use crate::error::Result;
use crate::gpu::Matrices;
use crate::plan::{Batch, Builder, PART_FIELDS, Target, VariantBuilder, Weight};
use crate::quant::Quant;
use crate::wgsl::{Source, source};

const OP: Source = source!("op/mul_mm.wgsl");
/// Tokens that an invocation multiplies with its rows.
const TOKENS: usize = 4;
/// Tiles that occupy a large GPU, of a chunk of so many tokens: others take the same tiles, and so no pipelines of their
/// own.
const MANY_TILES: usize = 128;
const MANY_TOKENS: usize = 512;
/// Invocations side by side along the rows.
const LANES: usize = 16;

pub(super) const KERNEL: Kernel =
    Kernel { name: "mul_mm", op: OP, params: PART_FIELDS, matrices: &[], several: false, cases: by_registers };

impl Builder {
    /// y {rows, n} = w · x for every token, for w {columns, rows, n} and x {columns, n}: matrix *i* times vector *i*.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn mul_mm(&mut self, label: &str, w: &Weight, x: &Batch) -> Result<Batch> {
        let y = self.batch(label, [w.shape[1], w.shape[2]], x.tokens);
        self.mul_mm_into(label, w, x, &y)?;
        Ok(y)
    }

    /// As [`Builder::mul_mm`], into a batch that is there.
    ///
    /// # Errors
    /// As [`Builder::mul_mm`].
    pub fn mul_mm_into(&mut self, label: &str, w: &Weight, x: &Batch, y: &Batch) -> Result<()> {
        self.matmul(label, &TileProduct { rows: TileRows::One { w, add: false }, vectors: TileVectors::Chunk, x, y })
    }

    /// y {rows, n} += w · x for every token: a product that joins the residual stream.
    ///
    /// # Errors
    /// As [`Builder::mul_mm`].
    pub fn mul_mm_add(&mut self, label: &str, w: &Weight, x: &Batch, y: &Batch) -> Result<()> {
        self.matmul(label, &TileProduct { rows: TileRows::One { w, add: true }, vectors: TileVectors::Chunk, x, y })
    }

    /// y {rows} = silu(gate · x) · (up · x) for every token, for gate and up {columns, rows} and x {columns}.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn gate_up_mm(&mut self, label: &str, gate: &Weight, up: &Weight, x: &Batch) -> Result<Batch> {
        let y = self.batch(label, [gate.shape[1], gate.shape[2]], x.tokens);
        self.matmul(label, &TileProduct { rows: TileRows::Gated { gate, up }, vectors: TileVectors::Chunk, x, y: &y })?;
        Ok(y)
    }

    /// Appends a product.
    pub(super) fn matmul(&mut self, label: &str, product: &TileProduct<'_>) -> Result<()> {
        if let Some(tile) = self.matrix_tile(product) {
            return self.matmul_by_matrices(label, product, tile);
        }
        product.check(KERNEL.name)?;
        let (tokens, rows) = tile_of(product);
        let variant = VariantBuilder::new(KERNEL.name, OP, LANES * tokens / TOKENS);
        let variant = variant.constant("TILE_TOKENS", "t", tokens).constant("ROWS", "r", rows);
        let variant = product.files(self, variant, Operands::F32);
        let (grid, cost) = (product.grid(tokens, LANES * rows), product.cost(tokens, LANES * rows));
        self.computes(KERNEL.name, product.reference(Operands::F32));
        self.step_in_parts(label, variant, product.bindings(self), (grid, 0), cost)
    }
}

/// Tokens of a product's tiles and rows of an invocation: as many as there are, but so few that the tiles occupy a
/// large GPU.
fn tile_of(product: &TileProduct<'_>) -> (usize, usize) {
    let most = product.most_vectors().next_multiple_of(LANES).min(TILE_TOKENS);
    if let TileVectors::Slots { .. } = product.vectors {
        return (most, 4);
    }
    let tiles = |tokens: usize, rows: usize| {
        MANY_TOKENS / tokens * product.rows.first().shape[2] * product.rows.staged().div_ceil(LANES * rows)
    };
    let suits = |&(tokens, rows): &(usize, usize)| tokens <= most && tiles(tokens, rows) >= MANY_TILES;
    [(TILE_TOKENS, 4), (32, 4), (16, 4)].into_iter().find(suits).unwrap_or((most.min(16), 2))
}

fn by_registers(target: Target) -> Result<Vec<Case>> {
    cases(Target { matrices: Matrices::None, ..target })
}

pub(super) fn cases(target: Target) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    let shapes = [
        ([96, 70, 1], (80, 67), false),
        ([160, 33, 2], (16, 16), false),
        ([70, 64, 3], (7, 5), false),
        ([64, 130, 1], (130, 129), true),
    ];
    for (quant, (shape, tokens, add)) in matvec::in_turn(&shapes) {
        cases.push(case(target, quant, shape, tokens, add)?);
    }
    for (gate, up) in matvec::pairs(1) {
        cases.push(gated_case(target, gate, up)?);
    }
    cases.extend(experts_mm::cases(target)?);
    Ok(cases)
}

pub(super) fn case(
    target: Target,
    quant: &'static Quant,
    [columns, rows, stacks]: [usize; 3],
    (tokens, count): (usize, usize),
    add: bool,
) -> Result<Case> {
    let shape = [columns_for(quant, columns), rows, stacks];
    let mut case = CaseBuilder::for_chunk(target, 1, tokens);
    case.chunk(9, count);
    let (w, ws) = case.weight("w", quant, shape)?;
    let (x, xs) = case.batch("x", [shape[0], stacks], tokens, count);
    let (y, before) = case.batch("y", [rows, stacks], tokens, count);
    case.plan.matmul(
        "product",
        &TileProduct { rows: TileRows::One { w: &w, add }, vectors: TileVectors::Chunk, x: &x, y: &y },
    )?;
    let before = before.into_iter().map(|v| if add { v as f64 } else { 0.0 });
    let both = products(&ws, shape, &wide(&xs)).into_iter().zip(before);
    let (want, sizes) = both.map(|((sum, size), before)| (sum + before, size + before.abs())).unzip();
    case.expect_batch(&y, want, sizes, bound(target, &[quant]));
    let how = if add { " added" } else { "" };
    Ok(case.finish(format!("{} {}x{rows}x{stacks} {count} of {tokens} tokens{how}", quant.name, shape[0])))
}

pub(super) fn gated_case(target: Target, gate_quant: &'static Quant, up_quant: &'static Quant) -> Result<Case> {
    let (tokens, count) = (40, 35);
    let shape = [columns_for(up_quant, columns_for(gate_quant, 45)), 43, 1];
    let mut case = CaseBuilder::for_chunk(target, 1, tokens);
    case.chunk(9, count);
    let (gate, gates) = case.weight("gate", gate_quant, shape)?;
    let (up, ups) = case.weight("up", up_quant, shape)?;
    let (x, xs) = case.batch("x", [shape[0], 1], tokens, count);
    let y = case.plan.gate_up_mm("y", &gate, &up, &x)?;
    let both = products(&gates, shape, &wide(&xs)).into_iter().zip(products(&ups, shape, &wide(&xs)));
    let (want, sizes) = both.map(|(gate, up)| gated(gate, up)).unzip();
    case.expect_batch(&y, want, sizes, bound(target, &[gate_quant, up_quant]));
    Ok(case.finish(format!("{} and {} {}x43, {count} of {tokens} tokens", gate_quant.name, up_quant.name, shape[0])))
}
