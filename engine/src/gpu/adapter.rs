//! Lists the adapters, and selects the one to open.

use super::{GpuOptions, heaps};
use crate::error::{Error, Result};
use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// The cooperative matrices that wglm's kernels use: matrices of f16 and, for 8 x 8, of f32, summed in f32 by subgroups
/// of 32 lanes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Matrices {
    /// The adapter has neither size.
    #[default]
    None,
    /// Matrices of 8 x 8, as on Metal.
    Eight,
    /// Matrices of 16 x 16.
    Sixteen,
}

/// A graphics API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Backend {
    /// Apple's.
    Metal,
    /// Linux's, Windows' and Android's.
    Vulkan,
    /// Windows'.
    Dx12,
    /// An API that only apps open devices with.
    Other,
}

impl Backend {
    /// Its name: `metal`, `vulkan`, `dx12` or `other`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Metal => "metal",
            Self::Vulkan => "vulkan",
            Self::Dx12 => "dx12",
            Self::Other => "other",
        }
    }

    /// The backends in a comma-separated list of names, as in `WGPU_BACKEND`. The names are those of
    /// [`name`](Self::name), in upper or lower case, or wgpu's short ones: `mtl`, `vk`, `d3d12`.
    ///
    /// # Errors
    /// [`Error::Argument`] for another name.
    pub fn list(names: &str) -> Result<Vec<Self>> {
        names.split(',').map(|name| name.trim().parse()).collect()
    }

    fn of(backend: wgpu::Backend) -> Self {
        match backend {
            wgpu::Backend::Metal => Self::Metal,
            wgpu::Backend::Vulkan => Self::Vulkan,
            wgpu::Backend::Dx12 => Self::Dx12,
            _ => Self::Other,
        }
    }

    fn in_wgpu(self) -> wgpu::Backends {
        match self {
            Self::Metal => wgpu::Backends::METAL,
            Self::Vulkan => wgpu::Backends::VULKAN,
            Self::Dx12 => wgpu::Backends::DX12,
            Self::Other => wgpu::Backends::empty(),
        }
    }
}

impl FromStr for Backend {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name.to_lowercase().as_str() {
            "metal" | "mtl" => Ok(Self::Metal),
            "vulkan" | "vk" => Ok(Self::Vulkan),
            "dx12" | "d3d12" => Ok(Self::Dx12),
            other => Err(Error::argument("backend", "metal, vulkan or dx12", format!("`{other}`"))),
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The kind of an adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AdapterKind {
    /// A GPU with memory of its own.
    Discrete,
    /// A GPU that shares the computer's memory.
    Integrated,
    /// A part of a GPU in a virtual machine.
    Virtual,
    /// A driver that computes on the CPU.
    Software,
    /// The driver does not say.
    Other,
}

impl AdapterKind {
    /// Its name: `discrete`, `integrated`, `virtual`, `software` or `other`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Discrete => "discrete",
            Self::Integrated => "integrated",
            Self::Virtual => "virtual",
            Self::Software => "software",
            Self::Other => "other",
        }
    }

    fn of(kind: wgpu::DeviceType) -> Self {
        match kind {
            wgpu::DeviceType::DiscreteGpu => Self::Discrete,
            wgpu::DeviceType::IntegratedGpu => Self::Integrated,
            wgpu::DeviceType::VirtualGpu => Self::Virtual,
            wgpu::DeviceType::Cpu => Self::Software,
            wgpu::DeviceType::Other => Self::Other,
        }
    }
}

impl fmt::Display for AdapterKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The properties of an adapter.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AdapterReport {
    /// The adapter's name.
    pub name: String,
    /// The PCI vendor id, if the driver reports it.
    pub vendor: u32,
    /// The backend through which it is used.
    pub backend: Backend,
    /// The kind.
    pub kind: AdapterKind,
    /// The driver and its version.
    pub driver: String,
    /// The sizes of the smallest and the largest subgroup, if it has subgroup operations.
    pub subgroup: Option<(u32, u32)>,
    /// Whether shaders can compute with f16.
    pub f16: bool,
    /// The cooperative matrices.
    pub matrices: Matrices,
    /// Whether the adapter has timestamps at the ends of a pass.
    pub timestamps: bool,
    /// The size of the largest binding of a storage buffer in bytes.
    pub max_binding: u64,
    /// The size of the largest buffer in bytes.
    pub max_buffer: u64,
    /// The adapter's memory in bytes, if the backend reports it, as Vulkan and Metal do.
    pub memory: Option<u64>,
    /// The workgroup memory that a kernel may use, in bytes.
    pub max_workgroup_bytes: u32,
    /// The number of storage buffers that a kernel may bind.
    pub max_storage_buffers: u32,
}

