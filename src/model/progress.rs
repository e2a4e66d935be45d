//! How far a load has come: counted on many threads, told on one.

use serde::Serialize;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// What a load is waiting for. Kernels compile while weights are read, and are told of once all weights are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Stage {
    /// Weights on their way to the GPU, counted in bytes; at the end the GPU reads them once more.
    Weights,
    /// Kernels that are compiled, counted one by one.
    Kernels,
    /// Steps that are run to check kernels, and to have a first token behind it.
    Check,
}

impl Stage {
    const ALL: [Self; 3] = [Self::Weights, Self::Kernels, Self::Check];
}

/// How far a load has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Progress {
    /// What is counted: never an earlier stage than was told before.
    pub stage: Stage,
    /// How much of it is done.
    pub done: u64,
    /// How much of it there is to do, 0 while that is not known. The check's may grow.
    pub total: u64,
}

/// What was counted so far.
#[derive(Default)]
pub(super) struct Meter {
    stage: AtomicUsize,
    counts: [Count; Stage::ALL.len()],
}

#[derive(Default)]
struct Count {
    done: AtomicU64,
    total: AtomicU64,
}

impl Meter {
    /// Has more to be done in a stage.
    pub fn expect(&self, stage: Stage, more: u64) {
        self.counts[stage as usize].total.fetch_add(more, Ordering::Relaxed);
    }

    /// Counts what is done of a stage.
    pub fn add(&self, stage: Stage, more: u64) {
        self.counts[stage as usize].done.fetch_add(more, Ordering::Relaxed);
    }

    /// Goes on to a stage.
    pub fn enter(&self, stage: Stage) {
        self.stage.store(stage as usize, Ordering::Relaxed);
    }

    /// What there is to tell.
    pub fn now(&self) -> Progress {
        let stage = Stage::ALL[self.stage.load(Ordering::Relaxed).min(Stage::ALL.len() - 1)];
        let Count { done, total } = &self.counts[stage as usize];
        Progress { stage, done: done.load(Ordering::Relaxed), total: total.load(Ordering::Relaxed) }
    }
}
