//! The target of a plan: the capabilities of the adapter, and the options for how to compute.

use super::{Choices, Fusions, Grouping, StepLimit};
use crate::gpu::{AdapterReport, Gpu, Matrices};
use crate::quant::Arithmetic;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Which lanes form a team. A team is a group of lanes that together reduce one row of products.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Team {
    /// A team is a part of a subgroup, or several subgroups.
    Subgroup,
    /// A team is the whole workgroup, which reduces through its memory, for adapters without subgroup operations.
    Workgroup,
}

/// The GPUs for which the tilings of products were chosen: see `kernels/tiling.rs`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tilings {
    /// Tilings measured on an NVIDIA H100.
    #[default]
    Nvidia,
    /// The tilings of llama.cpp's Metal kernels. wglm has not been measured on an Apple GPU.
    Apple,
}

impl Tilings {
    /// Those for an adapter. A driver that computes on a processor spends most of its time on loads, so teams that load
    /// activations once for several rows are fastest there as well: see docs/performance.md.
    fn of(report: &AdapterReport) -> Self {
        if report.is_apple() || report.is_software() { Self::Apple } else { Self::Nvidia }
    }
}

/// The target of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The kind of teams.
    pub team: Team,
    /// The size of the smallest subgroup of the adapter, a power of two.
    pub subgroup: usize,
    /// Whether teams may consist of several subgroups, because no subgroup has more lanes than [`Target::WIDE`].
    pub wide: bool,
    /// The cooperative matrices, for subgroups of 32.
    pub matrices: Matrices,
    /// The arithmetic of matrix-vector products.
    pub arithmetic: Arithmetic,
    /// The number of storage buffers that a kernel may bind.
    pub buffers: usize,
    /// The number of invocations that a workgroup may have.
    pub invocations: usize,
    /// The number of workgroups that keeps the adapter busy, for kernels that can choose it.
    pub workgroups: usize,
    /// The size of workgroup memory in bytes.
    pub workgroup_bytes: usize,
    /// Which steps are fused.
    pub fusions: Fusions,
    /// The table of tilings.
    pub tilings: Tilings,
    /// The choices for this adapter, which override the tables.
    pub choices: Arc<Choices>,
    /// How long a step of a batch may take; longer ones are split.
    pub limit: StepLimit,
    /// The names of kernels that cannot be used on this adapter. Each is planned as for an adapter without subgroup
    /// operations and matrices, which makes it another variant or another kernel. No other kernel changes.
    pub replaced: Arc<BTreeSet<String>>,
}

impl Default for Target {
    /// A target with subgroups of 32, f32 arithmetic, and all fusions.
    fn default() -> Self {
        Self {
            team: Team::Subgroup,
            subgroup: 32,
            wide: true,
            matrices: Matrices::None,
            arithmetic: Arithmetic::Float,
            buffers: 29,
            invocations: 1024,
            workgroups: Self::WORKGROUPS,
            workgroup_bytes: 32 << 10,
            fusions: Fusions::all(),
            tilings: Tilings::default(),
            choices: Arc::default(),
            limit: StepLimit::default(),
            replaced: Arc::default(),
        }
    }
}

impl Target {
    /// The smallest team that may consist of several subgroups, if no subgroup is larger.
    pub const WIDE: usize = 64;

    /// The minimum number of invocations in a workgroup of any plan. If a kernel is limited to 32, barriers order no
    /// memory in code from Apple's compiler (KhronosGroup/MoltenVK#2711, with a native reproduction: with 33 all values
    /// are right, with 32 99.9 % are wrong). Sizes are powers of two, so this is the smallest safe one.
    pub const MIN_WORKGROUP: usize = 64;

    /// Workgroups for a GPU, even a large one.
    const WORKGROUPS: usize = 128;

    /// Workgroups for a driver that computes on a processor's cores, where each costs microseconds even if it has
    /// nothing to do.
    const SOFTWARE_WORKGROUPS: usize = 8;

    /// The target for a device, with f32 arithmetic and all fusions.
    pub fn of(gpu: &Gpu) -> Self {
        let can = gpu.capabilities();
        Self {
            team: if can.subgroups { Team::Subgroup } else { Team::Workgroup },
            subgroup: can.subgroup,
            wide: can.widest_subgroup <= Self::WIDE,
            matrices: can.matrices,
            arithmetic: Arithmetic::Float,
            buffers: can.max_storage_buffers as usize,
            invocations: can.max_workgroup_size as usize,
            workgroups: if gpu.report().is_software() { Self::SOFTWARE_WORKGROUPS } else { Self::WORKGROUPS },
            workgroup_bytes: can.max_workgroup_bytes as usize,
            fusions: Fusions::all(),
            tilings: Tilings::of(gpu.report()),
            choices: Arc::default(),
            limit: StepLimit::of(gpu.report()),
            replaced: Arc::default(),
        }
    }

    /// Whether a separate step selects the experts of few rows, and not each workgroup of their first half. On an H100
    /// the workgroups take 0.8 us of a layer for it, less than a step. On Apple's GPUs up to a thousand workgroups of
    /// 64 invocations, a few at a time on each core, would repeat it, so the tilings for Apple's GPUs make it a
    /// separate step (not run on a Mac).
    pub(crate) fn routes_apart(&self) -> bool {
        !self.fusions.route || self.choices.route_apart.unwrap_or(self.tilings == Tilings::Apple)
    }

    /// How plans of few rows compute products of bytes for several vectors together.
    pub(crate) fn grouping(&self) -> Grouping {
        self.choices.grouping.unwrap_or(Grouping::USUAL)
    }

    /// This target without subgroup operations and matrices.
    pub fn plain(&self) -> Self {
        Self { team: Team::Workgroup, matrices: Matrices::None, ..self.clone() }
    }

    /// The number of lanes of a team in a workgroup of `size` invocations.
    pub fn lanes(&self, size: usize) -> usize {
        match self.team {
            Team::Subgroup => self.subgroup.min(32).min(size),
            Team::Workgroup => size,
        }
    }
}