impl AdapterReport {
    pub(super) fn of(adapter: &wgpu::Adapter) -> Self {
        let (info, features, limits) = (adapter.get_info(), adapter.features(), adapter.limits());
        let subgroups = features.contains(wgpu::Features::SUBGROUP);
        Self {
            vendor: info.vendor,
            backend: Backend::of(info.backend),
            kind: AdapterKind::of(info.device_type),
            driver: format!("{} {}", info.driver, info.driver_info).trim().to_owned(),
            subgroup: subgroups.then_some((info.subgroup_min_size, info.subgroup_max_size)),
            f16: features.contains(wgpu::Features::SHADER_F16),
            matrices: matrices_of(adapter),
            timestamps: features.contains(wgpu::Features::TIMESTAMP_QUERY),
            max_binding: limits.max_storage_buffer_binding_size,
            max_buffer: limits.max_buffer_size,
            memory: heaps::memory(adapter),
            max_workgroup_bytes: limits.max_compute_workgroup_storage_size,
            max_storage_buffers: limits.max_storage_buffers_per_shader_stage,
            name: info.name,
        }
    }

    /// The size of the smallest subgroup, or 1 without subgroup operations. For Metal wgpu always reports 4 to 64;
    /// Apple's own GPUs have 32 lanes (Metal Feature Set Tables, SIMD-group width).
    pub fn smallest_subgroup(&self) -> usize {
        match self.subgroup {
            Some(_) if self.is_apple() => 32,
            Some((smallest, _)) => 1 << smallest.max(1).ilog2(),
            None => 1,
        }
    }

    /// Whether this is one of Apple's own GPUs, through Metal.
    pub fn is_apple(&self) -> bool {
        self.backend == Backend::Metal && self.name.starts_with("Apple")
    }

    /// Whether this is one of the GPUs on which the built-in choices were measured: NVIDIA's H100 and H200. On others
    /// [`tune`](crate::tune::tune()) may find better ones.
    pub fn is_measured(&self) -> bool {
        const NVIDIA: u32 = 0x10de;
        self.vendor == NVIDIA && ["H100", "H200"].iter().any(|name| self.name.contains(name))
    }

    /// Whether this is a software driver, which computes on the CPU.
    pub fn is_software(&self) -> bool {
        self.kind == AdapterKind::Software
    }
}

/// The largest cooperative matrices of the adapter that wglm's kernels use. On Metal these are 8 x 8 with subgroups of
/// 32, whatever wgpu reports.
fn matrices_of(adapter: &wgpu::Adapter) -> Matrices {
    use wgpu::CooperativeScalarType::{F16, F32};
    let (info, features) = (adapter.get_info(), adapter.features());
    let known = features.contains(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX | wgpu::Features::SHADER_F16);
    let apple = info.backend == wgpu::Backend::Metal && info.name.starts_with("Apple");
    let subgroups = apple || (info.subgroup_min_size == 32 && info.subgroup_max_size == 32);
    let properties = adapter.cooperative_matrix_properties();
    let has = |side: u32, operands| {
        let suits = |p: &wgpu::CooperativeMatrixProperties| {
            [p.m_size, p.n_size, p.k_size] == [side; 3] && p.ab_type == operands && p.cr_type == F32
        };
        known && subgroups && properties.iter().any(suits)
    };
    match (has(16, F16), has(8, F16) && has(8, F32)) {
        (true, _) => Matrices::Sixteen,
        (false, true) => Matrices::Eight,
        (false, false) => Matrices::None,
    }
}

