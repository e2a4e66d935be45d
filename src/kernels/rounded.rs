//! Outputs that a product leaves rounded to bytes, so that the product that follows has nothing to stage.

use super::matvec::{self, Feed, HALF, Input, MatvecProduct, Norm, columns_for, dot, seen};
use super::reference::Left;
use super::{CaseBuilder, rms_norm};
use crate::error::Result;
use crate::plan::{Bound, BufferRef, Builder, Team, Tensor, VariantBuilder};
use crate::quant::{Arithmetic, Family, GROUP, QUANTS};
use crate::wgsl::source;

/// Vectors as `wgsl/lib/input_rounded.wgsl` reads them: bytes with a scale for 16 values, and the sums of squares.
#[derive(Debug, Clone, Copy)]
pub struct Rounded {
    pub(super) buffer: BufferRef,
    /// Words of all vectors.
    words: usize,
    /// Of vectors with squares, words from one's start to the next's, and from there to its squares, one for half a
    /// group. Others lie as their values do.
    pitch: usize,
    squares: usize,
}

/// Words of a group: its bytes, two scales, two sums.
pub(super) const WORDS: usize = 12;

/// The residual stream {width}.
#[derive(Debug, Clone, Copy)]
pub struct Residual {
    /// Its values.
    pub x: Tensor,
    /// The same under the norm that follows, if the step that left it rounded them.
    pub rounded: Option<Rounded>,
}

/// Where what is left of half a group stands.
pub(super) struct RoundedPlace {
    /// Its first byte.
    pub byte: usize,
    /// The word of its scale.
    pub scale: usize,
}

impl Rounded {
    /// Of the half that begins at a row of a vector, which itself begins at value `value` of the output.
    pub(super) fn place_of(&self, vector: usize, value: usize, row: usize) -> RoundedPlace {
        let at = if self.squares > 0 { row } else { value + row };
        let group = vector * self.pitch + WORDS * (at / GROUP);
        RoundedPlace { byte: 4 * group + at / HALF % 2 * HALF, scale: group + 8 + at / HALF % 2 }
    }

    /// The first word of a vector, of those that lie `stride` values apart.
    pub(super) fn start_of(&self, vector: usize, stride: usize) -> usize {
        if self.squares > 0 { vector * self.pitch } else { WORDS * (vector * stride / GROUP) }
    }

    /// The word of the first square of a vector.
    pub(super) fn squares_of(&self, vector: usize) -> usize {
        vector * self.pitch + self.squares
    }
}

impl From<Tensor> for Residual {
    fn from(x: Tensor) -> Self {
        Self { x, rounded: None }
    }
}

/// What a product leaves besides its output.
#[derive(Clone, Copy, Default)]
pub(super) struct Epilogue<'a> {
    /// The output rounded.
    pub rounded: Option<Rounded>,
    /// The norm whose weights it is multiplied with before.
    pub norm: Option<&'a Norm>,
}

impl Builder {
    /// Room for `y` rounded, as a product that follows may want it: where products are of bytes, and whole halves of
    /// groups are the work of one workgroup.
    pub(super) fn rounded(&mut self, y: &Tensor, label: &str) -> Option<Rounded> {
        let [values, vectors] = y.shape;
        let words = WORDS * (y.stride * (vectors - 1) + values).div_ceil(GROUP);
        self.rounded_in(y, label, Rounded { buffer: y.buffer, words, pitch: 0, squares: 0 })
    }

    /// The same for a norm that follows: with room behind each vector for its squares, four at a time.
    fn rounded_for_norm(&mut self, y: &Tensor, label: &str) -> Option<Rounded> {
        let squares = WORDS * y.stride.div_ceil(GROUP);
        let pitch = squares + (2 * y.shape[0].div_ceil(GROUP)).next_multiple_of(4);
        self.rounded_in(y, label, Rounded { buffer: y.buffer, words: y.shape[1] * pitch, pitch, squares })
    }

    fn rounded_in(&mut self, y: &Tensor, label: &str, rounded: Rounded) -> Option<Rounded> {
        let target = self.target();
        let wanted = target.arithmetic == Arithmetic::Int && target.fusions.round && target.team == Team::Subgroup;
        let whole = y.shape[0].is_multiple_of(HALF) && y.stride.is_multiple_of(HALF);
        if !wanted || !whole {
            return None;
        }
        let buffer = self.tensor(&format!("{label}.rounded"), [rounded.words, 1]).buffer;
        Some(Rounded { buffer, ..rounded })
    }

    /// What a product leaves of `x` for the norm that follows.
    pub(super) fn epilogue_for<'a>(&mut self, x: &Tensor, label: &str, next: &'a Norm) -> Epilogue<'a> {
        let rounded = if self.target().fusions.norm { self.rounded_for_norm(x, label) } else { None };
        Epilogue { rounded, norm: Some(next) }
    }
}

impl Epilogue<'_> {
    /// Rows that a workgroup takes a multiple of.
    pub fn unit(&self) -> usize {
        if self.rounded.is_some() { HALF } else { 1 }
    }

    /// The files that leave it.
    pub fn files(&self, variant: VariantBuilder) -> VariantBuilder {
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

    /// What is left besides the output, for the CPU.
    pub fn left(&self) -> Option<Left> {
        Some(Left { rounded: self.rounded?, norm: self.norm.map(|norm| norm.weight.clone()) })
    }

    /// Its buffers, bound.
    pub fn bindings(&self, plan: &Builder) -> Vec<Bound> {
        let Some(rounded) = self.rounded else { return vec![] };
        let norm = self.norm.map(|norm| plan.bound("next_norm", norm.weight.buffer()));
        norm.into_iter().chain([plan.bound("rounded_output", rounded.buffer)]).collect()
    }
}

