//! The GPU: adapters, a device with its queue, which may be an app's, buffers, pipelines and submissions.
//!
//! Together with `shader` this is the only module that names wgpu. Every failure of the driver is returned as an
//! [`Error`]: nothing here panics, and a lost device stays lost until the caller opens another one.

mod adapter;
mod dead;
mod device;
mod errors;
mod heaps;
mod memory;
#[cfg(target_os = "macos")]
mod metal;
mod meter;
mod pages;
mod pass;
mod pause;
mod results;
mod slot;
mod staging;
mod timing;
mod wait;
mod work;

pub use adapter::{AdapterKind, AdapterReport, Backend, Matrices, adapter_details, adapters};
pub use dead::MISSING;
pub(crate) use errors::Process;
pub use memory::{Buffer, BufferUse, Readback};
pub use meter::Memory;
pub use pages::PAGE;
pub use pass::{
    Access, BindGroup, Binding, BindingInfo, BufferCopy, Dispatch, Pipeline, Prepared, ReadbackCopy, Submission,
};
pub use pause::Pause;
pub use results::{BufferRange, Fetch, Results, SubmissionNumber};
pub(crate) use slot::{PipelineSlot, PipelineSlots};
pub use staging::{Mapped, StagedCopy, Staging};
pub use work::Work;

use crate::error::{Error, Result};
use errors::Failures;
use meter::MemoryMeter;
use pause::Gate;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use work::{Before, Counts};

/// Which adapter to open, and how. Fields will be added, so construct it as
/// `GpuOptions { …, ..GpuOptions::default() }`.
#[derive(Debug, Clone)]
pub struct GpuOptions {
    /// Only adapters whose name contains this, in upper or lower case.
    pub adapter: Option<String>,
    /// Only these backends; `None` for all that the system has.
    pub backends: Option<Vec<Backend>>,
    /// Whether to prefer an integrated adapter to a discrete one.
    pub low_power: bool,
    /// The flags of the wgpu instance. Empty by default: a driver's validation layers make everything several times
    /// slower. An app can turn them on for debugging with `InstanceFlags::VALIDATION`.
    pub flags: wgpu::InstanceFlags,
    /// Whether to use subgroup operations if the adapter has them.
    pub subgroups: bool,
    /// Whether to use cooperative matrices if the adapter has them.
    pub matrices: bool,
    /// Whether shaders check every index, which makes them 10 % slower. On by default in debug builds.
    pub checks: bool,
    /// The maximum number of bytes in buffers of all models and sessions on the device, for apps that need memory
    /// themselves. A call that would exceed it fails with [`Error::OutOfMemory`]. `None` for as much as the driver
    /// allows.
    pub memory_limit: Option<u64>,
}

impl Default for GpuOptions {
    /// The strongest adapter with all its features. Environment variables have no effect: see [`GpuOptions::from_env`].
    fn default() -> Self {
        Self {
            adapter: None,
            backends: None,
            low_power: false,
            flags: wgpu::InstanceFlags::empty(),
            subgroups: true,
            matrices: true,
            checks: cfg!(debug_assertions),
            memory_limit: None,
        }
    }
}

impl GpuOptions {
    /// The default options with the values of wgpu's usual environment variables: `WGPU_ADAPTER_NAME`, `WGPU_BACKEND`,
    /// `WGPU_POWER_PREF` (`low`, `high` or `none`), and those of [`wgpu::InstanceFlags`], such as `WGPU_VALIDATION`.
    /// The command uses them; so can an app whose users should choose a GPU this way.
    ///
    /// # Errors
    /// [`Error::Argument`] if a variable names a backend or a power preference that does not exist.
    pub fn from_env() -> Result<Self> {
        Self::default().or_from_env()
    }

