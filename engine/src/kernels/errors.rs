//! How far off the functions that kernels call may be, and the bounds on outputs that follow from it.
//!
//! Metal compiles with fast math, where its specification allows these errors (Metal Shading Language Specification
//! 4.1, section 8.4, table 8.2; Vulkan's table "Precision of core SPIR-V instructions" requires the same). All round
//! sums and products correctly, but in any order. `tests/metal/cases.rs` runs every kernel with functions that are off
//! by all of this, in either direction.

use super::{Gating, Routing};

/// The largest relative size of a unit in the last place of an f32.
const ULP: f64 = f32::EPSILON as f64;
/// The relative error of a sum, a difference or a product.
pub(crate) const ROUNDED: f64 = ULP / 2.0;
/// The error of x / y, and of 1 / x.
pub(crate) const QUOTIENT: f64 = 2.5 * ULP;
const RECIPROCAL: f64 = ULP;
/// The error of 1 / sqrt(x).
const INVERSE_ROOT: f64 = 2.0 * ULP;

/// The error of a sum of up to some thousands of terms over several lanes, relative to the sum of the terms'
/// magnitudes: seventeen roundings of the total.
pub(crate) const SUM: f64 = 17.0 * ROUNDED;

/// The error of a normalised value, x · weight / sqrt(mean(x²) + epsilon): that of the root, half that of its argument,
/// and two products.
pub(crate) const NORMED: f64 = INVERSE_ROOT + (SUM + QUOTIENT + ROUNDED) / 2.0 + 2.0 * ROUNDED;

/// The error of the product of a row and a vector, which may be normalised, relative to the sum of the terms'
/// magnitudes. Values are summed within groups before groups are, and the offsets of groups separately.
pub(crate) const PRODUCT: f64 = 2.0 * SUM + NORMED;

/// The error of e^x.
pub(crate) fn exponential(x: f64) -> f64 {
    (3.0 + (2.0 * x.abs()).floor()) * ULP
}

/// The error of a deficit, which is how much less a token weighs than one at the start of its bin: the errors of an
/// exponential of at most a quarter and of a difference, plus twice the error of the gap. A bin spans a gap of one
/// eighth.
pub(crate) fn deficit(bin: usize) -> f64 {
    exponential(0.25) + ROUNDED + 2.0 * ROUNDED * (bin as f64 + 1.0) / 8.0
}

/// The error of 1 / (1 + e^-z): that of the exponential counts by its share of the sum.
pub(crate) fn sigmoid(z: f64) -> f64 {
    RECIPROCAL + ROUNDED + exponential(z) / (1.0 + z.exp())
}

/// The error of silu(z) · u.
pub(crate) fn swiglu(z: f64) -> f64 {
    sigmoid(z) + 2.0 * ROUNDED
}

/// The error of outputs of attention, which are means of values of about 1, due to the exponentials of their weights.
/// The exponential of a gap x is off by exponential(x). Averaged over the weights, the error is that of a gap of 8 if
/// three thousand tokens have the same weight. It moves the mean by up to twice that.
const WEIGHED: f64 = 2.0 * (3.0 + 2.0 * 8.0) * ULP;
/// The error of outputs of attention due to the sums of scores, measured with scores of up to some tens.
const SCORED: f64 = 1e-5;
/// The error of outputs of attention in f32: due to scores, to their weights, and to the weights with which splits or
/// tiles are merged.
pub(crate) const ATTENDED: f64 = SCORED + 2.0 * WEIGHED;

/// The errors of the weights of the selected experts, in their order, given the router's logits.
pub(crate) fn expert_weights(logits: &[f32], ids: &[usize], routing: Routing) -> Vec<f64> {
    let top = logits.iter().fold(f64::MIN, |top, &z| top.max(z.into()));
    let score = |id: &usize| match (routing.gating, logits.get(*id).map_or(0.0, |&z| f64::from(z))) {
        (Gating::Sigmoid, z) => sigmoid(z),
        (Gating::Softmax, z) => exponential(z - top) + exponential(0.0) + SUM + QUOTIENT,
    };
    let scores: Vec<f64> = ids.iter().map(score).collect();
    let total = scores.iter().copied().fold(SUM, f64::max); // for the sum that normalised weights are divided by
    let rest = if routing.normalise { total + QUOTIENT } else { 0.0 };
    scores.into_iter().map(|score| score + rest + ROUNDED).collect()
}
