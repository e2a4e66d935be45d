//! Finds, at load, which kernels cannot be used on an adapter, and plans without them.
//!
//! A kernel that the driver's compiler refuses or does not finish is treated like one that computes wrong results or
//! never ends: it is replaced, and no other kernel. Its replacement is the same kernel without subgroup operations, or
//! the equivalent without matrices ([`Target::replaced`](crate::plan::Target::replaced)). If that cannot be used
//! either, the load fails.

use super::Shaders;
use super::check::Subject;
use super::options::{DriverTimeouts, LoadOptions};
use super::planner::Planner;
use super::verdict::Check;
use crate::error::{Error, KernelFault, KernelFinding, Result, Verdict};
use crate::gpu::{BufferUse, Fetch, Gpu};
use crate::plan::Target;
use crate::shader::{Pipelines, Refusal, Variant};
use crate::threads::StopCheck;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

/// The remedy if neither a kernel nor its replacement can be used.
const NOTHING_LEFT: &str = "nothing can take its place; update the driver or use another GPU";
/// The remedy if a kernel has ended the device.
const DEAD: &str = "the GPU stopped working; open it and load the model again with this verdict, which avoids the \
                    kernel";

/// The kernels of a model's plans, as far as they can be used.
pub(super) struct KernelSelection<'a> {
    planner: &'a Planner<'a>,
    /// The target of the plans if every kernel can be used.
    wanted: &'a Target,
    subject: String,
    /// Whether the kernels of the present plans were checked.
    checked: bool,
    replaced: Vec<KernelFinding>,
    shaders: Shaders,
}

impl<'a> KernelSelection<'a> {
    /// The kernels for a target, without those that a verdict of an earlier load is about.
    ///
    /// # Errors
    /// The errors of [`Planner::shaders`].
    pub fn new(planner: &'a Planner<'a>, wanted: &'a Target, options: &LoadOptions) -> Result<Self> {
        let shaders = planner.shaders(wanted)?;
        let subject = shaders.subject(planner.gpu);
        let known = options.verdicts.iter().find(|verdict| verdict.subject() == subject);
        let (mut checked, mut replaced) = (false, Vec::new());
        if let Some(known) = known.filter(|_| options.check != Check::Always) {
            (checked, replaced) = (known.is_checked(), known.replaced().to_vec());
        }
        let mut kernels = Self { planner, wanted, subject, checked, replaced, shaders };
        if !kernels.replaced.is_empty() {
            kernels.shaders = planner.shaders(&kernels.target())?;
        }
        Ok(kernels)
    }

    /// The target of the plans.
    pub fn target(&self) -> Target {
        self.avoiding(self.wanted)
    }

    /// A target without the kernels that cannot be used.
    pub fn avoiding(&self, target: &Target) -> Target {
        avoiding(target, &self.replaced)
    }

    /// What verdicts on the kernels are about.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// The variants that a load compiles.
    pub fn compiled(&self) -> Vec<Variant> {
        self.shaders.compiled(self.planner.all)
    }

    /// Whether nothing is left to check.
    pub fn is_checked(&self) -> bool {
        self.checked
    }

    /// What was found; `None` if nothing was checked and nothing had to be replaced.
    pub fn verdict(&self) -> Option<Verdict> {
        let known = self.checked || !self.replaced.is_empty();
        known.then(|| Verdict::new(self.subject.clone(), self.checked, self.replaced.clone()))
    }

    /// Compiles the kernels, and replaces those that the driver refuses.
    ///
    /// # Errors
    /// [`Error::WrongKernel`] for one that cannot be replaced; the error of `check_stop`; any error from the device.
    pub fn compile(&mut self, pipelines: &Pipelines, check_stop: &mut StopCheck<'_>) -> Result<()> {
        loop {
            let refused = pipelines.try_prepare(&self.compiled(), &|| {}, check_stop)?;
            if refused.is_empty() {
                return Ok(());
            }
            let mut seen = HashSet::new();
            for refusal in refused.iter().filter(|refusal| seen.insert(refusal.variant.kernel())) {
                self.replace(refusal.into())?;
            }
        }
    }

