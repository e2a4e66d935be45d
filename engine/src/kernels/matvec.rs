//! What the matrix-vector kernels share. Each multiplies the rows of one or several matrices with vectors. A workgroup
//! stages the vectors in its memory, or its lanes read them directly. Each of its teams of lanes computes rows, and
//! each kernel uses the sums differently.

use super::errors::PRODUCT;
use super::rounded::{Epilogue, Rounded, WORDS};
use super::tiling::{ProductShape, tile};
use super::{Kernel, expect_multiple, expect_shape};
use super::{
    computes, computes::Errors, computes::MatrixSelection, computes::Merged, computes::Operand, computes::ProductInput,
    computes::Terms,
};
use crate::error::Result;
use crate::plan::{Bound, Builder, Cost, MAX_GRID, Tensor, Tiling, Tilings, VariantBuilder, Weight};
use crate::quant::{Arithmetic, GROUP, Quant};
use crate::wgsl::{Source, source};
use std::collections::HashSet;

/// A root mean square norm that the product after it applies.
#[derive(Clone)]
pub struct Norm {
    /// Its weights {columns}.
    pub weight: Weight,
    /// The number that is added to the mean square under the root.
    pub epsilon: f32,
}

/// The vectors that a product multiplies, and what it must do to them first.
#[derive(Clone)]
pub struct Input {
    /// The vectors.
    pub tensor: Tensor,
    /// The norm that the product applies to each vector, if there is one.
    pub norm: Option<Norm>,
    /// The same vectors times the norm's weights and rounded to bytes, if the previous step wrote these too.
    pub rounded: Option<Rounded>,
}

impl From<&Tensor> for Input {
    fn from(tensor: &Tensor) -> Self {
        Self { tensor: *tensor, norm: None, rounded: None }
    }
}

/// Where the workgroups of a product read their vectors.
pub(super) enum Feed<'a> {
    /// From the input.
    Input(&'a Input),
    /// From the splits of attention, which the given library file merges.
    Merged(Source, Merged),
}

/// A matrix-vector product that becomes a step.
pub(super) struct MatvecProduct<'a> {
    pub kernel: &'static Kernel,
    pub label: &'a str,
    /// The weights, each with its role: its name in the shader.
    pub roles: Vec<(&'static str, &'a Weight)>,
    pub feed: Feed<'a>,
    /// What the step writes in addition to its output.
    pub epilogue: Epilogue<'a>,
    /// The number of rows of one matrix, and of matrices or slots of a batch row, each of which has its own layer of
    /// the grid.
    pub rows: usize,
    pub layers: usize,
    /// The number of vectors that the same matrix is multiplied by. A team may take several of them at a time.
    pub together: usize,
    /// The number of vectors of the input that, with one more after them, form one long vector: those of a row's
    /// selected experts.
    pub slots: usize,
    /// The number of groups of 32 values that a workgroup stages, in one or several tiles.
    pub groups: usize,
    /// Whether the kernel relies on the barrier of staging, because after it the kernel reads workgroup memory that was
    /// written before it. If so, the input is always staged.
    pub needs_barrier: bool,
}

impl<'a> MatvecProduct<'a> {
    /// A product of the first matrix's rows with one vector at a time, which writes only its output.
    pub fn new<const N: usize>(
        kernel: &'static Kernel,
        label: &'a str,
        roles: [(&'static str, &'a Weight); N],
        feed: Feed<'a>,
    ) -> Self {
        let roles = roles.to_vec();
        let (rows, groups) = roles.first().map_or((0, 0), |(_, w)| (w.shape[1], w.groups()));
        Self {
            kernel,
            label,
            roles,
            feed,
            epilogue: Epilogue::default(),
            rows,
            layers: 1,
            together: 1,
            slots: 0,
            groups,
            needs_barrier: false,
        }
    }

    /// How the rows are divided among teams of lanes.
    pub fn tiling(&self, plan: &Builder) -> Tiling {
        let target = plan.target_for(self.kernel.name);
        let shape = ProductShape {
            rows: self.rows * self.layers,
            groups: self.groups,
            normed: self.norm().is_some(),
            arithmetic: self.arithmetic(plan),
            format: self.roles.first().map(|(_, weight)| weight.quant),
        };
        let tiling = Tiling::of(target, self.label, &shape, plan.rows());
        tiling.for_tokens(self.together).in_blocks_of(self.epilogue.unit(), target)
    }

