//! Outputs that a step also writes rounded to bytes, so that the following product of bytes need not round and stage
//! them.

use super::Kernel;
use super::computes::SideOutput;
use super::matvec::{Feed, HALF, Input, MatvecProduct, Norm};
use crate::plan::{Bound, BufferRef, Builder, Team, Tensor, VariantBuilder};
use crate::quant::{Arithmetic, GROUP};
use crate::wgsl::{Source, source};

/// Vectors rounded to bytes, as `wgsl/lib/input_rounded.wgsl` reads them: a scale for every 16 values and their sum
/// and, if a norm is applied, sums of squares.
#[derive(Debug, Clone, Copy)]
pub struct Rounded {
    pub(crate) buffer: BufferRef,
    /// The number of words of all vectors.
    pub(crate) words: usize,
    /// With squares: the number of words from one vector to the next, and from a vector to its squares, one for every
    /// half group. Otherwise both are 0, and the layout of vectors is that of their values.
    pub(crate) pitch: usize,
    pub(crate) squares: usize,
}

/// The number of words of a group: 8 of bytes, two scales, two sums.
pub(crate) const WORDS: usize = 12;

/// The residual stream {width}.
#[derive(Debug, Clone, Copy)]
pub struct Residual {
    /// Its values.
    pub x: Tensor,
    /// The values times the weights of the following norm, rounded, if the step that wrote them did that.
    pub rounded: Option<Rounded>,
    /// The values normalised with the following norm, if the step that wrote them did that.
    pub normed: Option<Tensor>,
}

/// The location of half a group.
pub(crate) struct RoundedPlace {
    /// Its first byte.
    pub byte: usize,
    /// The word of its scale.
    pub scale: usize,
}

impl Rounded {
    /// The location of the half group that begins at row `row` of a vector; the vector begins at value `value` of the
    /// output.
    pub(crate) fn place_of(&self, vector: usize, value: usize, row: usize) -> RoundedPlace {
        let at = if self.squares > 0 { row } else { value + row };
        let group = vector * self.pitch + WORDS * (at / GROUP);
        RoundedPlace { byte: 4 * group + at / HALF % 2 * HALF, scale: group + 8 + at / HALF % 2 }
    }

    /// The first word of a vector, if the values of vectors begin `stride` apart.
    pub(crate) fn start_of(&self, vector: usize, stride: usize) -> usize {
        if self.squares > 0 { vector * self.pitch } else { WORDS * (vector * stride / GROUP) }
    }

    /// The word of the first square of a vector.
    pub(crate) fn squares_of(&self, vector: usize) -> usize {
        vector * self.pitch + self.squares
    }
}

impl From<Tensor> for Residual {
    fn from(x: Tensor) -> Self {
        Self { x, rounded: None, normed: None }
    }
}

/// What a step writes in addition to its output.
#[derive(Clone, Copy, Default)]
pub(crate) struct Epilogue<'a> {
    /// The rounded output.
    pub rounded: Option<Rounded>,
    /// The norm whose weights the output is multiplied by before it is rounded.
    pub norm: Option<&'a Norm>,
}

impl Builder {
    /// A buffer for the rounded `y`, if the following product can use it: products are of bytes, and a workgroup of the
    /// kernel `by`, which writes y, computes whole half groups of it.
    pub(crate) fn rounded(&mut self, by: &str, y: &Tensor, label: &str) -> Option<Rounded> {
        let [values, vectors] = y.shape;
        let words = WORDS * (y.stride * (vectors - 1) + values).div_ceil(GROUP);
        self.rounded_in(by, y, label, Rounded { buffer: y.buffer, words, pitch: 0, squares: 0 })
    }

    /// The same for a following norm, with space after each vector for the sums of squares, in multiples of four.
    pub(crate) fn rounded_for_norm(&mut self, by: &str, y: &Tensor, label: &str) -> Option<Rounded> {
        let squares = WORDS * y.stride.div_ceil(GROUP);
        let pitch = squares + (2 * y.shape[0].div_ceil(GROUP)).next_multiple_of(4);
        self.rounded_in(by, y, label, Rounded { buffer: y.buffer, words: y.shape[1] * pitch, pitch, squares })
    }

    /// Whether the kernel `by` writes its output rounded, where it computes whole half groups of it.
    pub(super) fn rounds(&self, by: &str) -> bool {
        let target = self.target_for(by);
        target.arithmetic == Arithmetic::Int && target.fusions.round && target.team == Team::Subgroup
    }

