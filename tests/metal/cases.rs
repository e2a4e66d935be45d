//! Runs every kernel in every format, or in the formats of a covering set, as Metal source on the CPU, and compares it
//! with its reference.

use crate::clang::{Build, Level, Workshop};
use crate::common::covering::{Extent, Traits, covering};
use crate::emit::Shader;
use crate::execute::Executor;
use crate::injected::Fault;
use crate::machine::{Errors, Liberties, Machine, lane_seed};
use crate::rules::invocations;
use crate::translate::Text;
use crate::variants::{all, cases, shaders, targets};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use wglm_engine::kernels::{KERNELS, Kernel};
use wglm_engine::plan::Step;
use wglm_engine::reference::{Case, CaseOutcome, Contents, SLACK};
use wglm_engine::shader::Variant;

/// The number of kernels in one C++ file, which share the cost of parsing the shim.
const BATCH: usize = 24;

/// The file for matrices of 16 x 16.
const FOREIGN: &str = "lib/coop16.wgsl";

/// The most invocations of a case: grids so large that they continue in a second dimension are tested on GPUs only.
const INVOCATIONS: u64 = 1 << 21;

/// The kernels, or those whose name contains the value of the variable `KERNEL`.
fn kernels() -> Vec<&'static Kernel> {
    let wanted = std::env::var("KERNEL").unwrap_or_default();
    KERNELS.iter().copied().filter(|kernel| kernel.name.contains(&wanted)).collect()
}

/// The cases of a kernel for every target, except those that no Mac runs, the largest, and those whose shaders all
/// occur for an earlier target.
fn distinct_cases(kernel: &Kernel) -> Vec<Case> {
    let mut known: HashSet<Variant> = HashSet::new();
    let mut distinct = Vec::new();
    for target in &targets() {
        let mut cases = cases(kernel, target);
        cases.retain(|case| !case.plan.variants.iter().all(|variant| known.contains(variant)) && runs_here(case));
        known.extend(cases.iter().flat_map(|case| case.plan.variants.clone()));
        distinct.extend(cases);
    }
    distinct
}

/// The result of `make` for each kernel, in the order of the kernels, computed by several threads.
fn of_each<T: Send>(kernels: &[&'static Kernel], make: impl Fn(usize, &'static Kernel) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut made = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(kernel) = kernels.get(index) else { return made };
            made.push((index, make(index, kernel)));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let mut made: Vec<(usize, T)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    made.sort_by_key(|(index, _)| *index);
    made.into_iter().map(|(_, made)| made).collect()
}

/// The covering set of cases, or `None` for all. It is smaller than that of the kernels on a GPU, because clang takes
/// most of the time: each kernel in one format for `./test`, and in two for CI.
fn extent() -> Option<Extent> {
    match Extent::asked() {
        Extent::Times(_) => Some(Extent::Times(1)),
        Extent::Pairs => Some(Extent::FEW),
        Extent::Product => None,
    }
}

/// For each kernel, the indices of its cases in a covering set.
fn covering_sets(kernels: &[&'static Kernel], extent: Extent) -> Vec<BTreeSet<usize>> {
    let traits = |_, kernel: &'static Kernel| -> Vec<Traits> {
        distinct_cases(kernel).iter().map(|case| Traits::of(kernel.name, case)).collect()
    };
    let traits = of_each(kernels, traits);
    let places = traits.iter().enumerate().flat_map(|(at, traits)| (0..traits.len()).map(move |index| (at, index)));
    let places: Vec<(usize, usize)> = places.collect();
    let mut sets = vec![BTreeSet::new(); kernels.len()];
    for (at, index) in covering(&traits.concat(), extent).into_iter().map(|chosen| places[chosen]) {
        sets[at].insert(index);
    }
    sets
}

/// Cases that share a program, and the program's shaders.
struct Batch {
    cases: Vec<Case>,
    shaders: HashMap<Variant, Shader>,
}

fn batches(cases: Vec<Case>) -> Vec<Batch> {
    let mut batches: Vec<Batch> = Vec::new();
    for case in cases {
        if batches.last().is_none_or(|batch| batch.shaders.len() >= BATCH) {
            batches.push(Batch { cases: Vec::new(), shaders: HashMap::new() });
        }
        let batch = batches.last_mut().unwrap();
        batch.shaders.extend(shaders([&case.plan]));
        batch.cases.push(case);
    }
    batches
}

/// True for cases with a kernel that no Mac runs, because Metal lacks its matrices.
fn is_foreign(case: &Case) -> bool {
    let foreign = |variant: &Variant| variant.parts.iter().any(|part| part.source.path == FOREIGN);
    case.plan.variants.iter().any(foreign)
}

