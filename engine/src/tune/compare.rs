//! Compares two choices that a caller makes, as tuning compares its own.

use super::bench::GpuBench;
use super::question::Workload;
use super::search::Search;
use crate::error::Result;
use crate::model::{CacheShape, Comparison, Model};
use crate::plan::Choices;
use std::time::Instant;

/// The minimum context of a comparison, in tokens.
const MIN_CONTEXT: usize = 512;

/// Workload that [`compare`] measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compared {
    /// A generated token, with this many tokens in the cache.
    Token(usize),
    /// A part of a prompt with this many tokens.
    Rows(usize),
}

/// Compares two choices for a model by measuring them alternately, as [`tune`](super::tune()) does: some work with the
/// first, then with the second, then in reverse order. Returns the median times, the gain of the second and the spread
/// of the gains. The results of the kernels are not checked.
///
/// # Errors
/// [`Error::Shader`](crate::error::Error::Shader) for choices that the device cannot compile; any error from the
/// device.
pub fn compare(model: &Model, choices: [&Choices; 2], work: Compared, seconds: f64) -> Result<Comparison> {
    let (depth, rows, work) = match work {
        Compared::Token(depth) => (depth, 1, Workload::Token { depth }),
        Compared::Rows(rows) => (0, rows, Workload::Rows { rows, depth: 0 }),
    };
    let cache = CacheShape { context: (depth + rows + 1).max(MIN_CONTEXT), ty: model.cache().ty };
    let mut bench = GpuBench::new(model, cache, Instant::now(), (None, false))?;
    let start = bench.start();
    let [before, after] = choices.map(|choices| choices.or(&start));
    let never = || false;
    Search::new(&mut bench, start, seconds, &never, &mut |_| {}).by_turns([&before, &after], work)
}