    fn rounded_in(&mut self, by: &str, y: &Tensor, label: &str, rounded: Rounded) -> Option<Rounded> {
        let whole = y.shape[0].is_multiple_of(HALF) && y.stride.is_multiple_of(HALF);
        if !self.rounds(by) || !whole {
            return None;
        }
        let buffer = self.tensor(&format!("{label}.rounded"), [rounded.words, 1]).buffer;
        Some(Rounded { buffer, ..rounded })
    }

    /// What a step of the kernel `by` writes in addition to `x` for the following norm `next`. The step binds `buffers`
    /// other buffers; if the device does not allow two more, it writes nothing in addition.
    pub(super) fn epilogue_for<'a>(
        &mut self,
        (by, buffers): (&Kernel, usize),
        x: &Tensor,
        label: &str,
        next: &'a Norm,
    ) -> Epilogue<'a> {
        let room = buffers + 2 <= self.target().buffers; // for the norm and the rounded output
        let rounded = if room && self.target().fusions.norm { self.rounded_for_norm(by.name, x, label) } else { None };
        Epilogue { rounded, norm: Some(next) }
    }
}

impl Epilogue<'_> {
    /// A workgroup must take a multiple of this many rows.
    pub fn unit(&self) -> usize {
        if self.rounded.is_some() { HALF } else { 1 }
    }

    /// The bytes of a workgroup's memory in which it keeps values and their squares, for `rows` rows of `columns`
    /// vectors.
    pub fn workgroup_bytes(&self, rows: usize, columns: usize) -> usize {
        let arrays = usize::from(self.rounded.is_some()) + usize::from(self.rounded.is_some() && self.norm.is_some());
        4 * arrays * rows * columns
    }

    /// Adds the files that write it.
    pub fn files(&self, variant: VariantBuilder) -> VariantBuilder {
        let variant = match self.rounded {
            Some(_) => variant.file(source!("lib/rounded_output.wgsl")),
            None => variant,
        };
        let half = source!("lib/epilogue_half.wgsl");
        match (self.rounded, self.norm) {
            (None, _) => variant.file(source!("lib/epilogue.wgsl")),
            (Some(_), None) => variant.tag("q").file(source!("lib/epilogue_rounded.wgsl")).file(half),
            (Some(rounded), Some(_)) => variant
                .tag("qn")
                .constant("OUTPUT_PITCH", "", rounded.pitch)
                .constant("OUTPUT_SQUARES", "", rounded.squares)
                .file(source!("lib/epilogue_normed.wgsl"))
                .file(half),
        }
    }

    /// What is written in addition to the output, for the CPU reference.
    pub fn side_output(&self) -> Option<SideOutput> {
        Some(SideOutput { rounded: self.rounded?, norm: self.norm.map(|norm| norm.weight.clone()) })
    }

    /// The bindings of its buffers.
    pub fn bindings(&self, plan: &Builder) -> Vec<Bound> {
        let Some(rounded) = self.rounded else { return vec![] };
        let norm = self.norm.map(|norm| plan.bound("next_norm", norm.weight.buffer()));
        norm.into_iter().chain([plan.bound("rounded_output", rounded.buffer)]).collect()
    }
}

impl MatvecProduct<'_> {
    /// The rounded input, if the previous step wrote it and this product multiplies bytes. A replaced kernel stages and
    /// rounds its input itself, as all kernels do without subgroup operations.
    pub(super) fn rounded_input(&self, plan: &Builder) -> Option<(&Input, Rounded)> {
        let Feed::Input(input) = &self.feed else { return None };
        let whole = input.tensor.shape[1] == 1 || input.tensor.stride.is_multiple_of(GROUP);
        let team = plan.target_for(self.kernel.name).team;
        let reads = whole && self.arithmetic(plan) == Arithmetic::Int && team == Team::Subgroup;
        Some((*input, input.rounded?)).filter(|_| reads)
    }

    /// Adds the constants of a rounded input, and the files that read it.
    pub(super) fn rounded_files(
        &self,
        variant: VariantBuilder,
        (input, rounded): (&Input, Rounded),
        reads: Source,
    ) -> VariantBuilder {
        let apart = if rounded.squares > 0 { rounded.pitch } else { WORDS * (input.tensor.stride / GROUP) };
        let width = input.norm.as_ref().map_or(1, |norm| norm.weight.shape[0]);
        let epsilon = input.norm.as_ref().map_or(0.0, |norm| norm.epsilon);
        variant
            .tag("b")
            .switch("NORMED", "n", input.norm.is_some())
            .constant("WIDTH", "", width)
            .real("EPSILON", "e", epsilon)
            .constant("INPUT_PITCH", "", apart / 4)
            .constant("INPUT_SQUARES", "", rounded.squares / 4)
            .file(reads)
            .file(source!("lib/rounded_norm.wgsl"))
    }
}
