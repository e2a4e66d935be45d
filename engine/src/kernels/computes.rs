//! What a step computes, as plain data that is independent of its shader.
//!
//! The builder's method that appends a step records one of these structs with it (`Builder::computes`). The module
//! `reference` implements [`Reference`](crate::plan::Reference) for them, which recomputes some of the step's outputs
//! on the CPU. The structs include the largest allowed error, which follows from the types that a kernel multiplies in.

use super::draft_input::HiddenStates;
use super::{AttentionSplits, Cache, Groups, Norm, Rounded, Routing, Slices, Summands};
use crate::plan::{BufferRef, LocalId, Tensor, Weight};
use crate::quant::Arithmetic;
use std::ops::Range;

/// The results of attention's splits, for `heads` heads of every row.
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

/// y {rank, heads} of every row: the results of the splits, merged.
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
    /// The result: outputs {rank, heads}, or the results of splits.
    pub y: Attended,
    /// The largest error of outputs of about 1, and of scores.
    pub bound: f64,
    /// The factor that the kernel multiplies weights with, which the sums of weights contain too.
    pub unit: f64,
}

/// The keys and values of those KV rows of a segment that the batch attends to.
pub(crate) struct ExpandedKv {
    /// {nope, rank, heads}.
    pub k_b: Weight,
    /// {rank, value width, heads}.
    pub v_b: Weight,
    pub cache: Cache,
    /// For each head and KV row its key and its value, f16.
    pub to: BufferRef,
    pub rows: Range<usize>,
    /// The largest error before a value is rounded to f16, relative to the sum of its terms' magnitudes.
    pub bound: f64,
}

/// Attention of every row's heads over the KV rows up to its own, after one more segment of these. Rows are computed in
/// groups, and the outputs of a group are complete after the segment that contains its last row's KV row.
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
    /// The number of rows in a group.
    pub together: usize,
    /// The largest error of outputs of about 1.
    pub bound: f64,
}

/// Where attention writes its result.
pub(crate) enum Attended {
    Whole(Tensor),
    Splits(Merged),
}

/// The last `rotary` values of every query, rotated, become the last values of y.
#[derive(Clone, Copy)]
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

/// The vectors that a product multiplies.
pub(crate) enum Operand {
    /// The vectors of a tensor.
    Vectors(ProductInput),
    /// The heads' outputs of attention, merged from its splits.
    Merged(Merged, Arithmetic),
}

/// Vectors of a tensor, and what the product does to them before it multiplies them.
pub(crate) struct ProductInput {
    pub x: Tensor,
    pub norm: Option<Norm>,
    /// The rounded vectors that are read instead.
    pub rounded: Option<Rounded>,
    /// Whether floats or bytes are multiplied.
    pub arithmetic: Arithmetic,
    /// Whether they are rounded to the nearest f16.
    pub halves: bool,
}

impl ProductInput {
    /// The unchanged vectors.
    pub fn plain(x: Tensor) -> Self {
        Self { x, norm: None, rounded: None, arithmetic: Arithmetic::Float, halves: false }
    }
}

/// The largest errors of products.
#[derive(Clone, Copy)]
pub(crate) struct Errors {
    /// Of sums in f32, relative to the sum of the terms' magnitudes.
    pub sum: f64,
    /// Whether weights are rounded to f16 before they are multiplied.
    pub halves: bool,
}

impl Errors {
    /// For weights in f32.
    pub fn of_sums(sum: f64) -> Self {
        Self { sum, halves: false }
    }
}

/// What a product computes from the sums of a row.
pub(crate) enum Terms {
    /// w · x, which replaces the output or is added to it.
    One { w: Weight, add: bool },
    /// silu(gate · x) · (up · x), in the range of f16 if `limit_to_f16`.
    Gated { gate: Weight, up: Weight, limit_to_f16: bool },
}

/// Which matrix of a stack a vector is multiplied by.
pub(crate) enum MatrixSelection {
    /// Vector *i*, counted over all rows, times matrix *i* modulo the number of matrices.
    InTurn,
    /// The matrix of the slot's expert, with slots grouped by expert: the order of the slots, and the `count` tiles
    /// that they are divided into.
    Grouped { slots: BufferRef, tiles: BufferRef, count: usize },
    /// The matrix of the expert that the router selects; the output is multiplied by the expert's weight.
    SelectedExperts(SelectedExperts),
    /// The matrix of the expert that an earlier step selected; the output is multiplied by the expert's weight. Both
    /// buffers are {`top_k`, rows}.
    Routed { ids: BufferRef, weights: BufferRef, top_k: usize },
}

impl MatrixSelection {
    pub fn of(groups: &Groups) -> Self {
        Self::Grouped { slots: groups.slots.buffer, tiles: groups.tiles.buffer, count: groups.tiles.shape[1] }
    }
}

/// What a step writes in addition to its output: the output rounded to bytes, after multiplication with the weights
/// of the following norm if there is one.
pub(crate) struct SideOutput {
    pub rounded: Rounded,
    pub norm: Option<Weight>,
}

/// A product: y {rows, stacks} of every row of the batch.
pub(crate) struct Product {
    pub terms: Terms,
    pub x: Operand,
    pub selection: MatrixSelection,
    pub y: Tensor,
    /// The index of the first computed vector of a row, and their number.
    pub stacks: (usize, usize),
    pub side_output: Option<SideOutput>,
    pub errors: Errors,
}

