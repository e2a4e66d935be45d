//! Products by tiles that several workgroups share, each for a part of the columns, and the sums of their parts.
//!
//! A product of few rows has few tiles: with one workgroup each, which computes all columns, most of a large GPU would
//! be idle.
//!
//! The step that adds the parts does more in the same dispatch: it applies the following norm, adds the outputs of
//! experts (`sum_normed`), writes KV rows (`kv_write`) or selects experts (`route`).

use super::computes::{PartialProduct, Product, Summed};
use super::matmul::{HALF_RANGE, Operands, SIDE, TileProduct, TileRows, TileVectors};
use super::mul_mm::Tile;
use super::{Kernel, params};
use crate::error::Result;
use crate::plan::{Bound, Builder, Cost, Tensor, VariantBuilder};
use crate::wgsl::{Source, source};

const OP: Source = source!("op/sum_parts.wgsl");
const WORKGROUP: usize = 64;

/// The number of subgroups that occupies a large GPU: four on each of its cores. With many rows, twice as many pay off.
const MANY_SUBGROUPS: usize = 512;
/// The maximum number of workgroups that share a tile, and the minimum number of steps of columns for each of them.
const MAX_PARTS: usize = 16;
const MIN_STEPS: usize = 2;
/// From this many steps of columns on, sharing a tile pays off despite the time for the sum.
const MANY_STEPS: usize = 16;
/// The maximum number of rows in a small batch. The number of workgroups that share a tile depends only on whether a
/// batch is small or large, so that batches of all sizes share pipelines.
const FEW_ROWS: usize = 128;
const FEW: usize = 64;
const MANY: usize = 512;

params! { chunks: u32, staged: u32, stacks: u32, parts: u32, y_stride: u32, y_pitch: u32 }

pub(crate) const KERNEL: Kernel = Kernel { name: "sum_parts", op: OP, params: Params::FIELDS, matrices: &[] };

/// Vectors, or several parts of them that remain to be summed.
#[derive(Debug, Clone, Copy)]
pub struct Summands {
    /// The first part.
    pub tensor: Tensor,
    /// The number of parts.
    pub parts: usize,
    /// The number of values from one part of a row to the next.
    pub apart: usize,
    /// The index in the buffer of the first part's first value.
    pub first: usize,
}

impl From<Tensor> for Summands {
    fn from(tensor: Tensor) -> Self {
        Self { tensor, parts: 1, apart: 0, first: 0 }
    }
}

impl Builder {
    /// How many workgroups share a tile of a product. Without matrices only products of weights in f32 (the router)
    /// share tiles, always among the same number, so that the results do not depend on the size of the batch. With
    /// matrices of 16 x 16, batches of up to FEW_ROWS rows are rounded differently from larger ones. With those of 8 x
    /// 8, tiles are not shared.
    pub(super) fn sharing(&self, product: &TileProduct<'_>, tile: Tile) -> usize {
        let by_matrices = match tile {
            Tile::Matrices(tile) if tile.side == 8 => return 1,
            Tile::Matrices(_) => true,
            Tile::Registers(_) => false,
        };
        let y = product.y;
        let whole = [y.shape[0], y.stride, y.pitch].into_iter().all(|length| length.is_multiple_of(4));
        let wide = product.exceeds_half();
        let steps = product.rows.first().groups() / tile.groups();
        if !whole || steps < MANY_STEPS || !matches!(product.vectors, TileVectors::Batch) || !(by_matrices || wide) {
            return 1;
        }
        let (vectors, rows) = tile.size();
        let [_, blocks, stacks] = product.grid(vectors, rows);
        let few = y.rows.min(self.rows_alone()) <= FEW_ROWS || !by_matrices;
        let (batch, wanted) = if few { (FEW, MANY_SUBGROUPS) } else { (MANY, 2 * MANY_SUBGROUPS) };
        let occupied = batch.div_ceil(vectors) * blocks * stacks * tile.subgroups();
        (wanted / occupied.max(1)).min(steps / MIN_STEPS).clamp(1, MAX_PARTS)
    }

