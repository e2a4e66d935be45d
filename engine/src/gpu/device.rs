//! Opens devices, or uses those of apps.

use super::{
    AdapterReport, Before, Capabilities, Counts, Failures, Gpu, GpuOptions, Matrices, MemoryMeter, OpenDevice, adapter,
};
use crate::error::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use wgpu::{Features, Limits};

/// The limits that kernels need on every device: the name of each, how to read it, and its smallest value. WebGPU
/// guarantees all of them except the number of storage buffers, which the product of two matrices of K-quants needs.
const REQUIRED_LIMITS: [(&str, Limit, u64); 5] = [
    ("max_storage_buffers_per_shader_stage", |l| l.max_storage_buffers_per_shader_stage.into(), 14),
    ("max_compute_workgroup_storage_size", |l| l.max_compute_workgroup_storage_size.into(), 16 << 10),
    ("max_compute_invocations_per_workgroup", |l| l.max_compute_invocations_per_workgroup.into(), 256),
    ("max_compute_workgroup_size_x", |l| l.max_compute_workgroup_size_x.into(), 256),
    ("max_compute_workgroups_per_dimension", |l| l.max_compute_workgroups_per_dimension.into(), 65_535),
];
/// Reads a limit.
type Limit = fn(&Limits) -> u64;

impl Gpu {
    /// Opens the adapter that the options select, or the strongest one, with all its limits.
    ///
    /// # Errors
    /// [`Error::NoAdapter`] if none matches, [`Error::Gpu`] if the driver refuses the device, [`Error::Limit`] if a
    /// limit is below what kernels need.
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

    /// [Closes](Gpu::close) this device and opens its adapter again, with the same options. Call it after
    /// [`Error::DeviceLost`]: load the model onto the new device, then continue replies
    /// ([`Reply::move_to`](crate::Reply::move_to)) and other sessions ([`Session::move_to`](crate::Session::move_to))
    /// there. The new device has no [`Gpu::before_submissions`] callback.
    ///
    /// # Errors
    /// The errors of [`Gpu::open`]; [`Error::Unsupported`] for a device that an app opened: only the app can open
    /// another; [`Error::Forked`].
    pub fn reopen(&self) -> Result<Self> {
        if !self.is_ours() {
            let remedy = "open a new device as before and pass it to `Gpu::from_wgpu`";
            return Err(Error::unsupported("reopening this device", "the app opened it", remedy));
        }
        self.check_process()?;
        self.close();
        Self::open(&self.shared.options)
    }

    /// Frees all memory that the device holds on the GPU, even if models and sessions still use it. From then on every
    /// call on this device fails with [`Error::DeviceLost`]. Without this call a lost device keeps its memory until the
    /// last model and session of it are dropped, and there may be no memory for a second model until then.
    ///
    /// A device that an app opened stays open; the app can destroy it.
    pub fn close(&self) {
        if self.is_ours() && self.check_process().is_ok() {
            self.record_closed();
            self.device().destroy();
            self.empty();
        }
    }