/// Lists the adapters that match the options, strongest first; none if there is no driver.
pub fn adapters(options: &GpuOptions) -> Vec<AdapterReport> {
    enumerate(options).iter().map(AdapterReport::of).collect()
}

/// Everything that wgpu reports about the adapter that [`Gpu::open`](super::Gpu::open) would choose, one line for each
/// property. For bug reports, because [`AdapterReport`] has only what wglm uses.
///
/// # Errors
/// [`Error::NoAdapter`] as for [`Gpu::open`](super::Gpu::open).
pub fn adapter_details(options: &GpuOptions) -> Result<Vec<String>> {
    let adapter = choose(options)?;
    let mut lines = vec![format!("{:?}", adapter.get_info())];
    let features = adapter.features();
    lines.push(format!("features: {}", features.iter_names().map(|(name, _)| name).collect::<Vec<_>>().join(" ")));
    let limits = format!("{:#?}", adapter.limits());
    lines.extend(
        limits.lines().filter(|line| line.starts_with(' ')).map(|line| line.trim().trim_end_matches(',').to_owned()),
    );
    let matrices = adapter.cooperative_matrix_properties();
    lines.extend(matrices.iter().map(|properties| format!("{properties:?}")));
    Ok(lines)
}

fn enumerate(options: &GpuOptions) -> Vec<wgpu::Adapter> {
    let all = wgpu::Backends::all();
    let backends = options.backends.as_ref().map_or(all, |list| list.iter().map(|backend| backend.in_wgpu()).collect());
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = backends;
    descriptor.flags = options.flags;
    // Above this percentage of the memory that the driver reports as free, an allocation fails with an error. Otherwise
    // it would be moved to system memory, or the device would be lost.
    descriptor.memory_budget_thresholds.for_resource_creation = Some(97);
    let instance = wgpu::Instance::new(descriptor);
    let mut found = pollster::block_on(instance.enumerate_adapters(backends));
    found.sort_by_key(|adapter| rank(adapter.get_info().device_type, options.low_power));
    found
}

/// The rank of an adapter; lower is better.
fn rank(kind: wgpu::DeviceType, low_power: bool) -> u32 {
    match kind {
        wgpu::DeviceType::DiscreteGpu if low_power => 1,
        wgpu::DeviceType::IntegratedGpu if low_power => 0,
        wgpu::DeviceType::DiscreteGpu => 0,
        wgpu::DeviceType::IntegratedGpu => 1,
        wgpu::DeviceType::VirtualGpu => 2,
        wgpu::DeviceType::Other => 3,
        wgpu::DeviceType::Cpu => 4,
    }
}

pub(super) fn choose(options: &GpuOptions) -> Result<wgpu::Adapter> {
    let found = enumerate(options);
    let available: Vec<String> = found.iter().map(|a| format!("`{}`", a.get_info().name)).collect();
    let wanted = options.adapter.as_deref().map(str::to_lowercase);
    let fits = |a: &wgpu::Adapter| wanted.as_ref().is_none_or(|w| a.get_info().name.to_lowercase().contains(w));
    found.into_iter().find(fits).ok_or_else(|| no_adapter(options, &available))
}

fn no_adapter(options: &GpuOptions, available: &[String]) -> Error {
    let mut wanted = Vec::new();
    wanted.extend(options.adapter.as_ref().map(|name| format!("named `{name}`")));
    wanted.extend(options.backends.as_ref().map(|list| {
        let names: Vec<&str> = list.iter().map(|backend| backend.name()).collect();
        format!("on the backends `{}`", names.join(","))
    }));
    let vulkan = options.backends.as_ref().is_none_or(|list| list.contains(&Backend::Vulkan));
    let installable = vulkan && cfg!(target_os = "linux");
    let remedy = match available.is_empty() {
        true if installable => {
            "install a Vulkan driver (a software one on Debian and Ubuntu: `apt install mesa-vulkan-drivers`)"
        }
        true => "try another backend: metal on Apple systems, dx12 on Windows, vulkan elsewhere",
        false => "choose one of these",
    };
    Error::NoAdapter {
        wanted: if wanted.is_empty() { "at all".into() } else { wanted.join(" ") },
        available: if available.is_empty() { "none".into() } else { available.join(", ") },
        remedy,
    }
}