    /// Checks the kernels, and replaces those that are wrong or do not end. If there is too little memory for a check,
    /// they are used unchecked.
    ///
    /// # Errors
    /// [`Error::WrongKernel`] for one that cannot be replaced, or that has ended the device; the error of `check_stop`;
    /// any error from the device.
    pub fn check(&mut self, subject: &Subject<'_>, check_stop: &mut StopCheck<'_>) -> Result<()> {
        let start = Instant::now();
        loop {
            let found = match subject.check(&self.target(), check_stop) {
                Err(Error::OutOfMemory { doing, .. }) => {
                    tracing::warn!("kernels were not checked: out of memory while {doing}");
                    return Ok(());
                }
                found => found?,
            };
            let Some(finding) = found else { break };
            let ended = finding.fault == KernelFault::RunsForever && !works(self.planner.gpu, subject.timeouts);
            let replaced = self.replace(finding.clone());
            if ended {
                return Err(self.error(finding, DEAD));
            }
            replaced?;
            self.compile(subject.pipelines, check_stop)?;
        }
        self.checked = true;
        tracing::info!(looked = ?subject.looked.get(), elapsed = ?start.elapsed(), "checked kernels");
        Ok(())
    }

    /// Plans without a kernel that cannot be used. It fails if that was done before, or changes nothing.
    fn replace(&mut self, finding: KernelFinding) -> Result<()> {
        tracing::warn!("kernel `{}` {}: {}", finding.kernel, finding.fault, finding.place);
        self.checked = false;
        if self.replaced.iter().any(|other| other.kernel == finding.kernel) {
            return Err(self.error(finding, NOTHING_LEFT));
        }
        self.replaced.push(finding.clone());
        let shaders = self.planner.shaders(&self.target())?;
        let after: HashSet<Variant> = shaders.clone().all().into_iter().collect();
        let before = std::mem::replace(&mut self.shaders, shaders).all();
        if before.iter().any(|variant| variant.kernel() == finding.kernel && after.contains(variant)) {
            self.replaced.pop(); // so that the next load does not consider it replaced
            return Err(self.error(finding, NOTHING_LEFT));
        }
        Ok(())
    }

    /// The error for a load that fails because of a kernel.
    fn error(&self, finding: KernelFinding, remedy: &'static str) -> Error {
        let verdict = Verdict::new(self.subject.clone(), false, self.replaced.clone());
        wrong_kernel(finding, verdict, self.planner.gpu, remedy)
    }
}

/// A target without the kernels that findings are about.
pub(super) fn avoiding(target: &Target, replaced: &[KernelFinding]) -> Target {
    let names = replaced.iter().map(|finding| finding.kernel.clone());
    Target { replaced: Arc::new(names.collect()), ..target.clone() }
}

/// The error for a kernel that cannot be used and was replaced before.
pub(super) fn nothing_left(finding: KernelFinding, verdict: Verdict, gpu: &Gpu) -> Error {
    wrong_kernel(finding, verdict, gpu, NOTHING_LEFT)
}

fn wrong_kernel(finding: KernelFinding, verdict: Verdict, gpu: &Gpu, remedy: &'static str) -> Error {
    let (KernelFinding { kernel, fault, place, .. }, verdict) = (finding, Arc::new(verdict));
    Error::WrongKernel { kernel, fault, adapter: gpu.report().name.clone(), place, remedy, verdict }
}

impl From<&Refusal> for KernelFinding {
    fn from(refusal: &Refusal) -> Self {
        let Refusal { variant, fault, error } = refusal;
        let why = match error {
            Error::Shader { message, .. } | Error::Gpu { message, .. } => message.clone(),
            Error::Endless { seconds, .. } => format!("not within {seconds} s"),
            other => other.to_string(),
        };
        Self::new(variant.kernel(), *fault, &format!("`{}`: {why}", variant.label))
    }
}

/// Whether the device still executes work, within the load's patience.
pub(super) fn works(gpu: &Gpu, timeouts: DriverTimeouts) -> bool {
    let gpu = &gpu.patient(timeouts.run);
    let probe = || Fetch::new(gpu, 4)?.read(&gpu.buffer("probe", 4, BufferUse::Storage)?, 0, 4);
    probe().is_ok()
}
