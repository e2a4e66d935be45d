//! The tiles and the grid of products of matrices with the vectors of many rows of a batch.
//!
//! A workgroup computes a tile: some rows of a matrix times some vectors. The vectors are those of consecutive rows of
//! the batch (`lib/tile_batch.wgsl`) or of the slots of one expert (`lib/tile_experts.wgsl`). The rows are those of one
//! matrix (`lib/tile_rows.wgsl`), or of gate and up in alternation (`lib/tile_gated.wgsl`), so that one invocation has
//! the sums of both. A step can compute the tiles of two weights (`lib/two_weights.wgsl`). Two kernels multiply tiles:
//! `mul_mm` in f32, in registers, and `mul_mm_matrix` in f16, with cooperative matrices.

use super::computes::{self, Errors, MatrixSelection, Operand, ProductInput, RotatedQueries, Terms};
use super::errors::SUM;
use super::group_slots::Groups;
use super::sum_parts::Summands;
use super::{expect_most, expect_multiple, expect_shape};
use crate::error::Result;
use crate::gguf::Shape;
use crate::plan::{Bound, Builder, Cost, Tensor, VariantBuilder, Weight, read};
use crate::quant::Arithmetic;
use crate::wgsl::{Source, source};

/// The number of rows of a tile that `mul_mm` computes side by side. A tile of gate and up alternates between them
/// every SIDE rows, or half as many with cooperative matrices of 8 x 8.
pub(crate) const SIDE: usize = 16;
/// The maximum number of vectors in a tile.
pub(super) const TILE_TOKENS: usize = 64;

/// The largest error of a product in f32, relative to the sum of its terms' magnitudes.
pub(crate) const SUMS: f64 = SUM;
/// The largest value of f16. Kernels limit larger values to it.
pub(crate) const LARGEST_HALF: f64 = 65504.0;
/// The file that they use for this.
pub(super) const HALF_RANGE: Source = source!("lib/half_range.wgsl");

/// The rows of a tile, and what is computed from their products.
#[derive(Clone, Copy)]
pub(super) enum TileRows<'a> {
    /// Rows of one matrix: the products replace `y`, or are added to it.
    One { w: &'a Weight, add: bool },
    /// Rows of gate and of up, for silu(gate · x) · (up · x).
    Gated { gate: &'a Weight, up: &'a Weight },
}

/// The type that weights and vectors are multiplied in.
#[derive(Clone, Copy)]
pub(super) enum Operands {
    F32,
    F16,
}

/// The vectors of a tile.
#[derive(Clone, Copy)]
pub(super) enum TileVectors<'a> {
    /// Vectors of consecutive rows of the batch: vector *i* of a row is multiplied by matrix *i*.
    Batch,
    /// Vectors of one expert's slots, multiplied by that expert's matrix. The input has one vector for every `share`
    /// slots of a row.
    Slots { groups: &'a Groups, share: usize },
}

/// A product that becomes a step.
pub(super) struct TileProduct<'a> {
    pub rows: TileRows<'a>,
    /// The matrix, or pair, of another weight whose tiles the step also computes. In a product of slots, it is that of
    /// the shared experts. In a product of a batch, all vectors are multiplied by both weights, as if these were a
    /// stack of two matrices, and the products remain in parts.
    pub other: Option<TileRows<'a>>,
    /// Queries whose rotary parts the step also rotates. The product multiplies their first values, and the rotary
    /// parts are written after the products.
    pub rotated: Option<RotatedQueries>,
    pub vectors: TileVectors<'a>,
    pub x: &'a Tensor,
    pub y: &'a Tensor,
}

impl<'a> TileRows<'a> {
    /// The weights, each with its role: its name in the shader. Gate has the role of a single matrix.
    pub fn roles(&self) -> Vec<(&'static str, &'a Weight)> {
        match *self {
            Self::One { w, .. } => vec![("w", w)],
            Self::Gated { gate, up } => vec![("w", gate), ("w_up", up)],
        }
    }

    /// The weights, each with its role if they are the other weight of a product.
    fn other_roles(&self) -> Vec<(&'static str, &'a Weight)> {
        match *self {
            Self::One { w, .. } => vec![("w_other", w)],
            Self::Gated { gate, up } => vec![("w_other", gate), ("w_other_up", up)],
        }
    }

