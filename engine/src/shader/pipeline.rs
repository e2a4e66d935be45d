//! Compiles variants into pipelines, each once. A variant that a driver refuses is not compiled again, and a compiler
//! that never returns is abandoned: it runs on a thread that owns everything it needs, and wgpu holds no lock of the
//! device while a driver compiles, so other kernels still compile.

use super::{Access, Reflected, Variant, reflect};
use crate::error::{Error, KernelFault, Result};
use crate::gpu::{AdapterReport, Gpu, Pipeline, PipelineSlot, PipelineSlots};
use crate::threads::{Job, StopCheck, cores, detach, lock, work};
use std::borrow::Cow;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The pipelines compiled so far for one device. Clones share them.
#[derive(Clone)]
pub struct Pipelines {
    gpu: Gpu,
    compiled: Arc<PipelineSlots>,
    altered: Option<fn(&Variant) -> Variant>,
    /// How long compiling may take without any kernel being finished, and when one was last finished.
    patience: Duration,
    progress: Arc<Mutex<Instant>>,
}

/// A variant that cannot be compiled, and why.
pub(crate) struct Refusal {
    pub variant: Variant,
    pub fault: KernelFault,
    pub error: Error,
}

/// What an error says about the kernel that could not be compiled; `None` if the reason is temporary, or is not the
/// kernel.
fn fault_of(error: &Error) -> Option<KernelFault> {
    match error {
        Error::Shader { .. } | Error::Gpu { .. } | Error::Worker { .. } => Some(KernelFault::Refused),
        Error::Endless { .. } => Some(KernelFault::CompilesForever),
        _ => None,
    }
}

fn lasts(error: &Error) -> bool {
    fault_of(error).is_some()
}

impl Pipelines {
    /// An empty set that is not shared with others.
    pub fn new(gpu: &Gpu) -> Self {
        let (patience, progress) = (Self::usual_patience(gpu.report()), Arc::new(Mutex::new(Instant::now())));
        Self { gpu: gpu.clone(), compiled: Arc::default(), altered: None, patience, progress }
    }

    /// How long compiling may take without any kernel being finished. A driver compiles one in a few seconds at most; a
    /// software driver shares the processor with all other programs.
    pub(crate) fn usual_patience(report: &AdapterReport) -> Duration {
        Duration::from_secs(if report.is_software() { 600 } else { 60 })
    }

    /// The pipelines that all models on the device share, so that the next model need not compile them again. They stay
    /// until the device is closed.
    pub fn of(gpu: &Gpu) -> Self {
        Self { compiled: gpu.pipelines().clone(), ..Self::new(gpu) }
    }

    /// These pipelines, and further ones that are dropped together with the returned value.
    pub(crate) fn beside(&self) -> Self {
        let there = lock(&self.compiled).clone();
        Self { compiled: Arc::new(Mutex::new(there)), ..self.clone() }
    }

    /// Compiles `altered` of each variant instead of the variant itself: for tests with wrong kernels.
    pub(crate) fn altered(self, altered: Option<fn(&Variant) -> Variant>) -> Self {
        Self { altered, ..self }
    }

