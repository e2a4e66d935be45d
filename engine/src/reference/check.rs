//! Runs the cases of a kernel, one weight format at a time. The tests and `wglm selftest` share this, so that the
//! self-test holds another adapter to the same standard as the tests.

use super::case::{Inputs, share};
use super::{CASES, Case, Contents};
use crate::error::Result;
use crate::gpu::{Gpu, ReadbackCopy};
use crate::kernels::Kernel;
use crate::plan::{BufferRef, Checker, Executor, LocalId, Look, PlanContents, Target, Weight, WrongOutput};
use crate::quant::Arithmetic;
use crate::shader::{Pipelines, Variant};
use std::collections::HashSet;

/// The cases of a kernel that share a format and an arithmetic.
pub struct KernelCheck {
    /// The arithmetic of matrix-vector products.
    pub arithmetic: Arithmetic,
    /// The formats of the weights, as [`Case::formats`] names them.
    pub formats: String,
    /// The cases, at least one.
    pub cases: Vec<Case>,
}

/// The results of a check's cases.
#[derive(Debug, Clone)]
pub struct CaseVerdict {
    /// The largest error of the case that came closest to its bound, divided by the sum of the added magnitudes.
    pub worst: f64,
    /// The bound on that error.
    pub bound: f64,
    /// The cases that failed, and how.
    pub failures: Vec<String>,
}

impl Case {
    /// Runs the plan and returns the contents of the local buffers after each [group](Case::groups) of steps.
    ///
    /// # Errors
    /// What the device reports.
    pub fn run(&self, pipelines: &Pipelines) -> Result<Vec<Contents>> {
        let (gpu, executor) = (pipelines.gpu(), self.start(pipelines)?);
        let after = |steps| -> Result<Contents> {
            executor.submit(steps, &[])?;
            let contents = self.plan.locals_by_id().zip(&self.locals);
            contents.map(|((local, _), content)| read_local(gpu, &executor, local, content.len())).collect()
        };
        self.groups().into_iter().map(after).collect()
    }

    /// The plan with its inputs on a device.
    fn start(&self, pipelines: &Pipelines) -> Result<Executor> {
        let gpu = pipelines.gpu();
        let upload = |content: &Vec<u8>| -> Result<_> {
            let buffer = gpu.buffer("case", content.len() as u64, crate::gpu::BufferUse::Storage)?;
            gpu.write(&buffer, 0, content)?;
            Ok(buffer)
        };
        let weights = self.weights.iter().map(upload).collect::<Result<Vec<_>>>()?;
        let executor = Executor::new(pipelines, &self.plan, &weights)?;
        for ((local, _), content) in self.plan.locals_by_id().zip(&self.locals) {
            gpu.write(executor.local(local), 0, content)?;
        }
        Ok(executor)
    }

    /// Runs the plan step by step, and compares each step with its [`Reference`](crate::plan::Reference). `look` gets
    /// what was compared.
    ///
    /// # Errors
    /// What the device reports.
    pub fn run_steps(&self, pipelines: &Pipelines, look: &mut Look<'_>) -> Result<Option<WrongOutput>> {
        let executor = self.start(pipelines)?;
        let mut inputs = Inputs::new(self, &self.locals);
        let mut row = |weight: &Weight, row: usize| inputs.row(weight, row);
        let tokens = self.tokens(&self.locals);
        Checker::new(&executor, &self.plan, &mut row, 7)?.run(0..self.plan.steps.len(), tokens, &|_| true, look)
    }

    /// The formats of its weights joined by `+`, without vectors of f32; `-` if there is no other weight.
    pub fn formats(&self) -> String {
        let mut names: Vec<&str> = Vec::new();
        for bound in self.plan.steps.iter().flat_map(|step| &step.bindings) {
            let BufferRef::Weight(id) = bound.buffer else { continue };
            let weight = self.plan.weight(id);
            let matrix = weight.shape[1] * weight.shape[2] > 1;
            if matrix && !names.contains(&weight.quant.name) {
                names.push(weight.quant.name);
            }
        }
        if names.is_empty() { "-".into() } else { names.join("+") }
    }
}

fn read_local(gpu: &Gpu, executor: &Executor, local: LocalId, bytes: usize) -> Result<Vec<u8>> {
    let readback = gpu.readback("case", bytes as u64)?;
    let copy = ReadbackCopy { from: executor.local(local), offset: 0, bytes: bytes as u64, to: &readback, at: 0 };
    let done = executor.submit(0..0, &[copy])?;
    gpu.read(&readback, bytes as u64, &done)
}