    /// The first weight. All have its shape.
    pub fn first(&self) -> &'a Weight {
        match *self {
            Self::One { w, .. } => w,
            Self::Gated { gate, .. } => gate,
        }
    }

    /// The number of staged rows: gate and up alternate every `SIDE` rows.
    pub fn staged(&self) -> usize {
        let rows = self.first().shape[1];
        match self {
            Self::One { .. } => rows,
            Self::Gated { .. } => 2 * rows.next_multiple_of(SIDE),
        }
    }

    /// The file that defines the rows of a tile, and, for each weight, those that stage its rows and multiply them.
    fn files(&self, operands: Operands) -> [Source; 4] {
        let rows = match self {
            Self::One { .. } => source!("lib/tile_rows.wgsl"),
            Self::Gated { .. } => source!("lib/tile_gated.wgsl"),
        };
        let stage = match (self, operands) {
            (Self::One { .. }, Operands::F32) => source!("lib/stage_decoded.wgsl"),
            (Self::One { .. }, Operands::F16) => source!("lib/stage_halved.wgsl"),
            (Self::Gated { .. }, Operands::F32) => source!("lib/stage_decoded_gated.wgsl"),
            (Self::Gated { .. }, Operands::F16) => source!("lib/stage_halved_gated.wgsl"),
        };
        let product = match operands {
            Operands::F32 => source!("lib/register_product.wgsl"),
            Operands::F16 => source!("lib/matrix_product.wgsl"),
        };
        [rows, source!("lib/staged_weight.wgsl"), stage, product]
    }

    /// Fails unless the weights have the same shape.
    pub fn check(&self, op: &'static str) -> Result<()> {
        let shape = |weight: &Weight| Shape(&weight.shape).to_string();
        let first = shape(self.first());
        self.roles()
            .into_iter()
            .try_for_each(|(_, weight)| expect_shape(op, &weight.name, shape(weight), first.clone()))
    }

    /// What is computed from the products, as the CPU reference needs it.
    fn terms(self, plan: &Builder) -> Terms {
        match self {
            Self::One { w, add } => Terms::One { w: w.clone(), add },
            Self::Gated { gate, up } => {
                Terms::Gated { gate: gate.clone(), up: up.clone(), limit_to_f16: plan.multiplies_halves() }
            }
        }
    }
}

impl<'a> TileProduct<'a> {
    /// A product with the vectors of a batch.
    pub fn of(rows: TileRows<'a>, x: &'a Tensor, y: &'a Tensor) -> Self {
        Self { rows, other: None, rotated: None, vectors: TileVectors::Batch, x, y }
    }

    /// The weights, each with its role: its name in the shader.
    pub fn roles(&self) -> Vec<(&'static str, &'a Weight)> {
        let other = self.other.iter().flat_map(TileRows::other_roles);
        self.rows.roles().into_iter().chain(other).collect()
    }

    /// Whether some weight has more bits than f16.
    pub fn exceeds_half(&self) -> bool {
        self.roles().iter().any(|(_, weight)| weight.quant.exceeds_half())
    }

    /// Fails unless weights, input and output fit together.
    pub fn check(&self, op: &'static str) -> Result<()> {
        let (w, x, y) = (self.rows.first(), self.x, self.y);
        let [columns, rows, matrices] = w.shape;
        let (inputs, outputs) = match self.vectors {
            TileVectors::Batch => (matrices, self.matrices()),
            TileVectors::Slots { groups, share } => {
                expect_most(op, "slots of a tile", groups.places, TILE_TOKENS)?;
                expect_shape(op, "slots of shared experts", groups.shared_tiles > 0, self.other.is_some())?;
                let slots = groups.slots.shape[0] / x.rows.max(1);
                (slots / share.max(1), slots)
            }
        };
        let shape = |values: usize, stacks: usize| Shape(&[values, stacks]).to_string();
        self.rows.check(op)?;
        if let Some(other) = &self.other {
            other.check(op)?;
            let w = other.first();
            let rows = if let TileVectors::Batch = self.vectors { w.shape[1] } else { rows };
            expect_shape(op, &w.name, Shape(&w.shape).to_string(), Shape(&[columns, rows, 1]).to_string())?;
        }
        let rows = self.largest(|rows| rows.first().shape[1]);
        expect_shape(op, &w.name, shape(x.shape[0], x.per_row()), shape(columns, inputs))?;
        expect_shape(op, &w.name, shape(y.shape[0], y.per_row()), shape(rows, outputs))?;
        expect_shape(op, &w.name, y.rows, x.rows)?;
        expect_multiple(op, &w.name, x.stride, 4)?;
        expect_multiple(op, &w.name, x.pitch, 4)
    }

    /// The number of matrices that vectors of the batch are multiplied by.
    fn matrices(&self) -> usize {
        self.rows.first().shape[2] + usize::from(self.other.is_some())
    }