/// False for foreign cases, and for the largest.
fn runs_here(case: &Case) -> bool {
    let groups = |step: &Step| step.grid.iter().map(|n| u64::from(*n)).product::<u64>();
    let of_step = |step: &Step| groups(step) * u64::from(invocations(&case.plan.variants[step.variant]));
    !is_foreign(case) && case.plan.steps.iter().map(of_step).sum::<u64>() <= INVOCATIONS
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

    /// Compiles the batch, and runs its cases in every way.
    fn run(&self, shop: &Workshop, build: Build, ran: &mut Ran) -> Result<(), String> {
        let program = shop.program(&self.texts()?, build)?;
        for (name, liberties) in ways(build) {
            for case in &self.cases {
                let after = self.after(case, Machine::start(&program, liberties), &case.weights, &case.locals);
                let outcome = after.and_then(|after| judged(case, &after));
                let failure = match &outcome {
                    Ok(outcome) => outcome.failure.clone(),
                    Err(fault) => Some(fault.clone()),
                };
                let failure =
                    failure.map(|told| format!("{} {} ({build:?}, {liberties:?}): {told}", ran.kernel, case.name));
                ran.failures.extend(failure);
                let share = outcome.map_or(0.0, |outcome| if outcome.is_bounded { outcome.share() } else { 0.0 });
                let worst = ran.shares.entry(name).or_insert((0.0, String::new()));
                if share > worst.0 {
                    *worst = (share, case.name.clone());
                }
            }
        }
        Ok(())
    }

    /// How far the kernel's outputs exceed their bounds if a fault is injected, compared with those that it should have
    /// after the same steps without the fault: in the first `most` of the cases that can have it.
    fn inject(&self, shop: &Workshop, fault: Fault, most: usize, ran: &mut Ran) -> Result<(), String> {
        let program = shop.program(&self.texts()?, Build::EXTREMES[0])?;
        for case in &self.cases {
            let found = ran.injected.iter().filter(|it| it.0 == fault).count();
            let Some(inputs) = Some(case).filter(|_| found < most).and_then(|case| fault.inputs(case)) else {
                continue;
            };
            let run = |weights: &[Vec<u8>], locals: &[Vec<u8>]| {
                self.after(case, Machine::start(&program, Liberties::default()), weights, locals)
            };
            let groups = case.groups();
            let right = if groups.len() > 1 { run(&case.weights, &case.locals)? } else { vec![] };
            let wrong = run(&inputs.weights, &inputs.locals)?;
            let mut share = None;
            for (group, (steps, after)) in groups.into_iter().zip(&wrong).enumerate() {
                let step = &case.plan.steps[steps.start];
                if step.kernel == ran.kernel {
                    let before = if group == 0 { &case.locals } else { &right[group - 1] };
                    let outcome = case.compare(step, before, after).map_err(|error| error.to_string())?;
                    let of_step = outcome.is_bounded.then(|| outcome.share());
                    share = share.into_iter().chain(of_step).reduce(f64::max);
                }
            }
            ran.injected.extend(share.map(|share| (fault, share, case.name.clone())));
        }
        Ok(())
    }

    /// The contents of a case's local buffers after each group of steps, with these contents before.
    fn after(
        &self,
        case: &Case,
        machine: Machine,
        weights: &[Vec<u8>],
        locals: &[Vec<u8>],
    ) -> Result<Vec<Contents>, String> {
        let mut executor = Executor::on(machine, &case.plan, &self.shaders, weights, locals)?;
        let after = |steps| -> Result<Contents, String> {
            executor.submit(steps)?;
            let contents = case.plan.locals_by_id().zip(&case.locals);
            contents.map(|((local, _), content)| executor.read(local, content.len())).collect()
        };
        case.groups().into_iter().map(after).collect()
    }
}

/// The ways in which a build's programs are run, with their names. If the machine provides the functions, they err as
/// far as Metal allows. Lanes run in order in one way and in random orders in the others.
fn ways(build: Build) -> Vec<(&'static str, Liberties)> {
    let random = |turn: u64| Some(lane_seed().wrapping_add(turn));
    match build.level {
        Level::Fast => vec![("fast", Liberties::default())],
        Level::Plain => vec![
            ("low", Liberties { order: None, errors: Errors::Low }),
            ("high", Liberties { order: random(0), errors: Errors::High }),
            ("either", Liberties { order: random(1), errors: Errors::Either(33) }),
        ],
    }
}

fn judged(case: &Case, after: &[Contents]) -> Result<CaseOutcome, String> {
    case.judge(after).map_err(|error| error.to_string())
}

/// The results of a kernel's cases.
struct Ran {
    kernel: &'static str,
    failures: Vec<String>,
    /// For each way to run them, the largest error divided by its bound, and its case.
    shares: BTreeMap<&'static str, (f64, String)>,
    /// For each injected fault and case, the largest error divided by its bound, which is infinite if an output differs
    /// that is compared exactly.
    injected: Vec<(Fault, f64, String)>,
}

