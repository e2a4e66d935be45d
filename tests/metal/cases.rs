//! Every kernel in every format, as Metal's text, against its reference on the CPU.

use crate::clang::{Build, Workshop};
use crate::emit::Shader;
use crate::execute::Executor;
use crate::translate::Text;
use crate::variants::{all, cases, shaders, targets};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use wglm::kernels::{KERNELS, Kernel};
use wglm::plan::{Plan, Step};
use wglm::reference::Case;
use wglm::shader::Variant;

/// Kernels in one file of C++: many share the cost of reading the shim.
const BATCH: usize = 24;

/// Invocations of a case, at most: grids that fold because they are so large are left to tests on GPUs.
const INVOCATIONS: u64 = 1 << 21;

/// The kernels, or those whose name contains what `KERNEL` says.
fn kernels() -> Vec<&'static Kernel> {
    let wanted = std::env::var("KERNEL").unwrap_or_default();
    KERNELS.iter().copied().filter(|kernel| kernel.name.contains(&wanted)).collect()
}

/// The cases of a kernel for every target, those that a Mac is never given left out, and those whose shaders are all
/// known from a target before.
fn distinct_cases(kernel: &Kernel) -> Vec<Case> {
    let mut known: HashSet<Variant> = HashSet::new();
    let mut distinct = Vec::new();
    for target in &targets() {
        let mut cases = cases(kernel, target);
        cases.retain(|case| !case.plan.variants.iter().all(|variant| known.contains(variant)));
        known.extend(cases.iter().flat_map(|case| case.plan.variants.clone()));
        distinct.extend(cases);
    }
    distinct
}

/// Cases that share a program, and its shaders.
struct Batch {
    cases: Vec<Case>,
    shaders: HashMap<Variant, Shader>,
}

fn batches(cases: Vec<Case>) -> Vec<Batch> {
    let mut batches: Vec<Batch> = Vec::new();
    for case in cases {
        let shaders = shaders([&case.plan]);
        if foreign(&shaders) || invocations(&case.plan, &shaders) > INVOCATIONS {
            continue;
        }
        if batches.last().is_none_or(|batch| batch.shaders.len() >= BATCH) {
            batches.push(Batch { cases: Vec::new(), shaders: HashMap::new() });
        }
        let batch = batches.last_mut().unwrap();
        batch.shaders.extend(shaders);
        batch.cases.push(case);
    }
    batches
}

/// True for cases with a kernel that no Mac is given.
fn foreign(shaders: &HashMap<Variant, Shader>) -> bool {
    shaders.values().any(Shader::foreign)
}

fn invocations(plan: &Plan, shaders: &HashMap<Variant, Shader>) -> u64 {
    let size = |step: &Step| u64::from(shaders[&plan.variants[step.variant]].workgroup_size);
    let groups = |step: &Step| step.grid.iter().map(|n| u64::from(*n)).product::<u64>();
    plan.steps.iter().map(|step| groups(step) * size(step)).sum()
}

impl Batch {
    fn texts(&self) -> Result<Vec<Text>, String> {
        let mut texts = self.shaders.values().map(Text::of).collect::<Result<Vec<_>, _>>()?;
        texts.sort_by(|a, b| a.label.cmp(&b.label));
        match texts.windows(2).find(|pair| pair[0].label == pair[1].label) {
            Some(pair) => Err(format!("two shaders are called {}", pair[0].label)),
            None => Ok(texts),
        }
    }

    /// Compiles the batch and runs its cases: failures.
    fn run(&self, name: &str, shop: &Workshop, build: Build) -> Result<Vec<String>, String> {
        let program = shop.program(&self.texts()?, build)?;
        let failure = |case: &Case| -> Option<String> {
            let told = match self.finals(case, &program) {
                Ok(finals) => case.judge(&finals).failure?,
                Err(fault) => fault,
            };
            Some(format!("{name} {} ({build:?}): {told}", case.name))
        };
        Ok(self.cases.iter().filter_map(failure).collect())
    }

    /// What a case leaves in its local buffers.
    fn finals(&self, case: &Case, program: &Path) -> Result<Vec<Vec<u8>>, String> {
        let mut executor = Executor::new(program, &case.plan, &self.shaders, &case.weights, &case.locals)?;
        executor.submit(0..case.plan.steps.len())?;
        let contents = case.plan.locals_by_id().zip(&case.locals);
        contents.map(|((local, _), content)| executor.read(local, content.len())).collect()
    }
}

/// Compiles and runs all of a kernel's cases: failures.
fn failures_of(kernel: &Kernel, shop: &Workshop) -> Vec<String> {
    let (start, distinct) = (Instant::now(), distinct_cases(kernel));
    let possible = distinct.iter().any(|case| !foreign(&shaders([&case.plan])));
    let batches = batches(distinct);
    let count: usize = batches.iter().map(|batch| batch.cases.len()).sum();
    let mut failures = Vec::new();
    if count == 0 && possible {
        failures.push(format!("{}: no case was run", kernel.name));
    }
    for (index, batch) in batches.iter().enumerate() {
        for build in Build::EXTREMES {
            let ran = batch.run(&format!("{}-{index}", kernel.name), shop, build);
            failures.extend(ran.unwrap_or_else(|error| vec![format!("{} ({build:?}): {error}", kernel.name)]));
        }
    }
    println!("{:<20} {count} cases, {:.1} s", kernel.name, start.elapsed().as_secs_f32());
    failures
}

#[test]
fn every_kernel_as_metal_text_agrees_with_its_reference() {
    let Some(shop) = Workshop::open() else { return };
    let (kernels, next) = (kernels(), AtomicUsize::new(0));
    let work = || {
        let mut failures = Vec::new();
        while let Some(kernel) = kernels.get(next.fetch_add(1, Ordering::Relaxed)) {
            failures.extend(failures_of(kernel, &shop));
        }
        failures
    };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let failures: Vec<String> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

/// Programs find a shader by its label, and so do people who read a plan or a compiler's complaint.
#[test]
fn labels_tell_shaders_apart() {
    let mut labels: Vec<&str> = all().keys().map(|variant| variant.label.as_str()).collect();
    labels.sort_unstable();
    let twice: Vec<_> = labels.windows(2).filter(|pair| pair[0] == pair[1]).collect();
    assert!(twice.is_empty(), "two shaders are called alike: {twice:?}");
}