    /// The larger value of the two weights.
    fn largest(&self, of: impl Fn(&TileRows<'a>) -> usize) -> usize {
        self.other.iter().map(&of).fold(of(&self.rows), usize::max)
    }

    /// The number of staged rows of a matrix; that of the larger one if there are two.
    pub fn staged(&self) -> usize {
        self.largest(TileRows::staged)
    }

    /// The number of tiles along the vectors, of `tokens` vectors each, and along the stack of matrices.
    pub fn tiles(&self, tokens: usize) -> (usize, usize) {
        match self.vectors {
            TileVectors::Batch => (self.x.rows.div_ceil(tokens), self.matrices().max(1)),
            TileVectors::Slots { groups, .. } => (groups.tiles(), 1),
        }
    }

    /// Adds the files and constants of the weights, of the vectors and of the output, for `blocks` blocks of rows.
    /// Workgroups that share a tile write their sums to `parts`.
    pub fn files(
        &self,
        plan: &Builder,
        variant: VariantBuilder,
        operands: Operands,
        blocks: usize,
        parts: Option<&Summands>,
    ) -> VariantBuilder {
        let mut variant = plan.bits_files(variant, Arithmetic::Float);
        for (role, weight) in self.roles() {
            let groups = if role.starts_with("w_other") { "" } else { "g" }; // as many for all
            variant = variant.constant(&format!("{role}_GROUPS"), groups, weight.groups()).constant(
                &format!("{role}_ROWS"),
                "n",
                weight.shape[1],
            );
            variant = match operands {
                Operands::F32 => variant.decode(role, weight.quant),
                Operands::F16 => variant.halve(role, weight.quant),
            };
        }
        let variant = match self.rows {
            TileRows::One { add, .. } => variant.switch("ACCUMULATE", "a", add),
            TileRows::Gated { .. } => {
                let limit_to_f16 = plan.multiplies_halves();
                variant.switch("LIMIT_TO_F16", "h", limit_to_f16).file(HALF_RANGE).file(source!("lib/activations.wgsl"))
            }
        };
        let variant = match self.vectors {
            TileVectors::Batch => plan.batch_files(variant).file(source!("lib/tile_batch.wgsl")),
            TileVectors::Slots { groups, share } => {
                let variant = variant.constant("INPUT_SHARE", "id", share).file(source!("lib/tile_experts.wgsl"));
                match groups.shared_tiles {
                    0 => variant.file(source!("lib/selected_experts.wgsl")),
                    _ => variant.constant("BLOCKS", "b", blocks).file(source!("lib/shared_experts.wgsl")),
                }
            }
        };
        let variant = match self.other {
            Some(_) => {
                variant.constant("MATRICES", "m", self.rows.first().shape[2]).file(source!("lib/two_weights.wgsl"))
            }
            None => variant.file(source!("lib/one_weight.wgsl")),
        };
        let variant = match self.rotated {
            Some(_) => variant
                .constant("NOPE", "", self.x.shape[0])
                .constant("ROW_BLOCKS", "rotated", blocks - 1)
                .file(source!("lib/rope.wgsl"))
                .file(source!("lib/extra_rotation.wgsl")),
            None => variant.file(source!("lib/extra_none.wgsl")),
        };
        let [rows, files @ ..] = self.rows.files(operands);
        let of_weights = ["w", "w_other"].into_iter().take(1 + usize::from(self.other.is_some()));
        let of_weights = of_weights.flat_map(|role| files.map(|file| (role, file)));
        let variant = of_weights.fold(variant, |variant, (role, file)| variant.file_for(role, file));
        let shares_vectors = matches!((self.vectors, self.other), (TileVectors::Batch, Some(_)));
        let y = parts.map_or(self.y, |parts| &parts.tensor);
        let count = parts.map_or(1, |parts| parts.parts);
        variant
            .constant("PARTS", if count > 1 { "c" } else { "" }, count)
            .constant("STACKS", "", self.tiles(1).1)
            .constant("X_STRIDE", "x", if shares_vectors { 0 } else { self.x.stride / 4 })
            .constant("X_PITCH", "x", self.x.pitch / 4)
            .constant("Y_STRIDE", "y", y.stride)
            .constant("Y_PITCH", "y", y.pitch)
            .file(rows)
    }

    /// The maximum number of vectors that a tile may have.
    pub fn most_vectors(&self, plan: &Builder) -> usize {
        match self.vectors {
            TileVectors::Batch => self.x.rows.min(plan.rows_alone()),
            TileVectors::Slots { groups, .. } => groups.places,
        }
    }

    /// Whether a tile of `vectors` vectors holds everything that is computed together: a whole group of slots.
    pub fn holds(&self, vectors: usize) -> bool {
        match self.vectors {
            TileVectors::Batch => true,
            TileVectors::Slots { groups, .. } => groups.places <= vectors,
        }
    }

    /// Whether tiles of `rows` rows write only their sums, and no tile has rows past the last.
    pub fn leaves_whole(&self, rows: usize) -> bool {
        let plain = matches!((self.rows, self.vectors), (TileRows::One { add: false, .. }, TileVectors::Batch));
        plain && self.staged().is_multiple_of(rows)
    }

    /// The bindings of the weights, the vectors and the tiles.
    pub fn bindings(&self, plan: &Builder, parts: Option<&Summands>) -> Vec<Bound> {
        let roles = self.roles();
        let mut bindings: Vec<Bound> = roles.iter().flat_map(|(role, w)| plan.bound_weight(role, w)).collect();
        bindings.extend([
            plan.bound("x", self.x.buffer),
            plan.bound("y", parts.map_or(self.y.buffer, |it| it.tensor.buffer)),
        ]);
        match self.vectors {
            TileVectors::Batch => bindings.push(plan.bound_batch()),
            TileVectors::Slots { groups, .. } => {
                let buffers = [("slots", groups.slots.buffer), ("tiles", groups.tiles.buffer)];
                bindings.extend(buffers.map(|(name, buffer)| plan.bound(name, buffer)));
            }
        }
        bindings
    }

    /// What the step computes, as the CPU reference needs it: the product with `rows`, and that with `other`.
    pub fn reference(&self, plan: &Builder, operands: Operands) -> (computes::Product, Option<computes::Product>) {
        let selection = match self.vectors {
            TileVectors::Batch => MatrixSelection::InTurn,
            TileVectors::Slots { groups, .. } => MatrixSelection::of(groups),
        };
        let halves = matches!(operands, Operands::F16);
        let product = |rows: TileRows<'_>, selection, stacks| computes::Product {
            terms: rows.terms(plan),
            x: Operand::Vectors(ProductInput { halves, ..ProductInput::plain(*self.x) }),
            selection,
            y: *self.y,
            stacks,
            side_output: None,
            errors: Errors { sum: SUMS, halves },
        };
        let first = usize::from(self.other.is_some()); // `other` has the first vectors
        let other = self.other.map(|other| product(other, MatrixSelection::InTurn, (0, first)));
        (product(self.rows, selection, (first, self.y.per_row() - first)), other)
    }

