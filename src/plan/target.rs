//! What a plan is made for: what the adapter can do, and which ways of computing are wanted.

use super::{Fusions, StepLimit, TilingOverride};
use crate::gpu::{Gpu, Matrices};
use crate::quant::Arithmetic;

/// Who adds up a row's products.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Team {
    /// Lanes of a subgroup.
    Subgroup,
    /// The workgroup, through its memory: for adapters without subgroup operations.
    Workgroup,
}

/// The GPUs that the division of a product's rows was chosen for: see `kernels/tiling.rs`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Tilings {
    /// As measured on an NVIDIA H100.
    #[default]
    Nvidia,
    /// As llama.cpp's Metal kernels have it: nobody has measured wglm on an Apple GPU.
    Apple,
}

/// What a plan is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// Who adds up a row's products.
    pub team: Team,
    /// Lanes of the smallest subgroup the adapter runs, a power of two.
    pub subgroup: usize,
    /// Teams may be several subgroups: none has more lanes than [`Target::WIDE`].
    pub wide: bool,
    /// Cooperative matrices, by subgroups of 32.
    pub matrices: Matrices,
    /// In what matrix-vector products multiply.
    pub arithmetic: Arithmetic,
    /// Storage buffers that one kernel may bind.
    pub buffers: usize,
    /// Invocations that a workgroup may have.
    pub invocations: usize,
    /// Bytes of memory that a workgroup may have.
    pub workgroup_bytes: usize,
    /// Which steps become one.
    pub fusions: Fusions,
    /// How products are divided unless something else is asked for.
    pub tilings: Tilings,
    /// What is to divide products otherwise than usual.
    pub tiling_overrides: &'static [TilingOverride],
    /// How long a step of a chunk may take: longer ones are cut.
    pub limit: StepLimit,
}

impl Default for Target {
    /// Subgroups of 32, f32 throughout, everything fused.
    fn default() -> Self {
        Self {
            team: Team::Subgroup,
            subgroup: 32,
            wide: true,
            matrices: Matrices::None,
            arithmetic: Arithmetic::Float,
            buffers: 29,
            invocations: 1024,
            workgroup_bytes: 32 << 10,
            fusions: Fusions::all(),
            tilings: Tilings::default(),
            tiling_overrides: &[],
            limit: StepLimit::default(),
        }
    }
}

impl Target {
    /// Lanes from which on a team may be several subgroups.
    pub const WIDE: usize = 64;

    /// What suits a device: f32 throughout, everything fused.
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
            workgroup_bytes: can.max_workgroup_bytes as usize,
            fusions: Fusions::all(),
            tilings: if gpu.report().is_apple() { Tilings::Apple } else { Tilings::Nvidia },
            tiling_overrides: &[],
            limit: StepLimit::of(gpu.report()),
        }
    }

    /// Lanes of a team in a workgroup of `size` invocations.
    pub fn lanes(&self, size: usize) -> usize {
        match self.team {
            Team::Subgroup => self.subgroup.min(32).min(size),
            Team::Workgroup => size,
        }
    }
}
