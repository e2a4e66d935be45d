//! What kernels should compute, on the CPU in f64, and the comparison with what they did compute.
//!
//! [`Reference`] is implemented here for what a step computes (`kernels::computes`). It has two uses. A model's first
//! load on an adapter checks the steps of its plans: some outputs, picked at random. And tests and `wglm selftest` run
//! the [`CASES`] of every kernel, which are small plans with seeded inputs. In a [`Case`], all outputs of every step
//! are compared, within narrower bounds, and nothing else may be written.

mod attention;
mod builder;
mod case;
mod cases;
mod check;
mod drafting;
mod expanded;
mod experts;
mod kv_rows;
mod operand;
mod product;
mod sampling;
mod vectors;

pub use builder::CaseBuilder;
pub use case::{Case, CaseOutcome, Contents};
pub use cases::CASES;
pub use check::{CaseVerdict, KernelCheck};

#[cfg(doc)]
use crate::plan::Reference;
pub use crate::plan::SLACK;
use crate::plan::{OutputPlace, Probe, Sample, Tensor};

/// An error that is always allowed: kernels flush values of about this size to zero, or keep them from being zero.
const SMALLEST: f64 = 1e-25;

/// The number of vectors of a step that are checked, and of values of each.
const VECTORS: usize = 3;
const VALUES: usize = 4;
/// The number of values of a vector of attention that are checked. They cost little more than one value, which needs
/// the same weights of all KV rows.
const MEANS: usize = 32;

/// A value that may be off by `tolerance`.
fn within(output: OutputPlace, want: f64, tolerance: f64, size: f64) -> Sample {
    Sample { output, want, tolerance, rounding: 0.0, size }
}

/// A value that may be off by `bound`, relative to its size.
fn sample(probe: &Probe<'_>, output: OutputPlace, want: f64, size: f64, bound: f64) -> Sample {
    within(output, want, probe.slack() * bound * size + SMALLEST, size)
}

/// A value that is compared exactly.
fn exact(output: OutputPlace, want: f64) -> Sample {
    within(output, want, 0.0, want.abs().max(1.0))
}

/// A partial result: any finite number is accepted.
fn any(output: OutputPlace) -> Sample {
    within(output, 0.0, f64::INFINITY, 1.0)
}

/// The error of rounding a value to f16, relative to it.
const HALF_ROUNDED: f64 = 1.0 / 2048.0;

/// The largest error of rounding a value to f16: half the distance between neighbours, which have 11 bits, and fewer
/// below 2^-14. A value just below a power of two may be rounded above it.
fn half_step(value: f64) -> f64 {
    (value.abs() * 1.001).log2().floor().max(-14.0).exp2() * HALF_ROUNDED
}

/// Where a vector of a token begins.
fn start(batch: &Tensor, token: usize, stack: usize) -> usize {
    token * batch.pitch + stack * batch.stride
}