impl Kernel {
    /// Its cases on a target; none if [`CASES`] does not have it.
    ///
    /// # Errors
    /// That of a case which cannot be planned for the target.
    pub fn cases(&self, target: &Target) -> Result<Vec<Case>> {
        let entry = CASES.iter().find(|(name, _)| *name == self.name);
        entry.map_or(Ok(Vec::new()), |(_, cases)| cases(target))
    }

    /// Its cases on a target, in either arithmetic: those of products of bytes only if they have shaders of their own.
    ///
    /// # Errors
    /// That of a case which cannot be planned for the target.
    pub fn checks(&self, target: &Target) -> Result<Vec<KernelCheck>> {
        let float = self.cases(&Target { arithmetic: Arithmetic::Float, ..target.clone() })?;
        let known: HashSet<Variant> = float.iter().flat_map(|case| case.plan.variants.clone()).collect();
        let mut int = self.cases(&Target { arithmetic: Arithmetic::Int, ..target.clone() })?;
        int.retain(|case| !case.plan.variants.iter().all(|variant| known.contains(variant)));
        let mut checks = grouped(Arithmetic::Float, float);
        checks.extend(grouped(Arithmetic::Int, int));
        Ok(checks)
    }
}

fn grouped(arithmetic: Arithmetic, cases: Vec<Case>) -> Vec<KernelCheck> {
    let mut checks: Vec<KernelCheck> = Vec::new();
    for case in cases {
        let formats = case.formats();
        match checks.iter_mut().find(|check| check.formats == formats) {
            Some(check) => check.cases.push(case),
            None => checks.push(KernelCheck { arithmetic, formats, cases: vec![case] }),
        }
    }
    checks
}

impl KernelCheck {
    /// Runs the cases.
    ///
    /// # Errors
    /// What the device reports. A wrong value is a failure in the verdict.
    pub fn run(&self, pipelines: &Pipelines) -> Result<CaseVerdict> {
        let mut verdict = CaseVerdict { worst: 0.0, bound: 0.0, failures: Vec::new() };
        for case in &self.cases {
            let outcome = case.judge(&case.run(pipelines)?)?;
            let failed = |failure| format!("{}: {failure}; error {:.1e}", case.name, outcome.worst);
            verdict.failures.extend(outcome.failure.map(failed));
            if closer(&(outcome.worst, outcome.bound), &verdict) {
                (verdict.worst, verdict.bound) = (outcome.worst, outcome.bound);
            }
        }
        Ok(verdict)
    }
}

/// Whether an error is larger, relative to its bound, than the worst so far.
fn closer(&(worst, bound): &(f64, f64), so_far: &CaseVerdict) -> bool {
    so_far.bound == 0.0 && so_far.worst == 0.0 || share(worst, bound) > so_far.share()
}

impl CaseVerdict {
    /// Whether every value was within its bound, and nothing else was written.
    pub fn passed(&self) -> bool {
        self.failures.is_empty()
    }

    /// The worst error divided by its bound; 0 for values that are compared exactly.
    pub fn share(&self) -> f64 {
        share(self.worst, self.bound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::KERNELS;
    use crate::plan::{Probe, Sample};

    /// The check at load compares few outputs, and f16 has wide bounds. It finds outputs that are off by a fifth. The
    /// tests of kernels compare all steps, but they need a GPU, and few GPUs have matrices.
    #[test]
    fn wrong_products_of_matrices_are_found() -> Result<()> {
        let is_found = |sample: &Sample| !sample.agrees(if sample.tolerance == 0.0 { -1.0 } else { 1.2 * sample.want });
        for kernel in KERNELS.iter().filter(|kernel| !kernel.matrices.is_empty()) {
            let mut found = 0;
            for &matrices in kernel.matrices {
                for case in kernel.cases(&Target { matrices, ..Target::default() })? {
                    // Without the results of earlier steps. Steps that choose by these have no outputs here, and
                    // products of these are zero.
                    for step in case.plan.steps.iter().filter(|step| step.kernel == kernel.name) {
                        let mut inputs = Inputs::new(&case, &case.locals);
                        let mut probe = Probe::new(&case.plan, &mut inputs, case.tokens(&case.locals), 7);
                        let Some(reference) = &step.reference else { continue };
                        let samples = reference.samples(&mut probe)?;
                        let samples: Vec<_> = samples.into_iter().filter(|sample| sample.want != 0.0).collect();
                        assert!(samples.is_empty() || samples.iter().any(is_found), "{} {}", kernel.name, case.name);
                        found += samples.len();
                    }
                }
            }
            assert!(found > 100, "{}: {found} outputs", kernel.name);
        }
        Ok(())
    }
}
