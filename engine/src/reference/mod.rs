//! What kernels should compute, on the CPU in f64, and the comparison with what they did compute.
//!
//! It has two uses. A model's first load on an adapter checks the steps of its plans: [`Reference`] is implemented here
//! for what a step computes (`kernels::computes`): it picks some outputs at random and computes them from the step's
//! inputs. And tests and `wglm selftest` run the [`CASES`] of every kernel, which are small plans with seeded inputs: a
//! [`Case`] knows every expected output, and that nothing else may be written.
//!
//! Both use the same functions in f64 and the same bounds on errors; the check at load multiplies the bounds by
//! `SLACK`.

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
pub use case::{Case, CaseOutcome, Expected, OutputType};
pub use cases::CASES;
pub use check::{CaseVerdict, KernelCheck};

pub use crate::kernels::computes::SLACK;
#[cfg(doc)]
use crate::plan::Reference;
use crate::plan::{OutputPlace, Sample, Tensor};

/// An error that is always allowed: kernels flush values of about this size to zero, or keep them from being zero.
const SMALLEST: f64 = 1e-25;

/// The number of vectors of a step that are checked, and of values of each.
const VECTORS: usize = 3;
const VALUES: usize = 4;

/// A value that may be off by `bound`, relative to its size.
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