/// The parts of a product that remain to be summed, each over a part of the columns.
pub(crate) struct PartialProduct {
    /// The weight, or gate and up, which alternate every `side` rows.
    pub weights: Vec<Weight>,
    pub side: usize,
    pub x: Operand,
    pub parts: Summands,
    /// The number of groups that a workgroup multiplies at a time. All of them belong to one part.
    pub step: usize,
    pub errors: Errors,
}

/// y = the sum of the parts, or += that, or silu(gate) · up with gate and up alternating every `side` values of it.
pub(crate) struct Summed {
    pub parts: Summands,
    pub y: Tensor,
    pub side: Option<usize>,
    pub add: bool,
    /// Whether silu(gate) · up is limited to the range of f16.
    pub limit_to_f16: bool,
}

/// x = the sum of the parts, or += it and Σ weight · y over the slots of a row; h = x under the norm.
pub(crate) struct SumNormed {
    pub parts: Summands,
    pub x: Tensor,
    pub add: bool,
    /// The weights {`top_k`} of every row, without padding, and y {n, slots}, whose last slots they are for.
    pub slots: Option<(Tensor, Tensor)>,
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
    pub side_output: Option<SideOutput>,
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
    /// Their weights, if the step writes them.
    pub weights: Option<BufferRef>,
}

/// Slots ordered by expert, and the tiles that they are divided into.
pub(crate) struct Grouped {
    /// {`top_k`, tokens}, u32.
    pub ids: Tensor,
    pub experts: usize,
    /// The number of tiles for the shared experts. If there are any, the first slot of each token is theirs.
    pub shared_tiles: usize,
    pub slots: BufferRef,
    pub tiles: BufferRef,
    pub places: usize,
    /// The capacity in tiles.
    pub room: usize,
}

impl Grouped {
    pub fn new(ids: Tensor, experts: usize, groups: &Groups) -> Self {
        let Groups { slots, tiles, places, shared_tiles, .. } = groups;
        Self {
            ids,
            experts,
            shared_tiles: *shared_tiles,
            slots: slots.buffer,
            tiles: tiles.buffer,
            places: *places,
            room: groups.tiles(),
        }
    }
}

/// The largest logit of each slice.
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

/// A histogram of how far logits are below the largest one, and of how much less their tokens weigh than tokens at the
/// starts of their bins.
pub(crate) struct Histogram {
    pub logits: Tensor,
    pub histogram: BufferRef,
}

/// The next token.
pub(crate) struct Drawn {
    pub logits: Tensor,
}

/// For each sequence, how many drafts equal the sampled tokens, and the token sampled after the last of these.
pub(crate) struct Accepted;

/// Ring buffers of hidden states {width}, one for each sequence, by position: see [`KEPT_ROWS`](super::KEPT_ROWS).
#[derive(Debug, Clone, Copy)]
pub struct Kept {
    /// The buffer.
    pub buffer: BufferRef,
    /// The number of values of a hidden state.
    pub width: usize,
}

/// The ring buffer's entries at the rows' positions plus `ahead` = x, normalised.
pub(crate) struct KeptHidden {
    pub x: Tensor,
    pub norm: Norm,
    pub ring: Kept,
    pub ahead: usize,
}

/// y = for each row its ring buffer's entry at its position plus `ahead`.
pub(crate) struct PickedHidden {
    pub ring: Kept,
    pub y: Tensor,
    pub ahead: usize,
}

/// y = for each row the embedding, normalised, followed by the hidden state, normalised with another norm.
pub(crate) struct DraftInput {
    pub embedding: Tensor,
    pub hidden: HiddenStates,
    pub norms: [Norm; 2],
    pub y: Tensor,
}

/// The batch of the next drafts = for each sequence a row of its candidates.
pub(crate) struct Advanced {
    pub candidates: BufferRef,
    /// The number of splits of attention.
    pub splits: usize,
}

/// The likeliest token of each row, appended to the drafts of its sequence.
pub(crate) struct Drafted {
    pub maxima: Tensor,
}

/// Logits with bias and penalties.
pub(crate) struct Adjusted {
    pub logits: Tensor,
    /// [`Adjustment`]s of all rows.
    pub adjustments: LocalId,
}

/// masked = logits where the mask of the row has a one, and minus infinity elsewhere.
pub(crate) struct Masked {
    pub logits: Tensor,
    pub masked: Tensor,
    /// One bit for each token of each row.
    pub mask: LocalId,
}

/// y = the tokens' rows of the embedding.
pub(crate) struct EmbeddingRows {
    pub embedding: Weight,
    pub y: Tensor,
    /// Whether these are the rows' next tokens.
    pub next: bool,
}

/// y = x, normalised vector by vector.
pub(crate) struct Normed {
    pub x: Tensor,
    pub y: Tensor,
    pub norm: Norm,
    pub side_output: Option<SideOutput>,
}

/// y = the first values of x.
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

/// Pair `place` of `sums` += the checksums of some words of a buffer.
pub(crate) struct WordSums {
    pub words: BufferRef,
    pub range: Range<usize>,
    pub sums: BufferRef,
    pub place: usize,
}
