//! What kernels should compute, by the CPU in f64, and the judging of what they did compute.
//!
//! It has two uses. A model's first load on an adapter checks the steps of its plans: [`Reference`] is implemented here
//! for what a step computes (`kernels::computes`), and tells of some outputs, picked at random, what they should be by
//! what the step's inputs hold. And tests and `wglm selftest` run the [`CASES`] of every kernel, which are small plans
//! with seeded inputs: a [`Case`] knows what every output should be, and that nothing else may be written.
//!
//! Both have the same functions in f64 and the same bounds on errors; the check at load multiplies them by `SLACK`.

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
pub use case::{Case, Expected, Outcome, OutputType};
pub use cases::CASES;
pub use check::{CaseVerdict, KernelCheck};

pub use crate::kernels::computes::SLACK;
#[cfg(doc)]
use crate::plan::Reference;
use crate::plan::{OutputPlace, Sample, Tensor};

/// An error that is none: kernels flush what is not much larger to zero, or keep it from being zero.
const SMALLEST: f64 = 1e-25;

/// Vectors of a step that are looked at, and values of each.
const VECTORS: usize = 3;
const VALUES: usize = 4;

/// A value that may be off by `bound` of its size.
fn sample(output: OutputPlace, want: f64, size: f64, bound: f64) -> Sample {
    Sample { output, want, tolerance: SLACK * bound * size + SMALLEST }
}

/// A value that is compared exactly.
fn exact(output: OutputPlace, want: f64) -> Sample {
    Sample { output, want, tolerance: 0.0 }
}

/// Where a vector of a token begins.
fn start(batch: &Tensor, token: usize, stack: usize) -> usize {
    token * batch.pitch + stack * batch.stride
}