    /// The tiles of `vectors` vectors and `rows` staged rows: along the vectors, the rows and the stack.
    pub fn grid(&self, vectors: usize, rows: usize) -> [usize; 3] {
        let (columns, stacks) = self.tiles(vectors);
        [columns, self.staged().div_ceil(rows), stacks]
    }

    /// The grid of workgroups, if several share a tile and write parts, and with those that rotate.
    pub fn shared_grid(&self, (vectors, rows): (usize, usize), parts: Option<&Summands>) -> [usize; 3] {
        let [columns, blocks, stacks] = self.grid(vectors, rows);
        [columns, blocks + usize::from(self.rotated.is_some()), stacks * parts.map_or(1, |parts| parts.parts)]
    }

    /// The cost of such tiles. Neighbouring tiles share rows of weights, which are read once; the vectors are read
    /// again for each block of rows.
    pub fn cost(&self, vectors: usize, rows: usize) -> Cost {
        let [columns, blocks, stacks] = self.grid(vectors, rows);
        let values = 32 * self.rows.first().groups() * columns * vectors * blocks * rows * stacks;
        let x = stacks as u64 * read(self.x.bytes() / stacks as u64, blocks);
        let touched = if let TileRows::One { add: true, .. } = self.rows { 2 } else { 1 };
        let rotated = self.rotated.map_or(0, |rotated| 8 * (rotated.rotary * rotated.q.shape[1]) as u64);
        let activations = x + touched * self.y.bytes() + rotated;
        let of_all = |(_, weight): &(_, &Weight)| weight.matrix_bytes() * weight.shape[2] as u64;
        let weights = self.roles().iter().map(of_all).sum();
        Cost { weights, activations, flops: 2 * values as u64, ..Cost::default() }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::plan::Target;
    use crate::quant::F32;

    #[test]
    fn tiles_of_more_slots_than_a_product_takes_are_refused() {
        let mut plan = Builder::for_rows(&Target::default(), 1, 40);
        let w = plan.weight("w", &F32, [64, 32, 6]);
        let x = plan.tensor("x", [64, 2 * 40]);
        let ids = plan.tensor_with_stride("ids", [2, 40], 2);
        for (places, fits) in [(TILE_TOKENS, true), (TILE_TOKENS + 16, false)] {
            let groups = plan.group_slots("groups", &ids, (6, false), places).unwrap();
            assert_eq!(plan.mul_mm_id("product", &w, None, &groups, &x).is_ok(), fits, "{places}");
        }
    }
}