    /// The same pipelines with another limit on how long compiling may take without any kernel being finished.
    pub(crate) fn patient(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// The same pipelines for another handle to the device.
    pub(crate) fn through(&self, gpu: &Gpu) -> Self {
        Self { gpu: gpu.clone(), ..self.clone() }
    }

    /// The device.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Compiles those of `variants` that are not compiled yet, on all cores.
    ///
    /// # Errors
    /// [`Error::Shader`] or [`Error::Gpu`] for a variant that does not compile or exceeds the device's limits,
    /// [`Error::Endless`] for one that the driver does not finish.
    pub fn prepare(&self, variants: &[Variant]) -> Result<Vec<Arc<Pipeline>>> {
        self.prepare_while(variants, &mut || Ok(()))
    }

    /// Like [`Pipelines::prepare`]. Meanwhile `check_stop` is called repeatedly on this thread. If it refuses, no
    /// further kernel is compiled, but those that are compiling are finished, because no driver can be interrupted.
    ///
    /// # Errors
    /// The errors of [`Pipelines::prepare`], and the error of `check_stop`.
    pub fn prepare_while(
        &self,
        variants: &[Variant],
        check_stop: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Vec<Arc<Pipeline>>> {
        self.prepare_counted(variants, &|| {}, check_stop)
    }

    /// Like [`Pipelines::prepare_while`]. `compiled` is called after each variant.
    ///
    /// # Errors
    /// See [`Pipelines::prepare_while`].
    pub(crate) fn prepare_counted(
        &self,
        variants: &[Variant],
        compiled: &(dyn Fn() + Sync),
        check_stop: &mut StopCheck<'_>,
    ) -> Result<Vec<Arc<Pipeline>>> {
        match self.try_prepare(variants, compiled, check_stop)?.into_iter().next() {
            Some(refusal) => Err(refusal.error),
            None => variants.iter().map(|v| self.get(v)).collect(),
        }
    }

    /// Like [`Pipelines::prepare_counted`], but continues after a variant that cannot be compiled, and returns all such
    /// variants.
    ///
    /// # Errors
    /// The error of `check_stop`; any error from the device.
    pub(crate) fn try_prepare(
        &self,
        variants: &[Variant],
        compiled: &(dyn Fn() + Sync),
        check_stop: &mut StopCheck<'_>,
    ) -> Result<Vec<Refusal>> {
        let missing = self.missing(variants);
        if missing.count() > 0 {
            work("compiling kernels", missing.jobs(compiled), |_| Ok(()), check_stop)?;
        }
        Ok(self.refused(variants))
    }

    /// The variants that are known not to compile.
    pub(crate) fn refused(&self, variants: &[Variant]) -> Vec<Refusal> {
        let refusal = |variant: &Variant| {
            let error = self.known(variant)?.err()?;
            Some(Refusal { variant: variant.clone(), fault: fault_of(&error)?, error })
        };
        variants.iter().filter_map(refusal).collect()
    }

    /// The variants that are not compiled yet.
    pub(crate) fn missing<'a>(&'a self, variants: &'a [Variant]) -> Missing<'a> {
        let mut seen = HashSet::new();
        let missing = variants.iter().filter(|variant| self.known(variant).is_none() && seen.insert(*variant));
        let mut variants: Vec<&Variant> = missing.collect();
        // Threads take the variants one by one; those that probably take longest come first.
        variants.sort_by_key(|variant| std::cmp::Reverse(variant.length()));
        Missing { pipelines: self, variants, next: AtomicUsize::new(0) }
    }

    fn slot(&self, variant: &Variant) -> Arc<PipelineSlot> {
        let mut compiled = lock(&self.compiled);
        if let Some(slot) = compiled.get(variant) {
            return slot.clone();
        }
        compiled.entry(variant.clone()).or_default().clone()
    }

    /// The pipeline or the lasting error of a variant, if it was compiled.
    fn known(&self, variant: &Variant) -> Option<Result<Arc<Pipeline>>> {
        let slot = lock(&self.compiled).get(variant).cloned();
        slot?.known().filter(|known| known.as_ref().err().is_none_or(lasts))
    }

    fn get(&self, variant: &Variant) -> Result<Arc<Pipeline>> {
        let slot = self.slot(variant);
        if slot.begin(lasts) {
            self.compile_into(slot.clone(), variant.clone());
        }
        slot.wait(|since| {
            let last = since.max(*lock(&self.progress));
            let left = self.patience.checked_sub(last.elapsed()).filter(|left| !left.is_zero());
            left.ok_or_else(|| Error::Endless {
                doing: format!("compiling `{}`", variant.label),
                seconds: self.patience.as_secs(),
            })
        })
    }

    /// Compiles a variant on a thread that can be abandoned.
    fn compile_into(&self, slot: Arc<PipelineSlot>, variant: Variant) {
        let Self { gpu, altered, progress, .. } = self.clone();
        detach("compiling kernels", move || {
            let compiled = catch_unwind(AssertUnwindSafe(|| match altered {
                None => compile(&gpu, &variant),
                Some(alter) => compile(&gpu, &alter(&variant)),
            }));
            drop(gpu); // before a waiting thread continues that may expect to hold the last handle
            *lock(&progress) = Instant::now();
            let died = Error::Worker { doing: "compiling kernels" };
            slot.end(compiled.unwrap_or(Err(died)).map(Arc::new));
        });
    }
}

/// Variants that remain to be compiled.
pub(crate) struct Missing<'a> {
    pipelines: &'a Pipelines,
    variants: Vec<&'a Variant>,
    /// The index of the first variant that no thread has taken.
    next: AtomicUsize,
}

impl Missing<'_> {
    /// The number of variants.
    pub fn count(&self) -> usize {
        self.variants.len()
    }

