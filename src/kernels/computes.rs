//! What a step computes, as plain data that says nothing of its shader.
//!
//! The builder's method that appends a step records one of these structs with it (`Builder::computes`). The module
//! `reference` implements [`Reference`](crate::plan::Reference) for them, and so computes some of the step's outputs
//! again on the CPU. How large an error may be is a part of what is computed: it follows from the types a kernel
//! multiplies in.

use super::draft_input::HiddenStates;
use super::{AttentionSplits, Cache, Groups, Norm, Rounded, Routing, Slices, Summands};
use crate::plan::{BufferRef, LocalId, Tensor, Weight};
use crate::quant::Arithmetic;
use std::ops::Range;

/// What the splits of attention left, for `heads` heads of every row.
#[derive(Clone, Copy)]
pub(crate) struct Merged {
    pub sums: BufferRef,
    pub stats: BufferRef,
    pub rank: usize,
    pub splits: usize,
    pub heads: usize,
}

impl From<&AttentionSplits> for Merged {
    fn from(parts: &AttentionSplits) -> Self {
        let AttentionSplits { sums, stats, splits, heads } = parts;
        Self { sums: sums.buffer, stats: stats.buffer, rank: sums.shape[0], splits: *splits, heads: *heads }
    }
}

/// y {rank, heads} of every row: what the splits left, joined.
pub(crate) struct Merge {
    pub parts: Merged,
    pub y: Tensor,
}

/// Attention of every row's heads over the KV rows up to its own.
pub(crate) struct Attention {
    /// Absorbed queries {rank + rotary, heads} of every row.
    pub q: Tensor,
    pub cache: Cache,
    pub scale: f32,
    /// Where the result is: outputs {rank, heads}, or what splits leave of them.
    pub y: Attended,
    /// The largest error of outputs of about 1, and of scores.
    pub bound: f64,
    /// What the kernel multiplies weights with, which the sums of weights then contain.
    pub unit: f64,
}

/// The keys and values of some KV rows, as far as the batch attends to them.
pub(crate) struct ExpandedKv {
    /// {nope, rank, heads}.
    pub k_b: Weight,
    /// {rank, value width, heads}.
    pub v_b: Weight,
    pub cache: Cache,
    /// For each head and KV row its key and its value, f16.
    pub to: BufferRef,
    pub rows: Range<usize>,
}

/// Attention of every row's heads over the KV rows up to its own, up to the end of a segment of these. It is done for rows
/// of which the last that is computed with them sees none behind that segment.
pub(crate) struct ExpandedAttention {
    /// Queries {nope + rotary, heads} of every row, and their rotary parts, rotated.
    pub q: Tensor,
    pub rotated: Tensor,
    pub k_b: Weight,
    pub v_b: Weight,
    pub cache: Cache,
    pub scale: f32,
    /// The outputs {value width, heads}.
    pub y: Tensor,
    /// The KV rows of the segment.
    pub segment: Range<usize>,
    /// How many rows are computed together.
    pub together: usize,
    /// The largest error of outputs of about 1.
    pub bound: f64,
}

/// Where attention leaves its result.
pub(crate) enum Attended {
    Whole(Tensor),
    Splits(Merged),
}

/// The last `rotary` values of every query, rotated, become the last values of y.
pub(crate) struct RotatedQueries {
    /// Queries {nope + rotary, heads} of every row.
    pub q: Tensor,
    pub y: Tensor,
    pub rotary: usize,
}

/// The KV rows of a batch, written to the cache.
pub(crate) struct KvRows {
    /// {rank + rotary, tokens}.
    pub kv: Summands,
    pub norm: Norm,
    pub cache: Cache,
}

/// The vectors that a product multiplies with.
pub(crate) enum Operand {
    /// Those of a tensor.
    Vectors(Seen),
    /// The heads' outputs of attention, joined from what its splits left.
    Merged(Merged, Arithmetic),
}

/// Vectors of a tensor, and what the product does to them before it multiplies.
pub(crate) struct Seen {
    pub x: Tensor,
    pub norm: Option<Norm>,
    /// The rounded vectors that are read in their place.
    pub rounded: Option<Rounded>,
    /// Whether floats or bytes are multiplied.
    pub arithmetic: Arithmetic,
    /// The largest magnitude that the operands can hold; larger values count as that.
    pub most: f64,
}

impl Seen {
    /// The vectors as they are.
    pub fn plain(x: Tensor) -> Self {
        Self { x, norm: None, rounded: None, arithmetic: Arithmetic::Float, most: f64::INFINITY }
    }
}

