//! Makes pipelines, buffers and bind groups of a plan once, and submits it batch after batch.
//!
//! Buffers are made in the order in which steps name them, each cache together with its layer: with the caches of all
//! layers before all activations, attention of a token took 7.6 µs a layer on an H100 instead of 6.6. wgpu tracks whole
//! buffers, so each weight and each activation has one of its own.

use super::{BufferRef, Local, LocalId, Plan, Purpose, Step};
use crate::error::{Error, Result};
use crate::gpu::{
    Access, BindGroup, Binding, Buffer, BufferUse, Dispatch, Gpu, Pipeline, Prepared, ReadbackCopy, Submission,
};
use crate::shader::Pipelines;
use std::collections::HashMap;
use std::sync::Arc;

/// The distance in bytes between the parameters of two steps, which is the largest alignment that a device may require.
const PARAMS_STRIDE: u64 = 256;

/// A plan on a device. It owns the plan's local buffers, but not the weights.
pub struct Executor {
    gpu: Gpu,
    kernels: Vec<Arc<Pipeline>>,
    locals: Vec<Buffer>,
    /// The parameters of all steps, one after the other.
    params: Buffer,
    steps: Vec<Recorded>,
}

struct Recorded {
    kernel: usize,
    bindings: BindGroup,
    grid: [u32; 3],
}

impl Executor {
    /// Compiles the kernels of a plan, makes its buffers and binds them.
    ///
    /// # Errors
    /// [`Error::TooLarge`] and [`Error::OutOfMemory`] if a buffer does not fit on the device, [`Error::Shader`] for a
    /// kernel that does not compile.
    pub fn new(pipelines: &Pipelines, plan: &Plan, weights: &[Buffer]) -> Result<Self> {
        Self::with_locals(pipelines, plan, weights, &HashMap::new())
    }

    /// Like [`Executor::new`], but uses the buffers in `shared` instead of the plan's local buffers with these ids.
    /// Except for activations, such a buffer may be larger than the plan says, and is then bound whole.
    ///
    /// # Errors
    /// See [`Executor::new`].
    pub fn with_locals(
        pipelines: &Pipelines,
        plan: &Plan,
        weights: &[Buffer],
        shared: &HashMap<LocalId, Buffer>,
    ) -> Result<Self> {
        let gpu = pipelines.gpu().clone();
        plan.check_bindings(gpu.capabilities().max_binding)?;
        let compiled = pipelines.prepare(&plan.variants)?;
        let (mut locals, mut made) = (Vec::with_capacity(plan.locals.len()), Vec::new());
        for (id, Local { name, bytes, .. }) in plan.locals_by_id() {
            let buffer = match shared.get(&id) {
                Some(buffer) => buffer.clone(),
                None => {
                    let own = gpu.buffer(name, *bytes, BufferUse::Storage)?;
                    made.push(own.clone());
                    own
                }
            };
            locals.push(buffer);
        }
        gpu.zero(&made)?;
        let params = gpu.buffer("params", plan.params_memory(), BufferUse::Uniform)?;
        gpu.write(&params, 0, &params_of(plan))?;
        let steps = Vec::with_capacity(plan.steps.len());
        let mut executor = Self { gpu, kernels: compiled, locals, params, steps };
        if !shared.contains_key(&Plan::PAGES) {
            let pages: Vec<u32> = (0..plan.local(Plan::PAGES).bytes as u32 / 4).collect();
            executor.gpu.write(executor.local(Plan::PAGES), 0, bytemuck::cast_slice(&pages))?;
        }
        for (index, step) in plan.steps.iter().enumerate() {
            let recorded = executor.record(plan, step, weights, index as u64 * PARAMS_STRIDE)?;
            executor.steps.push(recorded);
        }
        Ok(executor)
    }

