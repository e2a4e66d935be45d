//! Executes plans as a Mac would, step by step: `plan::Executor` for the machine.

use crate::emit::Shader;
use crate::machine::{Buffer, Liberties, Machine};
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use wglm_engine::plan::{BufferRef, LocalId, Plan, Step};
use wglm_engine::shader::{Access, Variant};

pub struct Executor {
    machine: Machine,
    locals: Vec<Buffer>,
    steps: Vec<Recorded>,
}

struct Recorded {
    kernel: String,
    grid: [u32; 3],
    bound: Vec<(Buffer, u64)>,
}

/// The initial content of a model's local buffers: zeros, and the pages of the cache in order.
pub fn local_buffers(plan: &Plan) -> Vec<Vec<u8>> {
    let mut locals: Vec<Vec<u8>> = plan.locals.iter().map(|local| vec![0; local.bytes as usize]).collect();
    let pages = locals[Plan::PAGES.index()].chunks_exact_mut(4).zip(0u32..);
    pages.for_each(|(entry, page)| entry.copy_from_slice(&page.to_le_bytes()));
    locals
}

impl Executor {
    /// A plan, a program with its kernels, and the initial content of its weights and local buffers.
    pub fn new(
        program: &Path,
        plan: &Plan,
        shaders: &HashMap<Variant, Shader>,
        weights: &[Vec<u8>],
        locals: &[Vec<u8>],
    ) -> Result<Self, String> {
        Self::on(Machine::start(program, Liberties::default()), plan, shaders, weights, locals)
    }

    /// The same, on a machine that runs the program.
    pub fn on(
        mut machine: Machine,
        plan: &Plan,
        shaders: &HashMap<Variant, Shader>,
        weights: &[Vec<u8>],
        locals: &[Vec<u8>],
    ) -> Result<Self, String> {
        let weights = weights.iter().map(|w| machine.buffer(w)).collect::<Result<Vec<_>, _>>()?;
        let locals = locals.iter().map(|l| machine.buffer(l)).collect::<Result<Vec<_>, _>>()?;
        let mut made = Self { machine, locals, steps: Vec::new() };
        for step in &plan.steps {
            let recorded = made.record(step, &shaders[&plan.variants[step.variant]], &weights)?;
            made.steps.push(recorded);
        }
        Ok(made)
    }

    fn record(&mut self, step: &Step, shader: &Shader, weights: &[Buffer]) -> Result<Recorded, String> {
        let mut bound = Vec::new();
        let mut bytes = Vec::new(); // of each
        for info in &shader.bindings {
            if info.access == Access::Uniform {
                let params = self.machine.buffer(&step.params)?;
                bound.push((params, 0));
                bytes.push(step.params.len() as u64);
                continue;
            }
            let named = step.bindings.iter().find(|b| b.name == info.name);
            let named = named.ok_or_else(|| format!("{}: nothing is bound to `{}`", step.label, info.name))?;
            let buffer = match named.buffer {
                BufferRef::Weight(id) => weights[id.index()],
                BufferRef::Local(id) => self.locals[id.index()],
            };
            bound.push((buffer, named.offset));
            bytes.push(named.bytes);
        }
        if shader.sizes().is_some() {
            let sizes = shader.unsized_bindings().into_iter().map(|number| bytes[number] as u32);
            bound.push((self.machine.buffer(bytemuck::cast_slice(&sizes.collect::<Vec<_>>()))?, 0));
        }
        Ok(Recorded { kernel: shader.label.clone(), grid: step.grid, bound })
    }

    /// Runs a range of the steps.
    pub fn submit(&mut self, steps: Range<usize>) -> Result<(), String> {
        self.steps[steps].iter().try_for_each(|step| self.machine.dispatch(&step.kernel, step.grid, &step.bound))
    }

    /// Writes the first bytes of a local buffer.
    pub fn write(&mut self, local: LocalId, content: &[u8]) -> Result<(), String> {
        self.machine.write(self.locals[local.index()], content)
    }

    /// Waits for all steps and reads the first bytes of a local buffer.
    pub fn read(&mut self, local: LocalId, bytes: usize) -> Result<Vec<u8>, String> {
        self.machine.read(self.locals[local.index()], bytes)
    }
}