/// The largest errors of products.
#[derive(Clone, Copy)]
pub(crate) struct Errors {
    /// As a part of the sum of their terms' magnitudes.
    pub sum: f64,
    /// As a part of the root of the sum of their squares, where each term is rounded by itself.
    pub terms: f64,
}

impl Errors {
    /// For sums in f32.
    pub fn of_sums(bound: f64) -> Self {
        Self { sum: SLACK * bound, terms: 0.0 }
    }

    /// Of operands that are rounded to f16, each within 2^-11: eight standard deviations, and more than one term can be
    /// off by; and as much as the kernel's cases allow, for a weight may be the difference of two that are rounded.
    pub fn of_halves() -> Self {
        Self { sum: 4e-4, terms: 8.0 * 4e-4 }
    }
}

/// What a product computes of the sums of a row.
pub(crate) enum Terms {
    /// w · x, which replaces what is there or is added to it.
    One { w: Weight, add: bool },
    /// silu(gate · x) · (up · x).
    Gated { gate: Weight, up: Weight },
}

/// Which matrix of a stack a vector is multiplied with.
pub(crate) enum Which {
    /// Vector *i*, counted over all rows, with matrix *i* modulo the number of matrices.
    InTurn,
    /// That of the expert whose slot it is, where slots are grouped by expert: the order of slots, and the tiles that they
    /// are divided into, of which there are `count`.
    Grouped { slots: BufferRef, tiles: BufferRef, count: usize },
    /// That of the expert that the router selects; the output is multiplied with the expert's weight.
    SelectedExperts(SelectedExperts),
    /// That of the expert that an earlier step selected; the output is multiplied with the expert's weight. Both {`top_k`,
    /// rows}.
    Routed { ids: BufferRef, weights: BufferRef, top_k: usize },
}

impl Which {
    pub fn of(groups: &Groups) -> Self {
        Self::Grouped { slots: groups.slots.buffer, tiles: groups.tiles.buffer, count: groups.tiles.shape[1] }
    }
}

/// What a product leaves besides its output: the output, times the weights of the norm that follows if there is one,
/// rounded to bytes.
pub(crate) struct Left {
    pub rounded: Rounded,
    pub norm: Option<Weight>,
}

/// A product: y {rows, stacks} of every row of the batch.
pub(crate) struct Product {
    pub terms: Terms,
    pub x: Operand,
    pub which: Which,
    pub y: Tensor,
    /// Which of a row's vectors are computed: the first, and how many.
    pub stacks: (usize, usize),
    pub left: Option<Left>,
    pub errors: Errors,
}

/// The parts of a product that are still to be added up, each of a part of the columns.
pub(crate) struct PartialProduct {
    /// The weight, or gate and up, of which `side` rows lie by turns.
    pub weights: Vec<Weight>,
    pub side: usize,
    pub x: Operand,
    pub parts: Summands,
    /// Groups that a workgroup multiplies at a time, all of them with one part.
    pub step: usize,
    pub errors: Errors,
}

/// y = the sum of the parts, or += it, or silu(gate) · up of it where `side` values of gate and of up lie by turns.
pub(crate) struct Summed {
    pub parts: Summands,
    pub y: Tensor,
    pub side: Option<usize>,
    pub add: bool,
}

/// x = the sum of the parts, or += it and Σ weight · y over the slots of a row; h = x under the norm.
pub(crate) struct SumNormed {
    pub parts: Summands,
    pub x: Tensor,
    pub add: bool,
    /// The weights {slots} of every row, without padding, and y {n, slots}.
    pub slots: Option<(BufferRef, Tensor)>,
    pub norm: Norm,
    pub h: Tensor,
}

/// The second half of a mixture of experts: x += Σ w[id] · y over the selected experts + shared · the last y.
pub(crate) struct Down {
    pub w: Weight,
    pub shared: Weight,
    /// The selected experts {`top_k`, rows}, u32.
    pub ids: BufferRef,
    pub top_k: usize,
    pub hidden: Operand,
    pub x: Tensor,
    pub left: Option<Left>,
    pub errors: Errors,
}

/// The experts that the router selects for every row.
#[derive(Clone)]
pub(crate) struct SelectedExperts {
    /// The router's logits {experts, rows}.
    pub logits: Summands,
    pub bias: Weight,
    pub routing: Routing,
    /// The selected experts {`top_k`, rows}, u32.
    pub ids: BufferRef,
    /// Their weights, if the step leaves them.
    pub weights: Option<BufferRef>,
}