    /// The descriptor of a device on which wglm runs best: all limits of the adapter, and the features that kernels
    /// use. [`Gpu::open`] uses it, and so should an app that shares its device with wglm; it can add more.
    ///
    /// If the adapter has cooperative matrices, which wgpu calls experimental, they are requested, unless
    /// [`GpuOptions::matrices`] is off.
    pub fn descriptor(adapter: &wgpu::Adapter, options: &GpuOptions) -> wgpu::DeviceDescriptor<'static> {
        let matrices = options.subgroups && options.matrices && AdapterReport::of(adapter).matrices != Matrices::None;
        wgpu::DeviceDescriptor {
            label: Some("wglm"),
            required_features: adapter.features() & wanted_features(options, matrices),
            required_limits: adapter.limits(),
            memory_hints: wgpu::MemoryHints::MemoryUsage, // allocates large tensors separately
            // SAFETY: cooperative matrices are the only experimental feature that is requested, and kernels use them
            // only if the adapter lists exactly their size and types.
            experimental_features: if matrices {
                unsafe { wgpu::ExperimentalFeatures::enabled() }
            } else {
                Default::default()
            },
            ..Default::default()
        }
    }

    /// Uses a device that an app opened, so that both share it. The options that select an adapter have no effect. wglm
    /// does not use features that were not requested for the device; [`Gpu::descriptor`] lists them.
    ///
    /// The app's callbacks on the device stay, and so does the number of cores on which Metal compiles: [`Gpu::open`]
    /// requests all of them (`shouldMaximizeConcurrentCompilation`), whereas an app may need some for its frames.
    /// Errors of wglm's own calls are returned to their callers (wgpu's error scopes belong to a thread, and every call
    /// here is inside one), and a loss of the device is noticed when operations fail. Polling a device, as wglm does
    /// while it waits, runs the callbacks of all finished submissions and mappings, so callbacks of the app may run on
    /// the thread that generates.
    ///
    /// # Errors
    /// [`Error::Limit`] if a limit of the device is below what kernels need, [`Error::Argument`] if the device belongs
    /// to another adapter, [`Error::DeviceLost`] if it is already lost.
    pub fn from_wgpu(
        adapter: &wgpu::Adapter,
        device: wgpu::Device,
        queue: wgpu::Queue,
        options: &GpuOptions,
    ) -> Result<Self> {
        let (wanted, found) = (adapter.get_info(), device.adapter_info());
        if (&wanted.name, wanted.backend, wanted.device) != (&found.name, found.backend, found.device) {
            let named = |info: &wgpu::AdapterInfo| format!("a device of `{}` ({})", info.name, info.backend);
            return Err(Error::argument("device", named(&wanted), named(&found)));
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
        tracing::info!(adapter = report.name, backend = report.backend.name(), ?capabilities, "opened the GPU");
        let meter = Arc::new(MemoryMeter::up_to(options.memory_limit));
        let (options, counts, before) = (options.clone(), Counts::default(), Before::default());
        let (drops_work, pipelines) = (AtomicBool::default(), Arc::default());
        let shared = OpenDevice {
            device,
            queue,
            report,
            capabilities,
            options,
            failures,
            meter,
            counts,
            before,
            gate: Arc::default(),
            drops_work,
            pipelines,
        };
        Ok(Self { shared: Arc::new(shared), patience: None })
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
    let mut found = REQUIRED_LIMITS.into_iter().map(|(limit, found, expected)| (limit, found(limits), expected));
    let Some((limit, found, expected)) = found.find(|(_, found, least)| found < least) else { return Ok(()) };
    let remedy = "open the device with the descriptor from `Gpu::descriptor`, or use another GPU";
    Err(Error::Limit { limit, expected, found, remedy })
}

/// The capabilities of the adapter with which the device was opened, as far as the options allow them.
fn capabilities(report: &AdapterReport, device: &wgpu::Device, options: &GpuOptions) -> Capabilities {
    let (features, limits) = (device.features(), device.limits());
    let subgroups = options.subgroups && features.contains(Features::SUBGROUP);
    let opened = features.contains(Features::EXPERIMENTAL_COOPERATIVE_MATRIX | Features::SHADER_F16);
    let matrices = subgroups && options.matrices && opened;
    Capabilities {
        subgroups,
        subgroup: if subgroups { report.smallest_subgroup() } else { 1 },
        widest_subgroup: report.subgroup.filter(|_| subgroups).map_or(1, |(_, largest)| largest as usize),
        matrices: if matrices { report.matrices } else { Matrices::None },
        max_binding: limits.max_storage_buffer_binding_size,
        max_buffer: limits.max_buffer_size,
        alignment: limits.min_storage_buffer_offset_alignment.into(),
        max_storage_buffers: limits.max_storage_buffers_per_shader_stage,
        max_workgroup_bytes: limits.max_compute_workgroup_storage_size,
        max_workgroup_size: limits.max_compute_invocations_per_workgroup.min(limits.max_compute_workgroup_size_x),
    }
}