    /// The norm that the product applies to its vectors.
    fn norm(&self) -> Option<&Norm> {
        let Feed::Input(input) = &self.feed else { return None };
        input.norm.as_ref()
    }

    /// Whether the product multiplies floats or bytes.
    pub fn arithmetic(&self, plan: &Builder) -> Arithmetic {
        let formats: Vec<&Quant> = self.roles.iter().map(|(_, weight)| weight.quant).collect();
        plan.target().arithmetic.with(&formats)
    }

    /// Whether lanes read floats directly from the input, without staging.
    pub fn direct(&self, plan: &Builder) -> bool {
        let apart = matches!(self.feed, Feed::Input(_)) && !self.needs_barrier;
        apart && self.arithmetic(plan) == Arithmetic::Float && self.tiling(plan).direct
    }

    /// The number of workgroups for a matrix of `rows` rows.
    pub fn blocks(&self, plan: &Builder, rows: usize) -> usize {
        rows.div_ceil(self.tiling(plan).block())
    }

    /// The shader up to the files that the kernel adds.
    pub fn variant(&self, plan: &Builder) -> VariantBuilder {
        let target = plan.target_for(self.kernel.name);
        let (tiling, arithmetic) = (self.tiling(plan), self.arithmetic(plan));
        let rounded = self.rounded_input(plan);
        let direct = self.direct(plan);
        let staged = rounded.is_none() && !direct;
        let tile = if staged { tile(target, arithmetic, self.groups, tiling.columns) } else { self.groups };
        let rounds = arithmetic == Arithmetic::Int || self.epilogue.rounded.is_some();
        let mut variant = VariantBuilder::new(self.kernel.name, self.kernel.op, tiling.workgroup)
            .constant("ROWS", "r", tiling.rows)
            .team_of_rows(target, tiling.lanes)
            .constant("COLUMNS", if tiling.columns > 1 { "by" } else { "" }, tiling.columns)
            .constant("X_STRIDE", if direct { "x" } else { "" }, self.x_stride(plan, direct))
            .constant("TILE", "", tile)
            .constant("INPUT_SLOTS", "", self.slots)
            .constant("SLOT_GROUPS", "", self.roles.first().map_or(1, |(_, w)| w.groups()))
            .constant("GRID_WIDTH", "", MAX_GRID as usize)
            .tagged(arithmetic.product_file());
        variant = plan.bits_files(variant, arithmetic);
        if rounds {
            variant = variant.constant("GROUP_WORDS", "", WORDS).file(source!("lib/rounding.wgsl"));
        }
        for (role, weight) in &self.roles {
            variant = variant
                .constant(&format!("{role}_GROUPS"), "g", weight.groups())
                .constant(&format!("{role}_ROWS"), "n", weight.shape[1])
                .constant(&format!("{role}_COLUMNS"), "", if weight.shape[2] == 1 { tiling.columns } else { 1 })
                .dot(role, weight.quant, arithmetic);
        }
        let variant = match (rounded, direct) {
            (Some(input), _) => self.rounded_files(variant, input, source!("lib/input_rounded.wgsl")),
            (None, true) => self.direct_files(variant),
            (None, false) => self.staged_files(variant.file(arithmetic.staged_file())),
        };
        self.epilogue.files(variant.file(source!("lib/blocks.wgsl")).file(source!("lib/matvec.wgsl")))
    }

    /// The number of vec4s from one vector to the next. If lanes read a single vector from memory it is 0, so that
    /// compilers know where the vector starts: otherwise the router took 5.1 us instead of 4.6 on an H100. With
    /// the tilings for Apple's GPUs, all of which read from memory, it is always that of several vectors, so that one
    /// row and a few rows share a pipeline.
    fn x_stride(&self, plan: &Builder, direct: bool) -> usize {
        let apart = direct && plan.target().tilings == Tilings::Nvidia;
        match &self.feed {
            Feed::Input(input) if apart && input.tensor.shape[1] == 1 => 0,
            Feed::Input(input) => input.tensor.stride / 4,
            Feed::Merged(..) => 0,
        }
    }

    /// Adds the files that lanes use to read the input from memory.
    fn direct_files(&self, variant: VariantBuilder) -> VariantBuilder {
        let variant = variant.tag("d").file(source!("lib/direct.wgsl"));
        match self.norm() {
            None => variant.file(source!("lib/direct_plain.wgsl")),
            Some(norm) => norm_constants(variant, norm).file(source!("lib/direct_normed.wgsl")),
        }
    }