/// Slots in order of their experts, and the tiles that they are divided into.
pub(crate) struct Grouped {
    /// {`top_k`, tokens}, u32.
    pub ids: Tensor,
    pub experts: usize,
    pub slots: BufferRef,
    pub tiles: BufferRef,
    pub places: usize,
    /// Tiles there is room for.
    pub room: usize,
}

impl Grouped {
    pub fn new(ids: Tensor, experts: usize, groups: &Groups) -> Self {
        let Groups { slots, tiles, places } = groups;
        Self { ids, experts, slots: slots.buffer, tiles: tiles.buffer, places: *places, room: tiles.shape[1] }
    }
}

/// The largest of each slice of the logits.
pub(crate) struct Maxima {
    pub logits: Tensor,
    pub maxima: BufferRef,
    pub histogram: BufferRef,
}

impl Maxima {
    pub fn new(logits: &Tensor, slices: &Slices) -> Self {
        Self { logits: *logits, maxima: slices.maxima.buffer, histogram: slices.histogram.buffer }
    }
}

/// A histogram of how far tokens lie below the likeliest one, and of what they weigh less than their bins' starts.
pub(crate) struct Histogram {
    pub logits: Tensor,
    pub histogram: BufferRef,
}

/// The next token.
pub(crate) struct Drawn {
    pub logits: Tensor,
    /// Rotary angles of a row.
    pub pairs: usize,
}

/// How many drafts are what was sampled, and what is sampled after the last of them.
pub(crate) struct Accepted {
    /// Rotary angles of a row.
    pub pairs: usize,
}

/// A ring of hidden states {width} at their positions: see [`KEPT_ROWS`](super::KEPT_ROWS).
#[derive(Debug, Clone, Copy)]
pub struct Kept {
    /// Where it is.
    pub buffer: BufferRef,
    /// Values of a hidden state.
    pub width: usize,
}

/// The places of the ring `behind` those of the rows' positions = x under a norm.
pub(crate) struct KeptHidden {
    pub x: Tensor,
    pub norm: Norm,
    pub ring: Kept,
    pub ahead: usize,
    /// Rotary angles of a row.
    pub pairs: usize,
}

/// y = the place of the ring `behind` that of the row's position.
pub(crate) struct PickedHidden {
    pub ring: Kept,
    pub y: Tensor,
    pub ahead: usize,
    /// Rotary angles of a row.
    pub pairs: usize,
}

/// y = the embeddings under their norm and, behind each, the hidden state of the same row under its own.
pub(crate) struct DraftInput {
    pub embedding: Tensor,
    pub hidden: HiddenStates,
    pub norms: [Norm; 2],
    pub y: Tensor,
    /// Rotary angles of a row.
    pub pairs: usize,
}

/// The batch of the next draft = a row of the candidates.
pub(crate) struct Advanced {
    pub candidates: BufferRef,
    /// Rotary angles of a row.
    pub pairs: usize,
}

/// The likeliest token joins the drafts.
pub(crate) struct Drafted {
    pub maxima: Tensor,
    /// Rotary angles of a row.
    pub pairs: usize,
}

/// Logits with bias and penalties.
pub(crate) struct Adjusted {
    pub logits: Tensor,
    /// [`Adjustment`]s of all rows.
    pub adjustments: LocalId,
    /// Rotary angles of a row.
    pub pairs: usize,
}

/// masked = logits where the mask of the row has a one, and minus infinity elsewhere.
pub(crate) struct Masked {
    pub logits: Tensor,
    pub masked: Tensor,
    /// Of each row a bit a token.
    pub mask: LocalId,
}

/// y = the rows of the embedding that the tokens name.
pub(crate) struct EmbeddingRows {
    pub embedding: Weight,
    pub y: Tensor,
    /// Whether it is the tokens that follow those of the rows.
    pub next: bool,
    /// Rotary angles of a row.
    pub pairs: usize,
}

/// y = x under a norm, vector by vector.
pub(crate) struct Normed {
    pub x: Tensor,
    pub y: Tensor,
    pub weight: Weight,
    pub epsilon: f32,
}

/// y = x, from the first value on.
pub(crate) struct Copied {
    pub x: Tensor,
    pub y: Tensor,
}

/// y = x of the last row.
pub(crate) struct LastToken {
    pub x: Tensor,
    pub y: Tensor,
}

/// x += Σ weight · y over the slots of every row.
pub(crate) struct WeightedSum {
    /// {slots, tokens}, without padding.
    pub weights: BufferRef,
    pub y: Tensor,
    pub x: Tensor,
}

/// How much more than the cases' bounds an error may be: the values of a model are less even than noise, and one term may
/// outweigh all others of a sum.
pub const SLACK: f64 = 4.0;
