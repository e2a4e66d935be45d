//! How far the functions that kernels call may be off, and what follows for outputs: what bounds are made of.
//!
//! Metal compiles with fast math, where its specification allows these errors (Metal Shading Language Specification 4.1,
//! section 8.4, table 8.2; Vulkan's table "Precision of core SPIR-V instructions" asks for the same). Sums and products are
//! rounded correctly by all, but in any order. `tests/metal/cases.rs` runs every kernel with functions that err by all of
//! this, in either direction.

use super::{Gating, Routing};

/// A unit in the last place of an f32, as a part of the value at most.
const ULP: f64 = f32::EPSILON as f64;
/// The error of a sum, a difference or a product.
pub(crate) const ROUNDED: f64 = ULP / 2.0;
/// Of x / y, and of 1 / x.
pub(crate) const QUOTIENT: f64 = 2.5 * ULP;
const RECIPROCAL: f64 = ULP;
/// Of 1 / sqrt(x).
const INVERSE_ROOT: f64 = 2.0 * ULP;

/// Of a sum of up to some thousands of terms, which lanes share, as a part of the sum of the terms' magnitudes: seventeen
/// roundings of all of it.
pub(crate) const SUM: f64 = 17.0 * ROUNDED;

/// Of a value under a norm, x · weight / sqrt(mean(x²) + epsilon): the root's, half of its argument's, two products.
pub(crate) const NORMED: f64 = INVERSE_ROOT + (SUM + QUOTIENT + ROUNDED) / 2.0 + 2.0 * ROUNDED;

/// Of a product of a row with a vector that may be under a norm: as a part of the sum of the terms' magnitudes. Values of a
/// group are added up before groups are, and offsets of a group by themselves.
pub(crate) const PRODUCT: f64 = 2.0 * SUM + NORMED;

/// Of e^x.
pub(crate) fn exponential(x: f64) -> f64 {
    (3.0 + (2.0 * x.abs()).floor()) * ULP
}

/// Of what a token in a bin of gaps weighs less than one at the bin's start: an exponential of a quarter at most, a
/// difference, and twice what the gap is off by, of which a bin is an eighth.
pub(crate) fn deficit(bin: usize) -> f64 {
    exponential(0.25) + ROUNDED + 2.0 * ROUNDED * (bin as f64 + 1.0) / 8.0
}

/// Of 1 / (1 + e^-z): the error of the exponential counts as much as that is of the sum.
pub(crate) fn sigmoid(z: f64) -> f64 {
    RECIPROCAL + ROUNDED + exponential(z) / (1.0 + z.exp())
}

/// Of silu(z) · u.
pub(crate) fn swiglu(z: f64) -> f64 {
    sigmoid(z) + 2.0 * ROUNDED
}

/// Of outputs of attention, which are means of values of about 1, for the exponentials of their weights. That of a gap x
/// is off by exponential(x), which on an average over weights is as of a gap of 8, were there three thousand tokens of
/// the same weight. It moves the mean by up to twice that.
const WEIGHED: f64 = 2.0 * (3.0 + 2.0 * 8.0) * ULP;
/// The same for the sums of scores, as measured for scores of up to some tens.
const SCORED: f64 = 1e-5;
/// Of outputs of attention in f32: by scores, by their weights, and by the weights of splits or tiles, which are joined.
pub(crate) const ATTENDED: f64 = SCORED + 2.0 * WEIGHED;

/// Of the weights of the experts that were selected by these logits, in their order.
pub(crate) fn expert_weights(logits: &[f32], ids: &[usize], routing: Routing) -> Vec<f64> {
    let top = logits.iter().fold(f64::MIN, |top, &z| top.max(z.into()));
    let score = |id: &usize| match (routing.gating, logits.get(*id).map_or(0.0, |&z| f64::from(z))) {
        (Gating::Sigmoid, z) => sigmoid(z),
        (Gating::Softmax, z) => exponential(z - top) + exponential(0.0) + SUM + QUOTIENT,
    };
    let scores: Vec<f64> = ids.iter().map(score).collect();
    let total = scores.iter().copied().fold(SUM, f64::max); // of the sum that normalised weights are divided by
    let rest = if routing.normalise { total + QUOTIENT } else { 0.0 };
    scores.into_iter().map(|score| score + rest + ROUNDED).collect()
}