    /// Adds the files that stage the input.
    fn staged_files(&self, variant: VariantBuilder) -> VariantBuilder {
        let variant = match &self.feed {
            Feed::Merged(file, _) => variant.file(*file),
            Feed::Input(Input { norm: None, .. }) => variant.file(source!("lib/input.wgsl")),
            Feed::Input(Input { norm: Some(norm), .. }) => {
                norm_constants(variant, norm).file(source!("lib/input_normed.wgsl"))
            }
        };
        variant.file(source!("lib/stage.wgsl"))
    }

    /// The bindings of the weights, of the input and of what the step writes in addition to its output.
    pub fn bindings(&self, plan: &Builder) -> Vec<Bound> {
        let weights = self.roles.iter().flat_map(|(role, weight)| plan.bound_weight(role, weight));
        let mut bindings: Vec<Bound> = weights.collect();
        if let Some((_, rounded)) = self.rounded_input(plan) {
            bindings.push(plan.bound("rounded_input", rounded.buffer));
        } else if let Feed::Input(input) = &self.feed {
            bindings.push(plan.bound("x", input.tensor.buffer));
            bindings.extend(input.norm.iter().map(|norm| plan.bound("norm", norm.weight.buffer())));
        }
        bindings.extend(self.epilogue.bindings(plan));
        bindings
    }

    /// The grid of `blocks` workgroups for each layer and vector. Blocks past the limit of one dimension continue in
    /// the second.
    pub fn grid(&self, plan: &Builder, blocks: usize) -> [usize; 3] {
        let width = MAX_GRID as usize;
        [blocks.min(width), blocks.div_ceil(width), self.layers * plan.rows() / self.tiling(plan).columns]
    }

    /// The vectors of the product, for the CPU reference.
    pub fn operand(&self, plan: &Builder) -> Operand {
        let arithmetic = self.arithmetic(plan);
        let input = match &self.feed {
            Feed::Input(input) => input,
            Feed::Merged(_, merged) => return Operand::Merged(*merged, arithmetic),
        };
        let rounded = self.rounded_input(plan).map(|(_, rounded)| rounded);
        let plain = ProductInput::plain(input.tensor);
        Operand::Vectors(ProductInput { norm: input.norm.clone(), rounded, arithmetic, ..plain })
    }

    /// What the step computes, for the CPU reference: y {rows, n}.
    pub fn reference(&self, plan: &Builder, terms: Terms, selection: MatrixSelection, y: &Tensor) -> computes::Product {
        let y = *y;
        let (x, side_output, errors) = (self.operand(plan), self.epilogue.side_output(), Errors::of_sums(PRODUCT));
        computes::Product { terms, x, selection, y, stacks: (0, y.per_row()), side_output, errors }
    }

    /// The cost of the step besides its weights: the bytes of the input, and `others`.
    pub fn cost(&self, others: u64) -> Cost {
        let x = match &self.feed {
            Feed::Input(input) => input.tensor.bytes(),
            Feed::Merged(..) => 0,
        };
        Cost::of_activations(x + others)
    }

    /// Fails unless the input is `vectors` vectors for matrices of `columns` columns.
    pub fn expect_input(&self, columns: usize, vectors: usize) -> Result<()> {
        let Feed::Input(input) = &self.feed else { return Ok(()) };
        let name = self.roles.first().map_or("", |(_, weight)| &weight.name);
        expect_shape(self.kernel.name, name, input.tensor.shape[0], columns)?;
        expect_shape(self.kernel.name, name, input.tensor.shape[1], vectors)?;
        expect_multiple(self.kernel.name, name, input.tensor.stride, 4)?;
        match &input.norm {
            Some(norm) => expect_shape(self.kernel.name, &norm.weight.name, norm.weight.shape[0], columns),
            None => Ok(()),
        }
    }
}

/// The number of storage buffers of a step's weights: their streams, and each grid once.
pub(super) fn buffers_of(weights: &[&Weight]) -> usize {
    let grids: HashSet<&str> = weights.iter().filter_map(|w| Some(w.quant.grid()?.buffer.name())).collect();
    weights.iter().map(|w| w.quant.streams.len()).sum::<usize>() + grids.len()
}

fn norm_constants(variant: VariantBuilder, norm: &Norm) -> VariantBuilder {
    variant.constant("WIDTH", "", norm.weight.shape[0]).real("EPSILON", "e", norm.epsilon)
}

/// The number of values that share a scale in a product of bytes.
pub(crate) const HALF: usize = GROUP / 2;