    /// Jobs that compile all of them and call `done` for each. A variant that cannot be compiled ends no job, but a job
    /// that has waited in vain for a compiler leaves the remaining variants to the others.
    pub fn jobs<'a>(&'a self, done: &'a (dyn Fn() + Sync)) -> Vec<Job<'a>> {
        let job = || -> Job<'a> { Box::new(|check_stop| self.compile(done, check_stop)) };
        (0..cores().min(self.count())).map(|_| job()).collect()
    }

    fn compile(&self, done: &dyn Fn(), check_stop: &mut StopCheck<'_>) -> Result<()> {
        while let Some(variant) = self.variants.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            check_stop()?;
            match self.pipelines.get(variant) {
                Err(Error::Endless { .. }) => break,
                Err(error) if !lasts(&error) => return Err(error),
                Ok(_) | Err(_) => done(),
            }
        }
        check_stop()
    }
}

fn compile(gpu: &Gpu, variant: &Variant) -> Result<Pipeline> {
    let reflected = reflect(variant)?;
    check_limits(gpu, variant, &reflected)?;
    let Reflected { module, bindings, .. } = reflected;
    let entries: Vec<_> = bindings.iter().zip(0..).map(|(b, index)| layout_entry(index, b.access)).collect();
    let checks = gpu.checks();
    gpu.attempt(&format!("compiling `{}`", variant.label), 0, |device| {
        let (raw, layout) = gpu.compiling(|| create_pipeline(device, &variant.label, module, &entries, checks));
        Pipeline { raw, layout, bindings }
    })
}

fn create_pipeline(
    device: &wgpu::Device,
    label: &str,
    module: naga::Module,
    entries: &[wgpu::BindGroupLayoutEntry],
    checks: bool,
) -> (wgpu::ComputePipeline, wgpu::BindGroupLayout) {
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
    (raw, layout)
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
            let message = format!("needs {wanted} {what}, but this GPU allows {allowed}; use another GPU");
            return Err(Error::Shader { variant: variant.label.clone(), message });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::GpuOptions;
    use crate::shader::{Constant, SourcePart};
    use crate::wgsl::source;

    static COMPILED: AtomicUsize = AtomicUsize::new(0);

    fn counted(variant: &Variant) -> Variant {
        COMPILED.fetch_add(1, Ordering::Relaxed);
        variant.clone()
    }

    /// Shaders that were never compiled before.
    fn copies(count: u32) -> Vec<Variant> {
        let constant = |name: &str, value| (name.to_owned(), Constant::U32(value));
        let variant = |size| Variant {
            label: format!("copy.w{size}"),
            enables: Vec::new(),
            constants: vec![constant("WORKGROUP", size), constant("CHUNKS", 1)],
            parts: vec![SourcePart { source: source!("op/copy.wgsl"), role: "w" }],
        };
        (1..=count).map(variant).collect()
    }

    #[test]
    fn whoever_asks_it_is_compiled_once() -> Result<()> {
        let pipelines = Pipelines::new(&Gpu::open(&GpuOptions::default())?).altered(Some(counted));
        let variants = copies(3);
        let ask = || -> Job<'_> { Box::new(|_| pipelines.prepare(&variants).map(drop)) };
        work("asking", (0..8).map(|_| ask()).collect(), |_| Ok(()), &mut || Ok(()))?;
        assert_eq!(COMPILED.load(Ordering::Relaxed), variants.len());
        assert_eq!(pipelines.missing(&variants).count(), 0);
        Ok(())
    }

    #[test]
    fn whoever_refuses_is_heard_between_two() -> Result<()> {
        let pipelines = Pipelines::new(&Gpu::open(&GpuOptions::default())?);
        let variants = copies(100);
        let mut asked = 0;
        let refused = pipelines.prepare_while(&variants, &mut || {
            asked += 1;
            if asked < 3 { Ok(()) } else { Err(Error::Cancelled) }
        });
        assert!(matches!(refused, Err(Error::Cancelled)));
        assert_eq!(asked, 3);
        assert!(pipelines.missing(&variants).count() > 0, "everything was compiled");
        assert_eq!(pipelines.prepare(&variants)?.len(), variants.len());
        Ok(())
    }
}
