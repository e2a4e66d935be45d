//! The GPU: adapters, one device with its queue, own or an app's, buffers, pipelines and submissions.
//!
//! Together with `shader` this is the only place that names wgpu. Whatever the driver does wrong is
//! returned as an [`Error`]: nothing here panics, and a lost device stays lost until the
//! caller opens another.

mod adapter;
mod device;
mod errors;
mod fetch;
mod heaps;
mod memory;
#[cfg(target_os = "macos")]
mod metal;
mod meter;
mod pages;
mod pass;
mod receipts;
mod staging;
mod timing;
mod wait;
mod work;

pub use adapter::{AdapterReport, Matrices, adapters};
pub use fetch::{BufferRange, Fetch};
pub use memory::{Buffer, BufferUse, Readback};
pub use meter::Memory;
pub use pages::PAGE;
pub use pass::{BindGroup, Binding, Dispatch, Pipeline, ReadbackCopy, Submission};
pub use receipts::Receipts;
pub use staging::{Mapped, StagedCopy, Staging};
pub use work::Work;

#[cfg(doc)]
use crate::error::Error;
use errors::Failures;
use meter::Meter;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use work::{Before, Counts};

/// Which adapter to open, and how. Fields will be added: make it by `GpuOptions { …, ..GpuOptions::default() }`.
#[derive(Debug, Clone)]
pub struct GpuOptions {
    /// Only adapters whose name contains this, letter case aside. `WGPU_ADAPTER_NAME` by default.
    pub adapter: Option<String>,
    /// Only these backends, as a comma list: `metal`, `vulkan`, `dx12`. `WGPU_BACKEND` by default.
    pub backends: Option<String>,
    /// `low` to prefer an integrated adapter; `high` or `none` to prefer a discrete one. `WGPU_POWER_PREF` by default.
    pub power: Option<String>,
    /// Use subgroup operations where the adapter has them.
    pub subgroups: bool,
    /// Use cooperative matrices where the adapter has them.
    pub matrices: bool,
    /// Let shaders check every index. Slower by a tenth; the default of debug builds.
    pub checks: bool,
    /// Bytes of buffers at most, of all models and sessions on the device: what would take more is refused with
    /// [`Error::OutOfMemory`]. None for as much as the driver gives. A budget for apps that need memory themselves.
    pub memory_limit: Option<u64>,
}

impl Default for GpuOptions {
    /// What the environment asks for.
    fn default() -> Self {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self {
            adapter: variable("WGPU_ADAPTER_NAME"),
            backends: variable("WGPU_BACKEND"),
            power: variable("WGPU_POWER_PREF"),
            subgroups: true,
            matrices: true,
            checks: cfg!(debug_assertions),
            memory_limit: None,
        }
    }
}

/// What the opened device can do.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Capabilities {
    /// Subgroup operations are there and wanted.
    pub subgroups: bool,
    /// Lanes of the smallest subgroup there may be, a power of two; 1 without subgroup operations.
    pub subgroup: usize,
    /// Lanes of the largest subgroup there may be; 1 without subgroup operations.
    pub widest_subgroup: usize,
    /// The cooperative matrices that are there and wanted.
    pub matrices: Matrices,
    /// The largest binding of a storage buffer, in bytes.
    pub max_binding: u64,
    /// The largest buffer, in bytes.
    pub max_buffer: u64,
    /// What a range of a storage buffer that is bound starts at multiples of, in bytes.
    pub alignment: u64,
    /// Storage buffers one kernel may bind.
    pub max_storage_buffers: u32,
    /// Workgroup memory one kernel may use, in bytes.
    pub max_workgroup_bytes: u32,
    /// Invocations of a workgroup.
    pub max_workgroup_size: u32,
}

/// An open device. Clones share it.
///
/// ```
/// use wglm::{Gpu, GpuOptions};
///
/// # fn main() -> wglm::Result<()> {
/// let gpu = Gpu::open(&GpuOptions { memory_limit: Some(12 << 30), ..GpuOptions::default() })?;
/// println!("{} through {}", gpu.report().name, gpu.report().backend);
/// assert_eq!(gpu.memory().held, 0); // nothing is loaded yet
/// # Ok(())
/// # }
/// ```
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
    counts: Counts,
    /// See [`Gpu::before_submissions`].
    before: Before,
    /// Everything recorded is left out: see [`Gpu::drop_work`].
    drops_work: AtomicBool,
}

impl Gpu {
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
}

impl std::fmt::Debug for Gpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let report = self.report();
        f.debug_struct("Gpu").field("name", &report.name).field("backend", &report.backend).finish_non_exhaustive()
    }
}
