//! Reports the progress of a load, which is counted on many threads and reported on one.

use serde::Serialize;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The stage of a load. Kernels compile while weights are read, and are reported once all weights are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LoadStage {
    /// Weights are copied to the GPU; counted in bytes. At the end the GPU reads them once more to verify them.
    Weights,
    /// Kernels are compiled; counted one by one.
    Kernels,
    /// The kernels that only the check needs are compiled, and steps are run to check kernels and for a first token;
    /// counted one by one.
    Check,
}

impl LoadStage {
    const ALL: [Self; 3] = [Self::Weights, Self::Kernels, Self::Check];
}

/// The progress of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LoadProgress {
    /// The stage. It never goes back to an earlier one.
    pub stage: LoadStage,
    /// How much of the stage is done.
    pub done: u64,
    /// The size of the stage, 0 while it is not known. The size of the check may grow.
    pub total: u64,
}

/// The counters.
#[derive(Default)]
pub(super) struct Meter {
    stage: AtomicUsize,
    counts: [Count; LoadStage::ALL.len()],
}

#[derive(Default)]
struct Count {
    done: AtomicU64,
    total: AtomicU64,
}

impl Meter {
    /// Adds to the size of a stage.
    pub fn expect(&self, stage: LoadStage, more: u64) {
        self.counts[stage as usize].total.fetch_add(more, Ordering::Relaxed);
    }

    /// Adds to what is done of a stage.
    pub fn add(&self, stage: LoadStage, more: u64) {
        self.counts[stage as usize].done.fetch_add(more, Ordering::Relaxed);
    }

    /// Counts all of a stage as done, including work that turned out to be unnecessary.
    pub fn complete(&self, stage: LoadStage) {
        let Count { done, total } = &self.counts[stage as usize];
        done.fetch_max(total.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Moves on to a stage.
    pub fn enter(&self, stage: LoadStage) {
        self.stage.store(stage as usize, Ordering::Relaxed);
    }

    /// The present progress.
    pub fn now(&self) -> LoadProgress {
        let stage = LoadStage::ALL[self.stage.load(Ordering::Relaxed).min(LoadStage::ALL.len() - 1)];
        let Count { done, total } = &self.counts[stage as usize];
        LoadProgress { stage, done: done.load(Ordering::Relaxed), total: total.load(Ordering::Relaxed) }
    }
}