    fn record(&self, plan: &Plan, step: &Step, weights: &[Buffer], at: u64) -> Result<Recorded> {
        let kernel = &self.kernels[step.variant];
        let mut bindings = Vec::with_capacity(kernel.bindings.len());
        for (info, index) in kernel.bindings.iter().zip(0..) {
            if info.access == Access::Uniform {
                let bytes = (step.params.len() as u64).next_multiple_of(16);
                bindings.push(Binding { index, buffer: &self.params, offset: at, bytes });
                continue;
            }
            let bound = step.bindings.iter().find(|b| b.name == info.name).ok_or_else(|| unbound(step, &info.name))?;
            let buffer = match bound.buffer {
                BufferRef::Weight(id) => weights.get(id.index()).ok_or_else(|| unbound(step, &info.name))?,
                BufferRef::Local(id) => self.local(id),
            };
            let whole = matches!(bound.buffer, BufferRef::Local(id) if plan.local(id).purpose != Purpose::Scratch);
            let bytes = if whole { buffer.bytes() } else { bound.bytes };
            bindings.push(Binding { index, buffer, offset: bound.offset, bytes });
        }
        let bindings = self.gpu.bind(&step.label, kernel, &bindings)?;
        Ok(Recorded { kernel: step.variant, bindings, grid: step.grid })
    }

    /// The device.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// The plan's local buffer `id`.
    pub fn local(&self, id: LocalId) -> &Buffer {
        &self.locals[id.index()]
    }

    /// Submits some of the steps in order, then the copies.
    ///
    /// # Errors
    /// Any error that the driver has reported so far.
    pub fn submit(&self, steps: impl IntoIterator<Item = usize>, copies: &[ReadbackCopy<'_>]) -> Result<Submission> {
        self.gpu.submit(self.dispatches(steps), copies)
    }

    /// Like [`Executor::submit`], followed in the same pass by steps of another plan.
    ///
    /// # Errors
    /// See [`Executor::submit`].
    pub fn submit_with(
        &self,
        steps: impl IntoIterator<Item = usize>,
        then: (&Self, impl IntoIterator<Item = usize>),
        copies: &[ReadbackCopy<'_>],
    ) -> Result<Submission> {
        self.gpu.submit(self.dispatches(steps).chain(then.0.dispatches(then.1)), copies)
    }

    /// Records what [`Executor::submit`] would submit: see [`Gpu::prepare`].
    ///
    /// # Errors
    /// See [`Gpu::prepare`].
    pub fn prepare(
        &self,
        steps: impl IntoIterator<Item = usize>,
        copies: &[ReadbackCopy<'_>],
    ) -> Result<Option<Prepared>> {
        self.gpu.prepare(self.dispatches(steps), copies)
    }

    /// Runs passes of steps one after the other and returns what each took, in nanoseconds.
    ///
    /// # Errors
    /// See [`Gpu::time`].
    pub fn time(&self, passes: &[&[usize]]) -> Result<Vec<f64>> {
        let pass = |steps: &&[usize]| self.dispatches(steps.iter().copied()).collect();
        self.gpu.time(&passes.iter().map(pass).collect::<Vec<_>>())
    }

    fn dispatches(&self, steps: impl IntoIterator<Item = usize>) -> impl Iterator<Item = Dispatch<'_>> {
        steps.into_iter().map(|step| {
            let Recorded { kernel, bindings, grid, .. } = &self.steps[step];
            Dispatch { pipeline: &self.kernels[*kernel], bindings, grid: *grid }
        })
    }
}

impl Plan {
    /// The size in bytes of the parameters of all steps.
    pub fn params_memory(&self) -> u64 {
        PARAMS_STRIDE * self.steps.len() as u64
    }
}

fn unbound(step: &Step, name: &str) -> Error {
    Error::Shader { variant: step.label.clone(), message: format!("nothing is bound to `{name}`") }
}

fn params_of(plan: &Plan) -> Vec<u8> {
    let mut bytes = vec![0; PARAMS_STRIDE as usize * plan.steps.len()];
    for (step, slot) in plan.steps.iter().zip(bytes.chunks_exact_mut(PARAMS_STRIDE as usize)) {
        slot[..step.params.len()].copy_from_slice(&step.params);
    }
    bytes
}
