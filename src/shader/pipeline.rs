//! Compiles variants into pipelines, each once.

use super::{Access, BindingInfo, Reflected, Variant, reflect};
use crate::error::{Error, Result};
use crate::gpu::{Gpu, Pipeline};
use crate::threads::joined;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A variant compiled for a device.
#[derive(Debug)]
pub struct Compiled {
    /// The pipeline.
    pub pipeline: Pipeline,
    /// Its buffers by name, in the order of their numbers.
    pub bindings: Vec<BindingInfo>,
}

/// The pipelines compiled so far for one device. Clones share them.
#[derive(Clone)]
pub struct Pipelines {
    gpu: Gpu,
    compiled: Arc<Mutex<HashMap<Variant, Arc<Compiled>>>>,
    altered: Option<fn(&Variant) -> Variant>,
}

impl Pipelines {
    /// No pipelines yet.
    pub fn new(gpu: &Gpu) -> Self {
        Self { gpu: gpu.clone(), compiled: Arc::default(), altered: None }
    }

    /// Compiles what `alter` makes of a variant in its place: for tests of what becomes of kernels that are wrong.
    pub(crate) fn altered(self, altered: Option<fn(&Variant) -> Variant>) -> Self {
        Self { altered, ..self }
    }

    /// The device.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Compiles those of `variants` that are not there yet, on all cores.
    ///
    /// # Errors
    /// [`Error::Shader`] for a variant that does not compile or asks for more than the device has.
    pub fn prepare(&self, variants: &[Variant]) -> Result<Vec<Arc<Compiled>>> {
        self.prepare_until(variants, &AtomicBool::new(false))
    }

    /// As [`Pipelines::prepare`], until somebody says `stop`.
    ///
    /// # Errors
    /// As there, and [`Error::Cancelled`].
    pub fn prepare_until(&self, variants: &[Variant], stop: &AtomicBool) -> Result<Vec<Arc<Compiled>>> {
        let go_on = || if stop.load(Ordering::Relaxed) { Err(Error::Cancelled) } else { Ok(()) };
        let mut seen = HashSet::new();
        let missing = variants.iter().filter(|variant| self.known(variant).is_none() && seen.insert(*variant));
        let mut missing: Vec<&Variant> = missing.collect();
        // Threads take one after the other, those that are likely to take longest first.
        missing.sort_by_key(|variant| std::cmp::Reverse(variant.length()));
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(missing.len());
        let next = AtomicUsize::new(0);
        let take = || missing.get(next.fetch_add(1, Ordering::Relaxed));
        let compile = || {
            while let Some(variant) = take() {
                let compiled = go_on().and_then(|()| self.get(variant));
                compiled.inspect_err(|_| next.store(missing.len(), Ordering::Relaxed))?;
            }
            Ok(())
        };
        std::thread::scope(|scope| joined((0..threads).map(|_| scope.spawn(compile)).collect(), "compiling kernels"))?;
        variants.iter().map(|v| self.get(v)).collect()
    }

    fn known(&self, variant: &Variant) -> Option<Arc<Compiled>> {
        self.compiled.lock().unwrap_or_else(PoisonError::into_inner).get(variant).cloned()
    }

    fn get(&self, variant: &Variant) -> Result<Arc<Compiled>> {
        if let Some(kernel) = self.known(variant) {
            return Ok(kernel);
        }
        let kernel = match self.altered {
            None => compile(&self.gpu, variant)?,
            Some(alter) => compile(&self.gpu, &alter(variant))?,
        };
        let kernel = Arc::new(kernel);
        self.compiled.lock().unwrap_or_else(PoisonError::into_inner).insert(variant.clone(), kernel.clone());
        Ok(kernel)
    }
}

fn compile(gpu: &Gpu, variant: &Variant) -> Result<Compiled> {
    let reflected = reflect(variant)?;
    check_limits(gpu, variant, &reflected)?;
    let Reflected { module, bindings, .. } = reflected;
    let entries: Vec<_> = bindings.iter().zip(0..).map(|(b, index)| layout_entry(index, b.access)).collect();
    let checks = gpu.checks();
    let pipeline = gpu.attempt(&format!("compiling `{}`", variant.label), 0, |device| {
        gpu.compiling(|| create_pipeline(device, &variant.label, module, &entries, checks))
    })?;
    Ok(Compiled { pipeline, bindings })
}

fn create_pipeline(
    device: &wgpu::Device,
    label: &str,
    module: naga::Module,
    entries: &[wgpu::BindGroupLayoutEntry],
    checks: bool,
) -> Pipeline {
    let label = Some(label);
    let source = wgpu::ShaderSource::Naga(Cow::Owned(module));
    let checks = if checks { wgpu::ShaderRuntimeChecks::checked() } else { wgpu::ShaderRuntimeChecks::unchecked() };
    // SAFETY: the shaders are the project's own. Their indices come from the plan, whose shapes are checked
    // when it is built, and from token ids and expert ids, which are bounded before use; the tests run every
    // kernel with the checks on.
    let module = unsafe { device.create_shader_module_trusted(wgpu::ShaderModuleDescriptor { label, source }, checks) };
    let layout = device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label, entries });
    let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label,
        bind_group_layouts: &[Some(&layout)],
        immediate_size: 0,
    });
    let compilation_options =
        wgpu::PipelineCompilationOptions { zero_initialize_workgroup_memory: false, ..Default::default() };
    let raw = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label,
        layout: Some(&pipeline_layout),
        module: &module,
        entry_point: Some("main"),
        compilation_options,
        cache: None,
    });
    Pipeline { raw, layout }
}

fn layout_entry(binding: u32, access: Access) -> wgpu::BindGroupLayoutEntry {
    let ty = match access {
        Access::Uniform => wgpu::BufferBindingType::Uniform,
        Access::Read => wgpu::BufferBindingType::Storage { read_only: true },
        Access::ReadWrite => wgpu::BufferBindingType::Storage { read_only: false },
    };
    wgpu::BindGroupLayoutEntry {
        binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset: false, min_binding_size: None },
        count: None,
    }
}

fn check_limits(gpu: &Gpu, variant: &Variant, reflected: &Reflected) -> Result<()> {
    let capabilities = gpu.capabilities();
    let storage = reflected.bindings.iter().filter(|b| b.access != Access::Uniform).count() as u32;
    let wants = [
        ("storage buffers", storage, capabilities.max_storage_buffers),
        ("bytes of workgroup memory", reflected.workgroup_bytes, capabilities.max_workgroup_bytes),
        ("invocations in a workgroup", reflected.workgroup_size, capabilities.max_workgroup_size),
    ];
    for (what, wanted, allowed) in wants {
        if wanted > allowed {
            let message = format!("needs {wanted} {what}, but the adapter allows {allowed}; use another adapter");
            return Err(Error::Shader { variant: variant.label.clone(), message });
        }
    }
    Ok(())
}
