//! Devices: opened here, or taken from an app that draws with its own.

use super::{AdapterReport, Before, Capabilities, Counts, Failures, Gpu, GpuOptions, Matrices, Meter, Shared, adapter};
use crate::error::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use wgpu::{Features, Limits};

/// What kernels need of every device: of each limit its name, where it stands, and the least it may be. That is what
/// WebGPU promises everywhere, but for storage buffers: the product of two matrices of K-quants binds so many.
const LEAST: [(&str, Limit, u64); 5] = [
    ("max_storage_buffers_per_shader_stage", |l| l.max_storage_buffers_per_shader_stage.into(), 14),
    ("max_compute_workgroup_storage_size", |l| l.max_compute_workgroup_storage_size.into(), 16 << 10),
    ("max_compute_invocations_per_workgroup", |l| l.max_compute_invocations_per_workgroup.into(), 256),
    ("max_compute_workgroup_size_x", |l| l.max_compute_workgroup_size_x.into(), 256),
    ("max_compute_workgroups_per_dimension", |l| l.max_compute_workgroups_per_dimension.into(), 65_535),
];
/// Where a limit stands.
type Limit = fn(&Limits) -> u64;

impl Gpu {
    /// Opens the adapter the options ask for, otherwise the strongest there is, with all its limits.
    ///
    /// # Errors
    /// [`Error::NoAdapter`] if none fits, [`Error::Argument`] for a backend or a power preference that there is not, [`Error::Gpu`] if the
    /// driver refuses the device, [`Error::Limit`] if it allows less than kernels need.
    pub fn open(options: &GpuOptions) -> Result<Self> {
        let adapter = adapter::choose(options)?;
        let descriptor = Self::descriptor(&adapter, options);
        let (device, queue) = pollster::block_on(adapter.request_device(&descriptor)).map_err(|e| Error::Gpu {
            doing: format!("opening `{}`", adapter.get_info().name),
            message: e.to_string(),
        })?;
        #[cfg(target_os = "macos")]
        super::metal::compile_on_all_cores(&device);
        let failures = Failures::watch(&device);
        Self::on(&adapter, device, queue, options, failures)
    }

