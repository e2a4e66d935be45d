//! The GPU: adapters, one device with its queue, buffers, pipelines and submissions.
//!
//! Together with `shader` this is the only place that names wgpu. Whatever the driver does wrong is
//! returned as an [`Error`]: nothing here panics, and a lost device stays lost until the
//! caller opens another.

mod adapter;
mod errors;
mod memory;
mod meter;
mod pass;
mod staging;
mod timing;

pub use adapter::{AdapterReport, Matrices, adapters};
pub use memory::{Buffer, BufferUse, Readback};
pub use meter::Memory;
pub use pass::{BindGroup, Binding, Copy, Dispatch, Pipeline, Submission};
pub use staging::{Mapped, StagedCopy, Staging};

use crate::error::{Error, Result};
use errors::Failures;
use meter::Meter;
use std::sync::Arc;

/// Which adapter to open, and how.
#[derive(Debug, Clone)]
pub struct GpuOptions {
    /// Only adapters whose name contains this, letter case aside. `WGPU_ADAPTER_NAME` by default.
    pub adapter: Option<String>,
    /// Only these backends, as a comma list: `metal`, `vulkan`, `dx12`. `WGPU_BACKEND` by default.
    pub backends: Option<String>,
    /// Prefer an integrated adapter. `WGPU_POWER_PREF=low` by default.
    pub low_power: bool,
    /// Use subgroup operations where the adapter has them.
    pub subgroups: bool,
    /// Use cooperative matrices where the adapter has them.
    pub matrices: bool,
    /// Let shaders check every index. Slower by a tenth; the default of debug builds.
    pub checks: bool,
}

impl Default for GpuOptions {
    /// What the environment asks for.
    fn default() -> Self {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self {
            adapter: variable("WGPU_ADAPTER_NAME"),
            backends: variable("WGPU_BACKEND"),
            low_power: variable("WGPU_POWER_PREF").is_some_and(|value| value.eq_ignore_ascii_case("low")),
            subgroups: true,
            matrices: true,
            checks: cfg!(debug_assertions),
        }
    }
}

/// What the opened device can do.
#[derive(Debug, Clone)]
pub struct Capabilities {
    /// Subgroup operations are there and wanted.
    pub subgroups: bool,
    /// Lanes of the smallest subgroup there may be, a power of two; 1 without subgroup operations.
    pub subgroup: usize,
    /// The cooperative matrices that are there and wanted.
    pub matrices: Matrices,
    /// The largest binding of a storage buffer, in bytes.
    pub max_binding: u64,
    /// The largest buffer, in bytes.
    pub max_buffer: u64,
    /// Storage buffers one kernel may bind.
    pub max_storage_buffers: u32,
    /// Workgroup memory one kernel may use, in bytes.
    pub max_workgroup_bytes: u32,
    /// Invocations of a workgroup.
    pub max_workgroup_size: u32,
}

/// An open device. Clones share it.
#[derive(Clone)]
pub struct Gpu {
    shared: Arc<Shared>,
}

struct Shared {
    device: wgpu::Device,
    queue: wgpu::Queue,
    report: AdapterReport,
    capabilities: Capabilities,
    checks: bool,
    failures: Failures,
    meter: Arc<Meter>,
}

impl Gpu {
    /// Opens the adapter the options ask for, otherwise the strongest there is, with all its limits.
    ///
    /// # Errors
    /// [`Error::NoAdapter`] if none fits, [`Error::Gpu`] if the driver refuses the device.
    pub fn open(options: &GpuOptions) -> Result<Self> {
        let adapter = adapter::choose(options)?;
        let report = AdapterReport::of(&adapter);
        let wanted = options.subgroups && options.matrices;
        let matrices = if wanted { report.matrices } else { Matrices::None };
        let features = adapter.features() & wanted_features(options, matrices != Matrices::None);
        let limits = adapter.limits();
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("wglm"),
            required_features: features,
            required_limits: limits.clone(),
            memory_hints: wgpu::MemoryHints::MemoryUsage, // large tensors in blocks of their own
            // SAFETY: cooperative matrices are the only experimental feature asked for, and the kernels that use them
            // run only where the adapter lists their very size and types.
            experimental_features: if matrices != Matrices::None {
                unsafe { wgpu::ExperimentalFeatures::enabled() }
            } else {
                Default::default()
            },
            ..Default::default()
        };
        let (device, queue) = pollster::block_on(adapter.request_device(&descriptor))
            .map_err(|e| Error::Gpu { doing: format!("to open `{}`", report.name), message: e.to_string() })?;
        let failures = Failures::watch(&device);
        let capabilities = Capabilities {
            subgroups: features.contains(wgpu::Features::SUBGROUP),
            subgroup: report.smallest_subgroup(),
            matrices,
            max_binding: limits.max_storage_buffer_binding_size,
            max_buffer: limits.max_buffer_size,
            max_storage_buffers: limits.max_storage_buffers_per_shader_stage,
            max_workgroup_bytes: limits.max_compute_workgroup_storage_size,
            max_workgroup_size: limits.max_compute_invocations_per_workgroup,
        };
        tracing::info!(adapter = report.name, backend = report.backend, ?capabilities, "opened the GPU");
        let (checks, meter) = (options.checks, Arc::default());
        Ok(Self { shared: Arc::new(Shared { device, queue, report, capabilities, checks, failures, meter }) })
    }

    /// The adapter behind the device.
    pub fn report(&self) -> &AdapterReport {
        &self.shared.report
    }

    /// What the device can do.
    pub fn capabilities(&self) -> &Capabilities {
        &self.shared.capabilities
    }

    /// The wgpu device, for shaders and pipelines.
    pub(crate) fn device(&self) -> &wgpu::Device {
        &self.shared.device
    }

    /// True if shaders are to check every index.
    pub(crate) fn checks(&self) -> bool {
        self.shared.checks
    }

    /// Whether the device is still there.
    ///
    /// # Errors
    /// [`Error::DeviceLost`] if it is not.
    pub fn check(&self) -> Result<()> {
        self.shared.failures.check()
    }
}

fn wanted_features(options: &GpuOptions, matrices: bool) -> wgpu::Features {
    let mut features = wgpu::Features::empty();
    features.set(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX | wgpu::Features::SHADER_F16, matrices);
    features.set(wgpu::Features::SUBGROUP, options.subgroups);
    features.insert(wgpu::Features::TIMESTAMP_QUERY);
    features
}