    /// A buffer for the parts of a product, in whole tiles. Products whose parts are summed in the next step share it.
    pub(super) fn parts_of(&mut self, name: &str, product: &TileProduct<'_>, tile: Tile, parts: usize) -> Summands {
        let (vectors, rows) = tile.size();
        let (staged, stacks, tokens) = (product.staged(), product.y.per_row(), product.x.rows);
        let stride = staged.next_multiple_of(rows);
        let apart = stride * stacks;
        let room = self.tensor_with_stride(name, [stride, stacks * parts * tokens.next_multiple_of(vectors)], stride);
        let tensor = Tensor { shape: [staged, stacks * tokens], rows: tokens, pitch: apart * parts, ..room };
        Summands { tensor, parts, apart, first: 0 }
    }

    /// A binding of the parts as `name`.
    pub(super) fn bound_summands(&self, name: &str, parts: &Summands) -> Bound {
        let (whole, offset) = (self.bound(name, parts.tensor.buffer), 4 * parts.first as u64);
        Bound { offset, bytes: whole.bytes - offset, ..whole }
    }

    /// States what the next step of a product computes.
    pub(super) fn computes_product(
        &mut self,
        kernel: &'static str,
        product: &TileProduct<'_>,
        operands: Operands,
        (parts, step): (Option<&Summands>, usize),
    ) {
        let products = product.reference(self, operands);
        let Some(parts) = parts else { return self.computes(kernel, (products, product.rotated)) };
        let of_weights = |rows: &TileRows<'_>, products: Product, parts| {
            let weights = rows.roles().into_iter().map(|(_, weight)| weight.clone()).collect();
            let Product { x, errors, .. } = products;
            PartialProduct { weights, side: SIDE, x, parts, step, errors }
        };
        let (first, second) = product.split(parts);
        let other = product.other.as_ref().zip(products.1).zip(second);
        let other = other.map(|((rows, products), parts)| of_weights(rows, products, parts));
        self.computes(kernel, (of_weights(&product.rows, products.0, first), other));
    }

    /// Appends the sum of a product's parts.
    pub(super) fn sum_parts(&mut self, label: &str, product: &TileProduct<'_>, parts: &Summands) -> Result<()> {
        let (y, stacks) = (product.y, product.y.per_row());
        let (gated, add) = match product.rows {
            TileRows::One { add, .. } => (false, add),
            TileRows::Gated { .. } => (true, false),
        };
        let limit_to_f16 = gated && self.multiplies_halves();
        let variant = VariantBuilder::new(KERNEL.name, OP, WORKGROUP)
            .constant("SIDE", "", SIDE)
            .switch("GATED", "g", gated)
            .switch("ACCUMULATE", "a", add)
            .switch("LIMIT_TO_F16", "h", limit_to_f16)
            .file(HALF_RANGE)
            .file(source!("lib/activations.wgsl"));
        let variant = self.batch_files(variant);
        let mut bindings = vec![self.bound_batch()];
        bindings.extend([self.bound_summands("parts", parts), self.bound("y", y.buffer)]);
        let chunks = y.shape[0] / 4;
        let params = Params {
            chunks: chunks as u32,
            staged: (parts.tensor.stride / 4) as u32,
            stacks: stacks as u32,
            parts: parts.parts as u32,
            y_stride: (y.stride / 4) as u32,
            y_pitch: (y.pitch / 4) as u32,
        };
        let cost = Cost::of_activations(parts.bytes() + if add { 2 } else { 1 } * y.bytes());
        let side = gated.then_some(SIDE);
        self.computes(KERNEL.name, Summed { parts: *parts, y: *y, side, add, limit_to_f16 });
        self.step(label, variant, bindings, &params, [chunks.div_ceil(WORKGROUP), y.rows, stacks], cost)
    }
}

impl TileProduct<'_> {
    /// The parts of the product, and those of the product with the other weight if the step computes both.
    pub(super) fn split(&self, parts: &Summands) -> (Summands, Option<Summands>) {
        let Some(other) = &self.other else { return (*parts, None) };
        let of = |rows: &TileRows<'_>, first| {
            let tensor = Tensor { shape: [rows.staged(), parts.tensor.rows], ..parts.tensor };
            Summands { tensor, first, ..*parts }
        };
        (of(&self.rows, 0), Some(of(other, parts.tensor.stride)))
    }
}

impl Summands {
    /// The size in bytes of all parts.
    pub(super) fn bytes(&self) -> u64 {
        self.parts as u64 * self.tensor.shape.into_iter().product::<usize>() as u64 * 4
    }
}