impl Ran {
    /// How strongly cases show a fault, the weakest first, with the cases.
    fn shown(&self, fault: Fault) -> Vec<(f64, &str)> {
        let of_fault = self.injected.iter().filter(|it| it.0 == fault).map(|it| (it.1, it.2.as_str()));
        let mut shown: Vec<_> = of_fault.collect();
        shown.sort_by(|a, b| a.0.total_cmp(&b.0));
        shown
    }

    /// How strongly at least a quarter of the cases show it. In some cases, such as a choice among one expert, a fault
    /// changes nothing.
    fn usual(&self, fault: Fault) -> Option<f64> {
        let shown = self.shown(fault);
        shown.get(shown.len() * 3 / 4).map(|(share, _)| *share)
    }

    /// A row of a table, followed by its cases.
    fn print(&self) {
        let shares = self.shares.iter().map(|(way, (share, _))| format!("{way} {share:.2}"));
        let faults = Fault::ALL.into_iter().map(|fault| match self.usual(fault) {
            Some(usual) => format!("{fault:?} {usual:.0}"),
            None => format!("{fault:?} -"),
        });
        println!("| {} | {} |", self.kernel, shares.chain(faults).collect::<Vec<_>>().join(" | "));
        self.shares.iter().for_each(|(way, (share, case))| println!("  {way} {share:.3}: {case}"));
        for fault in Fault::ALL {
            self.shown(fault).first().iter().for_each(|(least, case)| println!("  {fault:?} {least:.1}: {case}"));
        }
    }
}

/// The check at load, whose bounds are wider, must detect the fault too.
const SHOWS: f64 = SLACK;
/// The most cases of a kernel into which a fault is injected.
const INJECTED: usize = 24;

/// Compiles and runs a kernel's cases, all or those with these indices, and returns the failures.
fn failures_of(kernel: &'static Kernel, chosen: Option<&BTreeSet<usize>>, shop: &Workshop) -> Vec<String> {
    let start = Instant::now();
    let mut distinct = distinct_cases(kernel);
    if let Some(chosen) = chosen {
        let mut index = 0..;
        distinct.retain(|_| index.next().is_some_and(|index| chosen.contains(&index)));
    }
    let is_own = |variant: &&Variant| variant.kernel() == kernel.name;
    let of_weights = |variant: &Variant| variant.parts.iter().any(|part| part.source.path.starts_with("quant/"));
    let decodes = distinct.iter().flat_map(|case| &case.plan.variants).filter(is_own).any(of_weights);
    let (count, batches) = (distinct.len(), batches(distinct));
    let mut ran = Ran { kernel: kernel.name, failures: vec![], shares: BTreeMap::new(), injected: vec![] };
    let possible = || targets().iter().any(|target| cases(kernel, target).iter().any(|case| !is_foreign(case)));
    if count == 0 && possible() {
        ran.failures.push(format!("{}: no case was run", kernel.name));
    }
    for batch in batches {
        for build in Build::EXTREMES {
            let done = batch.run(shop, build, &mut ran);
            ran.failures.extend(done.err().map(|error| format!("{} ({build:?}): {error}", kernel.name)));
        }
        for fault in Fault::ALL {
            let done = batch.inject(shop, fault, INJECTED, &mut ran);
            ran.failures.extend(done.err().map(|error| format!("{} with a wrong {fault:?}: {error}", kernel.name)));
        }
    }
    // Cases of a kernel without weights may have them in the step that reads its output.
    let concerns = |fault: &Fault| decodes || matches!(fault, Fault::Lane);
    for fault in Fault::ALL.into_iter().filter(concerns) {
        let hidden = ran.usual(fault).filter(|usual| *usual < SHOWS);
        let told = hidden.map(|usual| format!("{}: {fault:?} is {usual:.2} bounds off", kernel.name));
        ran.failures.extend(told);
    }
    println!("{:<20} {count} cases, {:.1} s", kernel.name, start.elapsed().as_secs_f32());
    ran.print();
    ran.failures
}

#[test]
fn every_kernel_as_metal_text_agrees_with_its_reference() {
    let Some(shop) = Workshop::open() else { return };
    let kernels = kernels();
    let sets = extent().map(|extent| covering_sets(&kernels, extent));
    let chosen = |index: usize| sets.as_ref().map(|sets| &sets[index]);
    let failures = of_each(&kernels, |index, kernel| failures_of(kernel, chosen(index), &shop)).concat();
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

/// Programs find a shader by its label, and so do people who read a plan or a compiler's message.
#[test]
fn labels_identify_shaders() {
    let mut labels: Vec<&str> = all().keys().map(|variant| variant.label.as_str()).collect();
    labels.sort_unstable();
    let twice: Vec<_> = labels.windows(2).filter(|pair| pair[0] == pair[1]).collect();
    assert!(twice.is_empty(), "two shaders are called alike: {twice:?}");
}