    /// What to ask of an adapter for a device that wglm can use at its best: all its limits, and of its features those
    /// that kernels use. More may be added to it. [`Gpu::open`] opens its own device with it, and an app that shares
    /// its device with wglm should.
    ///
    /// Where the adapter has cooperative matrices, which wgpu calls experimental, they are asked for, unless
    /// [`GpuOptions::matrices`] is off.
    pub fn descriptor(adapter: &wgpu::Adapter, options: &GpuOptions) -> wgpu::DeviceDescriptor<'static> {
        let matrices = options.subgroups && options.matrices && AdapterReport::of(adapter).matrices != Matrices::None;
        wgpu::DeviceDescriptor {
            label: Some("wglm"),
            required_features: adapter.features() & wanted_features(options, matrices),
            required_limits: adapter.limits(),
            memory_hints: wgpu::MemoryHints::MemoryUsage, // large tensors in blocks of their own
            // SAFETY: cooperative matrices are the only experimental feature asked for, and the kernels that use them
            // run only where the adapter lists their very size and types.
            experimental_features: if matrices {
                unsafe { wgpu::ExperimentalFeatures::enabled() }
            } else {
                Default::default()
            },
            ..Default::default()
        }
    }

    /// Uses a device that its owner goes on using: an app's, so that both draw on one. Of the options those count that
    /// do not choose an adapter. Features that the device was opened without are done without; [`Gpu::descriptor`]
    /// tells what to ask for.
    ///
    /// The device's callbacks stay its owner's, and so does on how many cores Metal compiles: [`Gpu::open`] asks for all
    /// of them (`shouldMaximizeConcurrentCompilation`), an app may want some for the frames that it draws. What goes
    /// wrong with wglm's own calls comes back to their callers (wgpu's error scopes belong to a thread, and every call
    /// here is inside one), and a loss of the device is noticed by what it refuses. Whoever polls a device, and wglm does while it waits, runs the callbacks of everyone's
    /// submissions and maps that are done: the app's may run on the thread that generates.
    ///
    /// # Errors
    /// [`Error::Limit`] if the device allows less than kernels need, [`Error::Argument`] if it is another adapter's,
    /// [`Error::DeviceLost`] if it is gone already.
    pub fn from_wgpu(
        adapter: &wgpu::Adapter,
        device: wgpu::Device,
        queue: wgpu::Queue,
        options: &GpuOptions,
    ) -> Result<Self> {
        let (wanted, found) = (adapter.get_info(), device.adapter_info());
        if (&wanted.name, wanted.backend, wanted.device) != (&found.name, found.backend, found.device) {
            let named = |info: &wgpu::AdapterInfo| format!("one of `{}` ({})", info.name, info.backend);
            return Err(Error::Argument { argument: "device", expected: named(&wanted), found: named(&found) });
        }
        let gpu = Self::on(adapter, device, queue, options, Failures::found())?;
        gpu.check()?;
        Ok(gpu)
    }

    fn on(
        adapter: &wgpu::Adapter,
        device: wgpu::Device,
        queue: wgpu::Queue,
        options: &GpuOptions,
        failures: Failures,
    ) -> Result<Self> {
        check_limits(&device.limits())?;
        let report = AdapterReport::of(adapter);
        let capabilities = capabilities(&report, &device, options);
        tracing::info!(adapter = report.name, backend = report.backend, ?capabilities, "opened the GPU");
        let meter = Arc::new(Meter::up_to(options.memory_limit));
        let (checks, counts, before) = (options.checks, Counts::default(), Before::default());
        let drops_work = AtomicBool::default();
        let shared =
            Shared { device, queue, report, capabilities, checks, failures, meter, counts, before, drops_work };
        Ok(Self { shared: Arc::new(shared) })
    }
}

fn wanted_features(options: &GpuOptions, matrices: bool) -> Features {
    let mut features = Features::empty();
    features.set(Features::EXPERIMENTAL_COOPERATIVE_MATRIX | Features::SHADER_F16, matrices);
    features.set(Features::SUBGROUP, options.subgroups);
    features.insert(Features::TIMESTAMP_QUERY);
    features
}

fn check_limits(limits: &Limits) -> Result<()> {
    let mut found = LEAST.into_iter().map(|(limit, found, expected)| (limit, found(limits), expected));
    let Some((limit, found, expected)) = found.find(|(_, found, least)| found < least) else { return Ok(()) };
    let remedy = "open the device as `Gpu::descriptor` says, or use another GPU";
    Err(Error::Limit { limit, expected, found, remedy })
}

/// What of the adapter's abilities the device was opened with, and the options want.
fn capabilities(report: &AdapterReport, device: &wgpu::Device, options: &GpuOptions) -> Capabilities {
    let (features, limits) = (device.features(), device.limits());
    let subgroups = options.subgroups && features.contains(Features::SUBGROUP);
    let opened = features.contains(Features::EXPERIMENTAL_COOPERATIVE_MATRIX | Features::SHADER_F16);
    let matrices = subgroups && options.matrices && opened;
    Capabilities {
        subgroups,
        subgroup: report.smallest_subgroup(),
        widest_subgroup: report.subgroup.map_or(1, |(_, largest)| largest as usize),
        matrices: if matrices { report.matrices } else { Matrices::None },
        max_binding: limits.max_storage_buffer_binding_size,
        max_buffer: limits.max_buffer_size,
        alignment: limits.min_storage_buffer_offset_alignment.into(),
        max_storage_buffers: limits.max_storage_buffers_per_shader_stage,
        max_workgroup_bytes: limits.max_compute_workgroup_storage_size,
        max_workgroup_size: limits.max_compute_invocations_per_workgroup.min(limits.max_compute_workgroup_size_x),
    }
}
