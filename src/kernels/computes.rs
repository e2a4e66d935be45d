//! What a step computes, as plain data that says nothing of its shader.
//!
//! The builder's method that appends a step records one of these structs with it (`Builder::computes`). The module
//! `reference` implements [`Reference`](crate::plan::Reference) for them, and so computes some of the step's outputs
//! again on the CPU. How large an error may be is a part of what is computed: it follows from the types a kernel
//! multiplies in.

use super::{AttentionSplits, Cache, Groups, Norm, Rounded, Routing, Slices};
use crate::plan::{BufferRef, Tensor, Weight};
use crate::quant::Arithmetic;

/// What the splits of attention left, of `heads` heads of every token.
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

/// y {rank, heads} of every token: the splits joined.
pub(crate) struct Merge {
    pub parts: Merged,
    pub y: Tensor,
}

/// Attention of every token's heads over the tokens up to its own.
pub(crate) struct Attention {
    /// Absorbed queries {rank + rotary, heads} of every token.
    pub q: Tensor,
    pub cache: Cache,
    pub scale: f32,
    /// What is left: the outputs {rank, heads}, or those of splits.
    pub y: Attended,
    /// Of values of about 1, and of scores.
    pub bound: f64,
    /// What weights are multiplied with.
    pub unit: f64,
}

/// What attention leaves.
pub(crate) enum Attended {
    Whole(Tensor),
    Splits(Merged),
}

/// The last `rotary` values of every query, rotated, as the last ones of y.
pub(crate) struct RotatedQueries {
    /// Queries {nope + rotary, heads} of every token.
    pub q: Tensor,
    pub y: Tensor,
    pub rotary: usize,
}

/// The tokens' KV rows in the cache.
pub(crate) struct KvRows {
    /// {rank + rotary, tokens}.
    pub kv: Tensor,
    pub norm: Norm,
    pub cache: Cache,
}

/// What a product multiplies with.
pub(crate) enum Operand {
    /// Vectors.
    Vectors(Seen),
    /// The heads' attention, from what its splits left.
    Merged(Merged, Arithmetic),
}

/// Vectors, and what is done to them first.
pub(crate) struct Seen {
    pub x: Tensor,
    pub norm: Option<Norm>,
    /// What is read in their place.
    pub rounded: Option<Rounded>,
    /// In what is multiplied.
    pub arithmetic: Arithmetic,
    /// The largest magnitude that operands hold.
    pub most: f64,
}

impl Seen {
    /// Vectors as they are.
    pub fn plain(x: Tensor) -> Self {
        Self { x, norm: None, rounded: None, arithmetic: Arithmetic::Float, most: f64::INFINITY }
    }
}

/// What errors of products are bounded by.
#[derive(Clone, Copy)]
pub(crate) struct Errors {
    /// As a part of the sum of their terms' magnitudes.
    pub sum: f64,
    /// As a part of the root of the sum of their squares: of terms that are rounded each by itself.
    pub terms: f64,
}

impl Errors {
    /// Of sums in f32.
    pub fn of_sums(bound: f64) -> Self {
        Self { sum: SLACK * bound, terms: 0.0 }
    }

    /// Of operands that are rounded to f16, each within 2^-11: eight standard deviations, and more than one term can be
    /// off by; and as much as the kernel's cases allow, for a weight may be the difference of two that are rounded.
    pub fn of_halves() -> Self {
        Self { sum: 4e-4, terms: 8.0 * 4e-4 }
    }
}

/// What becomes of a row's products.
pub(crate) enum Terms {
    /// w · x, or that onto what is there.
    One { w: Weight, add: bool },
    /// silu(gate · x) · (up · x).
    Gated { gate: Weight, up: Weight },
}

/// Which matrix of a stack a vector meets.
pub(crate) enum Which {
    /// The vectors of all tokens meet the matrices in rotation.
    InTurn,
    /// That of the expert whose slot it is: slots by expert, and the tiles they are cut into, so many.
    Grouped { slots: BufferRef, tiles: BufferRef, count: usize },
    /// That of the router's choice, whose weight the output is multiplied with.
    SelectedExperts(SelectedExperts),
}

impl Which {
    pub fn of(groups: &Groups) -> Self {
        Self::Grouped { slots: groups.slots.buffer, tiles: groups.tiles.buffer, count: groups.tiles.shape[1] }
    }
}

/// What a product leaves besides its output: the output rounded, times the weights of a norm if one follows.
pub(crate) struct Left {
    pub rounded: Rounded,
    pub norm: Option<Weight>,
}

/// A product: y {rows, stacks} of every token.
pub(crate) struct Product {
    pub terms: Terms,
    pub x: Operand,
    pub which: Which,
    pub y: Tensor,
    /// The first vector of a token's that is computed, and how many are.
    pub stacks: (usize, usize),
    pub left: Option<Left>,
    pub errors: Errors,
}

/// The second half of a mixture of experts: x += Σ w[id] · y of the chosen, + shared · y of the last.
pub(crate) struct Down {
    pub w: Weight,
    pub shared: Weight,
    /// The chosen experts {`top_k`, tokens}, u32.
    pub ids: BufferRef,
    pub top_k: usize,
    pub hidden: Operand,
    pub x: Tensor,
    pub left: Option<Left>,
    pub errors: Errors,
}

/// The router's choice of experts for every token.
#[derive(Clone)]
pub(crate) struct SelectedExperts {
    /// The router's logits {experts, tokens}.
    pub logits: Tensor,
    pub bias: Weight,
    pub routing: Routing,
    /// The chosen {`top_k`, tokens}, u32.
    pub ids: BufferRef,
    /// Their weights, where they are left.
    pub weights: Option<BufferRef>,
}

/// Slots in order of their experts, and the tiles they are cut into.
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

/// How many tokens lie how far below the likeliest, and what they lack.
pub(crate) struct Histogram {
    pub logits: Tensor,
    pub histogram: BufferRef,
}

/// The next token.
pub(crate) struct Drawn {
    pub logits: Tensor,
    /// A [`Sampling`].
    pub sampling: BufferRef,
}

/// Logits with bias and penalties.
pub(crate) struct Adjusted {
    pub logits: Tensor,
    /// [`Penalties`], and behind them [`Adjustment`]s.
    pub adjustments: usize,
}

/// y = the rows of the embedding that the tokens name.
pub(crate) struct EmbeddingRows {
    pub embedding: Weight,
    pub y: Tensor,
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

/// y = x of the last token.
pub(crate) struct LastToken {
    pub x: Tensor,
    pub y: Tensor,
}

/// x += Σ weight · y of the slots of every token.
pub(crate) struct WeightedSum {
    /// {slots, tokens}, without padding.
    pub weights: BufferRef,
    pub y: Tensor,
    pub x: Tensor,
}

/// How much more than the cases' bounds an error may be: the values of a model are less even than noise, and one term may
/// outweigh all others of a sum.
pub(crate) const SLACK: f64 = 4.0;
