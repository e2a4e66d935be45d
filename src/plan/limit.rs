//! How long a step may keep the GPU.

use super::{Cost, Plan, Step};
use crate::gpu::AdapterReport;
use std::time::Duration;

/// How long a step may keep a GPU, and how fast the slowest one is that a model of this size fits.
///
/// macOS ends work that keeps the screen waiting, and nobody is told. A submission is as short as the host makes it,
/// but within it a dispatch cannot be interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepLimit {
    /// Operations in a second.
    pub flops: u64,
    /// Bytes from memory in a second.
    pub bandwidth: u64,
    /// How long a step may take there.
    pub time: Duration,
}

impl StepLimit {
    /// For GPUs with memory of their own, outside Macs: the slowest that hold such a model have 6 TFLOP/s and 288 GB/s,
    /// and the systems around them end what takes seconds.
    const DISCRETE: Self =
        Self { flops: 5_000_000_000_000, bandwidth: 250_000_000_000, time: Duration::from_millis(500) };

    /// What suits an adapter.
    pub fn of(adapter: &AdapterReport) -> Self {
        let discrete = adapter.kind == "discrete" && adapter.backend != "metal";
        if discrete { Self::DISCRETE } else { Self::default() }
    }
}

impl Default for StepLimit {
    /// The slowest GPU that shares its memory with a system large enough: 24 GB beside an M2, say, whose 3.6 TFLOP/s
    /// kernels do not reach.
    fn default() -> Self {
        Self { flops: 2_500_000_000_000, bandwidth: 100_000_000_000, time: Duration::from_millis(50) }
    }
}

impl StepLimit {
    /// Seconds that something takes there, with so many tokens in the cache: what its bytes and its operations take,
    /// one after the other. A large GPU does both at a time; here that would be to promise too much, for the kernels'
    /// workgroups, of which few run beside each other, load, wait and multiply by turns. It is at most twice as long.
    pub fn seconds(&self, cost: &Cost, cached: u64) -> f64 {
        cost.operations(cached) as f64 / self.flops as f64 + cost.bytes(cached) as f64 / self.bandwidth as f64
    }
}

impl Plan {
    /// The step that takes longest with so many tokens in the cache, and its seconds.
    pub fn largest_step(&self, limit: &StepLimit, cached: u64) -> Option<(&Step, f64)> {
        let seconds = self.steps.iter().map(|step| (step, limit.seconds(&step.cost, cached)));
        seconds.max_by(|one, other| one.1.total_cmp(&other.1))
    }
}