    /// These options. If they name no adapter, no backends or no power preference, [the environment
    /// variables](Self::from_env) do. A variable that is not needed is not read, so it may have any value.
    ///
    /// ```
    /// use wglm::{Backend, GpuOptions};
    ///
    /// # fn main() -> wglm::Result<()> {
    /// let chosen = GpuOptions { backends: Some(Backend::list("vulkan")?), ..GpuOptions::default() };
    /// assert_eq!(chosen.clone().or_from_env()?.backends, chosen.backends); // whatever `WGPU_BACKEND` is
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of [`from_env`](Self::from_env).
    pub fn or_from_env(self) -> Result<Self> {
        let variable = |name| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
        let low_power = match variable("WGPU_POWER_PREF").map(|value| value.to_lowercase()).as_deref() {
            _ if self.low_power => true, // the variable is not needed
            Some("low") => true,
            None | Some("high" | "none") => false,
            Some(other) => {
                return Err(Error::argument("power", "low, high or none", format!("`{other}`")));
            }
        };
        let backends = match self.backends {
            None => variable("WGPU_BACKEND").map(|list| Backend::list(&list)).transpose()?,
            chosen => chosen,
        };
        let adapter = self.adapter.or_else(|| variable("WGPU_ADAPTER_NAME"));
        Ok(Self { adapter, backends, low_power, flags: self.flags.with_env(), ..self })
    }
}

/// The capabilities of an open device.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Capabilities {
    /// Whether the device has subgroup operations and the options allow them.
    pub subgroups: bool,
    /// The size of the smallest possible subgroup, a power of two; 1 without subgroup operations.
    pub subgroup: usize,
    /// The size of the largest possible subgroup; 1 without subgroup operations.
    pub widest_subgroup: usize,
    /// The cooperative matrices, if the options allow them.
    pub matrices: Matrices,
    /// The size of the largest binding of a storage buffer in bytes.
    pub max_binding: u64,
    /// The size of the largest buffer in bytes.
    pub max_buffer: u64,
    /// The alignment of bound ranges of storage buffers in bytes.
    pub alignment: u64,
    /// The number of storage buffers that a kernel may bind.
    pub max_storage_buffers: u32,
    /// The workgroup memory that a kernel may use, in bytes.
    pub max_workgroup_bytes: u32,
    /// The number of invocations that a workgroup may have.
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
    shared: Arc<OpenDevice>,
    /// How long this handle waits for the GPU; `None` for no limit.
    patience: Option<Duration>,
}

struct OpenDevice {
    device: wgpu::Device,
    queue: wgpu::Queue,
    report: AdapterReport,
    capabilities: Capabilities,
    options: GpuOptions,
    failures: Failures,
    meter: Arc<MemoryMeter>,
    counts: Counts,
    /// See [`Gpu::before_submissions`].
    before: Before,
    /// Blocks submissions during a [`Pause`].
    gate: Arc<Gate>,
    /// Whether all submitted work is dropped: see [`Gpu::drop_work`].
    drops_work: AtomicBool,
    /// The pipelines that all models on the device share.
    pipelines: Arc<PipelineSlots>,
}

impl Gpu {
    /// The adapter of the device.
    pub fn report(&self) -> &AdapterReport {
        &self.shared.report
    }

    /// The capabilities of the device.
    pub fn capabilities(&self) -> &Capabilities {
        &self.shared.capabilities
    }

    /// The wgpu device, for shaders and pipelines.
    pub(crate) fn device(&self) -> &wgpu::Device {
        &self.shared.device
    }

    /// The pipelines that all models on the device share. They stay until the device is closed.
    pub(crate) fn pipelines(&self) -> &Arc<PipelineSlots> {
        &self.shared.pipelines
    }

    /// Whether shaders check every index.
    pub(crate) fn checks(&self) -> bool {
        self.shared.options.checks
    }
}

impl std::fmt::Debug for Gpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let report = self.report();
        f.debug_struct("Gpu").field("name", &report.name).field("backend", &report.backend).finish_non_exhaustive()
    }
}
