//! The CPU's part of every step: see [`Reference`]. What a step computes is recorded beside it by the builder's method
//! that appends it; here some outputs are computed again in f64, with the functions that the cases' expectations are
//! made with and within the same bounds, times [`SLACK`].

mod attention;
mod kv_rows;
mod operand;
mod product;
mod sampling;
mod vectors;

pub(super) use attention::{Attended, Attention, Merge, Merged};
pub(super) use kv_rows::{KvRows, RotatedQueries};
pub(super) use operand::{Operand, Seen};
pub(super) use product::{Down, Errors, Left, Product, Terms, Which};
pub(super) use sampling::{Adjusted, Drawn, Grouped, Histogram, Maxima, SelectedExperts};
pub(super) use vectors::{Copied, EmbeddingRows, LastToken, Normed, WeightedSum};

#[cfg(doc)]
use crate::plan::Reference;
use crate::plan::{Batch, OutputPlace, Sample, Tensor};

/// How much more than the cases' bounds an error may be: the values of a model are less even than noise, and one term may
/// outweigh all others of a sum.
pub(super) const SLACK: f64 = 4.0;

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

/// Vectors {values, n} of `tokens` tokens, as many of each.
pub(super) fn by_token(vectors: &Tensor, tokens: usize) -> Batch {
    let stacks = vectors.shape[1] / tokens.max(1);
    let Tensor { buffer, shape: [values, _], stride } = *vectors;
    Batch { buffer, values, stacks, stride, tokens, pitch: stacks * stride }
}

/// Where a vector of a token begins.
fn start(batch: &Batch, token: usize, stack: usize) -> usize {
    token * batch.pitch + stack * batch.stride
}
