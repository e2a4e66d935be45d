//! Limits how long a step may occupy the GPU.

use super::{Cost, Plan, Step};
use crate::gpu::{AdapterKind, AdapterReport, Backend};
use std::time::Duration;

/// How long a step may occupy a GPU, and the speed of the slowest GPU that a model of this size fits.
///
/// macOS ends work that keeps the screen waiting, without reporting it. The host decides how long a submission is, but
/// a dispatch inside it cannot be interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepLimit {
    /// Operations per second.
    pub flops: u64,
    /// Bytes from memory per second.
    pub bandwidth: u64,
    /// How long a step may take on that GPU.
    pub time: Duration,
}

impl StepLimit {
    /// The limit for GPUs with memory of their own, except in Macs: the slowest that can hold such a model have 6
    /// TFLOP/s and 288 GB/s, and their systems only end work that takes seconds.
    const DISCRETE: Self =
        Self { flops: 5_000_000_000_000, bandwidth: 250_000_000_000, time: Duration::from_millis(500) };

    /// The limit that suits an adapter.
    pub fn of(adapter: &AdapterReport) -> Self {
        let discrete = adapter.kind == AdapterKind::Discrete && adapter.backend != Backend::Metal;
        if discrete { Self::DISCRETE } else { Self::default() }
    }
}

impl Default for StepLimit {
    /// The limit for the slowest GPU that shares enough memory with its system: for example an M2 with 24 GB and 3.6
    /// TFLOP/s, of which kernels reach less.
    fn default() -> Self {
        Self { flops: 2_500_000_000_000, bandwidth: 100_000_000_000, time: Duration::from_millis(50) }
    }
}

impl StepLimit {
    /// The seconds that a cost takes on that GPU with this many tokens in the cache: the time for bytes plus the time
    /// for operations. A large GPU overlaps the two, but a small one may not: it runs few workgroups at the same time,
    /// and each loads, waits and multiplies in turn. The result is at most twice the actual time.
    pub fn seconds(&self, cost: &Cost, cached: u64) -> f64 {
        cost.operations(cached) as f64 / self.flops as f64 + cost.bytes(cached) as f64 / self.bandwidth as f64
    }
}

impl Plan {
    /// The step that takes longest with this many tokens in the cache, and its seconds.
    pub fn largest_step(&self, limit: &StepLimit, cached: u64) -> Option<(&Step, f64)> {
        let seconds = self.steps.iter().map(|step| (step, limit.seconds(&step.cost, cached)));
        seconds.max_by(|one, other| one.1.total_cmp(&other.1))
    }
}