impl MatvecProduct<'_> {
    /// The input as the step before left it rounded, if that is how this product takes it.
    pub(super) fn rounded_input(&self, plan: &Builder) -> Option<(&Input, Rounded)> {
        let (Feed::Input(input) | Feed::Slots(input)) = &self.feed else { return None };
        let whole = input.tensor.shape[1] == 1 || input.tensor.stride.is_multiple_of(GROUP);
        Some((*input, input.rounded?)).filter(|_| whole && self.arithmetic(plan) == Arithmetic::Int)
    }

    /// The files that read such an input.
    pub(super) fn rounded_files(&self, variant: VariantBuilder, input: &Input, rounded: Rounded) -> VariantBuilder {
        let apart = if rounded.squares > 0 { rounded.pitch } else { WORDS * (input.tensor.stride / GROUP) };
        let width = input.norm.as_ref().map_or(1, |norm| norm.weight.shape[0]);
        let epsilon = input.norm.as_ref().map_or(0.0, |norm| norm.epsilon);
        let groups = match self.feed {
            Feed::Slots(_) => source!("lib/groups_of_slots.wgsl"),
            _ => source!("lib/groups_in_row.wgsl"),
        };
        variant
            .tag("b")
            .switch("NORMED", "n", input.norm.is_some())
            .constant("WIDTH", "", width)
            .real("EPSILON", "e", epsilon)
            .constant("INPUT_PITCH", "", apart / 4)
            .constant("INPUT_SQUARES", "", rounded.squares / 4)
            .file(groups)
            .file(source!("lib/input_rounded.wgsl"))
    }
}

impl CaseBuilder {
    /// Lets a product read what a step left rounded, if it did: it is right if that product is. `values` are those of
    /// the input's vectors, without padding and under its norm.
    pub(super) fn probe(&mut self, input: &Input, values: &[f64]) -> Result<()> {
        let Some(rounded) = input.rounded else { return Ok(()) };
        let Some(&quant) = QUANTS.iter().find(|quant| quant.family == Family::Affine) else { return Ok(()) };
        let [length, vectors] = input.tensor.shape;
        let columns = columns_for(quant, length); // behind a vector are zeros
        let shape = [columns, 3, vectors];
        let (w, ws) = self.weight("probe", quant, shape)?;
        let padded = Input { tensor: Tensor { shape: [columns, vectors], ..input.tensor }, ..input.clone() };
        let y = self.plan.mul_mv("probe", &w, &padded)?;
        let xs: Vec<Vec<f64>> = values.chunks(length).map(|x| seen(x, length, &[quant], Arithmetic::Int)).collect();
        let products = xs.iter().enumerate().flat_map(|(i, x)| (0..shape[1]).map(move |row| (i, row, x)));
        let (want, sizes) = products.map(|(i, row, x)| dot(&ws, shape, i, row, x)).unzip();
        self.fill_bytes(rounded.buffer, vec![0; 4 * rounded.words]); // as the engine's are from the start
        self.expect(&y, want, sizes, (2.0 * matvec::bound(Arithmetic::Int)).max(flips(length)));
        self.allow(rounded.buffer);
        Ok(())
    }

    /// As [`CaseBuilder::probe`], for a stream of these values on which a norm follows.
    pub(super) fn probe_stream(&mut self, stream: &Residual, next: &Norm, values: &[f64], norms: &[f32]) -> Result<()> {
        let input = self.plan.normed("norm", stream, next)?;
        let values: Vec<f32> = values.iter().map(|&v| v as f32).collect();
        self.probe(&input, &rms_norm::expected(&values, norms, next.epsilon))
    }

    /// A tensor as the step before may leave it: rounded as well, from values without padding.
    pub(super) fn rounded_input(&mut self, tensor: &Tensor, label: &str, values: &[f32]) -> Input {
        self.fill(tensor, values);
        let rounded = self.plan.rounded(tensor, label);
        if let Some(rounded) = rounded {
            let vectors = values.chunks(tensor.shape[0]);
            let padded = vectors.flat_map(|v| v.iter().copied().chain((v.len()..tensor.stride).map(|_| 0.0)));
            let padded: Vec<f32> = padded.collect();
            let words: Vec<u32> = padded.chunks(GROUP).flat_map(group_words).collect();
            self.fill_bytes(rounded.buffer, bytemuck::cast_slice(&words).to_vec());
        }
        Input { tensor: *tensor, norm: None, rounded }
    }
}

/// What four values of a few, rounded the other way, move a product by. Values that are sums of rounded ones are far
/// enough from the twin's for that, and one of few weighs more: 1/127 of the largest against a third of it each.
fn flips(length: usize) -> f64 {
    4.0 * 3.0 / (127.0 * length as f64)
}

/// A group as the steps on the GPU leave it.
fn group_words(group: &[f32]) -> Vec<u32> {
    let mut words = vec![0; WORDS];
    for (side, half) in group.chunks(HALF).enumerate() {
        let top = half.iter().fold(0f32, |top, v| top.max(v.abs()));
        let (scale, inverse) = if top > 0.0 { (top / 127.0, 127.0 / top) } else { (0.0, 0.0) };
        let bytes: Vec<i8> = half.iter().map(|v| (v * inverse).round_ties_even() as i8).collect();
        for (word, four) in words[4 * side..].iter_mut().zip(bytes.chunks(4)) {
            *word = four.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte as u8));
        }
        let sum = scale * bytes.iter().map(|&byte| i32::from(byte)).sum::<i32>() as f32;
        (words[8 + side], words[10 + side]) = (scale.to_bits(), sum.to_bits());
    }
    words
}
