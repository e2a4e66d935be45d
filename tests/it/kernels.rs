//! Compares every kernel in every format with its CPU reference, with subgroups and without.

use crate::common::covering::{Extent, Format, Traits, covering, refresh};
use crate::common::gpu::open_checked;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use wglm::{Arithmetic, Gpu, Matrices};
use wglm_engine::kernels::{KERNELS, Kernel};
use wglm_engine::plan::{Choices, Grouping, OutputPlace, Plan, Sample, Step, StepLimit, Target, Team};
use wglm_engine::quant::{Family, QUANTS};
use wglm_engine::reference::{CASES, Case, Contents, KernelCheck};
use wglm_engine::shader::{Pipelines, Variant, reflect};

/// The device that the tests here query.
fn gpu() -> &'static Gpu {
    pipelines(Team::Workgroup).gpu()
}

/// The target for the kernels on this device with these teams and this arithmetic.
fn target(team: Team, arithmetic: Arithmetic) -> Target {
    let can = gpu().capabilities();
    Target { team, arithmetic, subgroup: can.subgroup, matrices: can.matrices, ..Target::default() }
}

fn cases(kernel: &Kernel, target: &Target) -> Vec<Case> {
    let mut cases = kernel.cases(target).unwrap_or_else(|e| panic!("{}: {e}", kernel.name));
    cases.iter_mut().for_each(refresh);
    cases
}

/// Cases of a kernel for teams of a workgroup: in floats, or of bytes if it has no others. Only a kernel that needs
/// subgroup operations may have none, on a GPU without them.
fn some_cases(kernel: &Kernel) -> Vec<Case> {
    let of = |arithmetic| cases(kernel, &target(Team::Workgroup, arithmetic));
    let cases = Some(of(Arithmetic::Float)).filter(|cases| !cases.is_empty()).unwrap_or_else(|| of(Arithmetic::Int));
    assert!(!cases.is_empty() || !gpu().capabilities().subgroups, "{} has no case", kernel.name);
    cases
}

/// The kernels, or those whose name contains the value of the variable `KERNEL`.
fn kernels() -> impl Iterator<Item = &'static &'static Kernel> {
    let wanted = std::env::var("KERNEL").unwrap_or_default();
    let matrices = gpu().capabilities().matrices;
    KERNELS.iter().filter(move |kernel| kernel.name.contains(&wanted) && kernel.runs_with(matrices))
}

/// The pipelines for one kind of team, which all tests here share. Nearly all of the time goes to compiling, and a
/// driver that computes on the CPU compiles one kernel at a time on each device, so every kind has a device of its own.
/// Every index is checked there, in all kernels.
fn pipelines(team: Team) -> &'static Pipelines {
    static SUBGROUP: OnceLock<Pipelines> = OnceLock::new();
    static WORKGROUP: OnceLock<Pipelines> = OnceLock::new();
    let pipelines = if team == Team::Subgroup { &SUBGROUP } else { &WORKGROUP };
    pipelines.get_or_init(|| Pipelines::new(&open_checked()))
}

fn checks(kernel: &Kernel, team: Team) -> Vec<KernelCheck> {
    let checks = kernel.checks(&target(team, Arithmetic::Float));
    let mut checks = checks.unwrap_or_else(|e| panic!("{}: {e}", kernel.name));
    checks.iter_mut().flat_map(|check| &mut check.cases).for_each(refresh);
    checks
}

/// The shaders of a check.
fn variants(check: &KernelCheck) -> Vec<&Variant> {
    check.cases.iter().flat_map(|case| &case.plan.variants).collect()
}

/// A kernel and its checks for one kind of team.
type Checked = (&'static Kernel, Vec<KernelCheck>);

/// The whole product: every case for one kind of team in both arithmetics.
///
/// If another test runs all cases for the kind `elsewhere`, shaders that it has too are left out here, and the
/// remaining cases take turns by format: the decoding of a format does not depend on the team, nor the sums of a team
/// on the format. With the variable `KERNEL`, none is left out.
fn product(team: Team, elsewhere: Option<Team>) -> impl Iterator<Item = Checked> {
    const TURNS: usize = 4;
    let mut turn = 0;
    kernels().map(move |kernel| {
        let theirs = elsewhere.map_or_else(Vec::new, |other| checks(kernel, other));
        let theirs: HashSet<_> = theirs.iter().map(variants).collect();
        let mut checks = checks(kernel, team);
        checks.retain(|check| !theirs.contains(&variants(check)));
        if elsewhere.is_some() && std::env::var("KERNEL").is_err() {
            let turns = TURNS.min(checks.len()).max(1);
            checks = checks.into_iter().skip(turn % turns).step_by(turns).collect();
            turn += 1;
        }
        (*kernel, checks)
    })
}

/// The kinds of teams on this device.
fn teams() -> Vec<Team> {
    let subgroups = gpu().capabilities().subgroups.then_some(Team::Subgroup);
    subgroups.into_iter().chain([Team::Workgroup]).collect()
}

/// What is stored of a case after its data are dropped.
struct Entry {
    team: Team,
    arithmetic: Arithmetic,
    traits: Traits,
    /// The labels of its shaders.
    labels: Vec<String>,
}

/// A kernel's cases for all kinds of teams, in the order of [`checks`]. They are built once, for all tests here.
fn entries(kernel: &'static Kernel) -> &'static [Entry] {
    static ENTRIES: OnceLock<HashMap<&str, OnceLock<Vec<Entry>>>> = OnceLock::new();
    let all = ENTRIES.get_or_init(|| KERNELS.iter().map(|kernel| (kernel.name, OnceLock::new())).collect());
    let entry = |team, check: &KernelCheck, case: &Case| Entry {
        team,
        arithmetic: check.arithmetic,
        traits: Traits::of(kernel.name, case),
        labels: case.plan.variants.iter().map(|variant| variant.label.clone()).collect(),
    };
    let of_check =
        |team, check: &KernelCheck| check.cases.iter().map(|case| entry(team, check, case)).collect::<Vec<_>>();
    let of_team = |team| checks(kernel, team).iter().flat_map(|check| of_check(team, check)).collect::<Vec<Entry>>();
    all[kernel.name].get_or_init(|| teams().into_iter().flat_map(of_team).collect())
}

/// The entries of some kernels, one kernel's after the other's.
fn entries_of(kernels: &[&'static Kernel]) -> Vec<&'static Entry> {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        let work =
            || while kernels.get(next.fetch_add(1, Ordering::Relaxed)).map(|kernel| entries(kernel)).is_some() {};
        (0..threads).for_each(|_| _ = scope.spawn(work));
    });
    kernels.iter().flat_map(|kernel| entries(kernel)).collect()
}

/// A covering set of all cases for all kinds of teams: those for this one.
fn covering_set(team: Team) -> impl Iterator<Item = Checked> {
    static CHOSEN: OnceLock<HashMap<(Team, &str), BTreeSet<usize>>> = OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| {
        let entries = entries_of(&kernels().copied().collect::<Vec<_>>());
        let traits: Vec<Traits> = entries.iter().map(|entry| entry.traits.clone()).collect();
        let chosen = covering(&traits, Extent::asked());
        let (mut places, mut counts) = (HashMap::<_, BTreeSet<usize>>::new(), HashMap::new());
        for (index, entry) in entries.iter().enumerate() {
            let key = (entry.team, entry.traits.kernel);
            let place = counts.entry(key).and_modify(|count| *count += 1).or_insert(0);
            let places = places.entry(key).or_default();
            let is_chosen = chosen.contains(&index);
            is_chosen.then(|| places.insert(*place));
        }
        places
    });
    kernels().map(move |kernel| {
        let mut checks = checks(kernel, team);
        let (chosen, mut place) = (&chosen[&(team, kernel.name)], 0..);
        let mut is_chosen = |_: &Case| place.next().is_some_and(|place| chosen.contains(&place));
        checks.iter_mut().for_each(|check| check.cases.retain(&mut is_chosen));
        (*kernel, checks)
    })
}

/// Runs cases for one kind of team, and prints the worst error of each kernel and the time.
fn run(team: Team, checked: impl Iterator<Item = Checked>) {
    let (pipelines, mut failures) = (pipelines(team), Vec::new());
    for (kernel, checks) in checked {
        for arithmetic in [Arithmetic::Float, Arithmetic::Int] {
            let checks = checks.iter().filter(|check| check.arithmetic == arithmetic);
            failures.extend(failures_of(kernel, &format!("{team:?}, {arithmetic:?}"), checks, pipelines));
        }
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

fn failures_of<'a>(
    kernel: &Kernel,
    target: &str,
    checks: impl Iterator<Item = &'a KernelCheck>,
    pipelines: &Pipelines,
) -> Vec<String> {
    let (name, start, mut count, mut worst) = (kernel.name, Instant::now(), 0, 0f64);
    let mut failures = Vec::new();
    for check in checks {
        let verdict = check.run(pipelines).unwrap_or_else(|e| panic!("{name} {}: {e}", check.formats));
        worst = worst.max(verdict.share());
        count += check.cases.len();
        failures.extend(verdict.failures.iter().map(|failure| format!("{name} ({target}) {failure}")));
        for case in &check.cases {
            let found = step_failures(kernel, case, pipelines);
            failures.extend(found.into_iter().map(|failure| format!("{name} ({target}) {}: {failure}", case.name)));
        }
    }
    let seconds = start.elapsed().as_secs_f32();
    if count > 0 {
        println!("{name:<16} {target}: {count} cases, worst error {worst:.2} of its bound, {seconds:.1} s");
    }
    failures
}

#[test]
fn every_kernel_agrees_with_its_reference_by_subgroups() {
    if !gpu().capabilities().subgroups {
        println!("skipped: `{}` has no subgroup operations", gpu().report().name);
    } else if Extent::asked() == Extent::Product {
        run(Team::Subgroup, product(Team::Subgroup, None));
    } else {
        run(Team::Subgroup, covering_set(Team::Subgroup));
    }
}

#[test]
fn every_kernel_agrees_with_its_reference_by_workgroups() {
    if Extent::asked() == Extent::Product {
        let elsewhere = gpu().capabilities().subgroups.then_some(Team::Subgroup);
        run(Team::Workgroup, product(Team::Workgroup, elsewhere));
    } else {
        run(Team::Workgroup, covering_set(Team::Workgroup));
    }
}

/// Kernels whose steps can be split into several dispatches compute the same if every workgroup is a dispatch of its
/// own.
#[test]
fn parts_of_a_step_agree_with_the_reference() {
    const CASES: usize = 3; // for each kernel: the first, one in the middle, and the last
    let limit = StepLimit { flops: 1, bandwidth: 1, time: Duration::from_secs(1) };
    let (mut failures, mut seen) = (Vec::new(), BTreeSet::new());
    for (kernel, team) in kernels().flat_map(|kernel| [Team::Subgroup, Team::Workgroup].map(|team| (kernel, team))) {
        if team == Team::Subgroup && !gpu().capabilities().subgroups {
            continue;
        }
        let cases = cases(kernel, &Target { limit, ..target(team, Arithmetic::Float) });
        let own = |case: &&Case| case.plan.steps.iter().any(|s| s.kernel == kernel.name && s.label.contains(" 1/"));
        let pipelines = pipelines(team);
        let own: Vec<&Case> = cases.iter().filter(own).collect();
        let chosen: BTreeSet<usize> = (0..CASES).map(|i| i * own.len().saturating_sub(1) / (CASES - 1)).collect();
        for case in chosen.into_iter().filter_map(|i| own.get(i)) {
            seen.insert(kernel.name);
            let failure = case.judge(&case.run(pipelines).unwrap()).unwrap().failure;
            let found = failure.into_iter().chain(step_failures(kernel, case, pipelines));
            failures.extend(found.map(|failure| format!("{} {team:?} {}: {failure}", kernel.name, case.name)));
        }
    }
    println!("{seen:?}");
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    assert!(seen.len() >= 4 || std::env::var("KERNEL").is_ok(), "only {seen:?} in parts");
}

/// The check at load compares steps with the same references, but only some outputs, and within wider bounds. There too
/// every step of every case is correct, and an output that is off by a twentieth is wrong, or by a fifth if a kernel
/// may multiply f16.
fn step_failures(kernel: &Kernel, case: &Case, pipelines: &Pipelines) -> Vec<String> {
    let off = if kernel.matrices.is_empty() { 0.05 } else { 0.2 };
    let mut failures = Vec::new();
    let nameless = case.plan.steps.iter().filter(|step| step.reference.is_none());
    failures.extend(nameless.map(|step| format!("`{}` has no reference", step.label)));
    let mut look = |step: &Step, samples: &[(Sample, f64)]| {
        if !samples.is_empty() && !samples.iter().any(|(sample, got)| sees(sample, *got, off)) {
            failures.push(format!("`{}`: nothing would be seen: {samples:?}", step.label));
        }
        Ok(())
    };
    let fault = case.run_steps(pipelines, &mut look).unwrap_or_else(|e| panic!("{}: {e}", case.name));
    failures.extend(fault.map(|fault| fault.to_string()));
    failures
}

/// Whether an output that is `off` by this share would be found to be wrong. One that is zero would not, since zeros
/// may be correct by chance.
fn sees(sample: &Sample, got: f64, off: f64) -> bool {
    let wrong = if sample.tolerance == 0.0 { got + 1.0 } else { got * (1.0 + off) };
    !sample.agrees(wrong)
}

/// The comparison must detect an error anywhere, in every step: a value that is off by ten times the bound, NaN, or a
/// write outside the expected places.
#[test]
fn perturbed_outputs_are_caught() {
    let pipelines = pipelines(Team::Workgroup);
    for kernel in kernels() {
        let Some(case) = some_cases(kernel).pop() else { continue };
        let after = case.run(pipelines).unwrap();
        let failure = |after: &[Contents]| case.judge(after).unwrap().failure;
        assert_eq!(failure(&after), None, "{} {}", kernel.name, case.name);
        for (group, steps) in case.groups().into_iter().enumerate() {
            let before = if group == 0 { &case.locals } else { &after[group - 1] };
            let outputs = case.outputs(&case.plan.steps[steps.start], before).unwrap();
            let complete: Vec<_> = outputs.iter().filter(|sample| sample.tolerance.is_finite()).collect();
            for sample in [complete.first(), complete.last()].into_iter().flatten() {
                let place = format!("{} {}: {:?}", kernel.name, case.name, sample.output);
                let mut off = after.clone();
                perturb(&mut off[group], sample);
                assert!(failure(&off).is_some(), "{place} off");
                let mut broken = after.clone();
                let (buffer, bytes) = sample.output.bytes().pop().unwrap();
                broken[group][buffer.local().unwrap().index()][bytes].fill(0xff); // NaN, or an index out of range
                assert!(failure(&broken).is_some(), "{place} not a number");
            }
        }
        let last = after.last().unwrap();
        for (local, content) in last.iter().enumerate() {
            let mut stray = after.clone();
            stray.last_mut().unwrap()[local][content.len() - 1] ^= 1; // the last byte of the guard band
            assert!(failure(&stray).is_some(), "{} {}: stray write", kernel.name, case.name);
        }
    }
}

/// Moves a value by ten times its bound, and by more than rounding it to the type of the output may.
fn perturb(contents: &mut Contents, sample: &Sample) {
    let Sample { output, want, tolerance, rounding, .. } = *sample;
    let moved = |least: f64| want + (10.0 * tolerance + 2.0 * rounding).max(want.abs() * least).max(1e-6);
    let (buffer, bytes) = output.bytes().remove(0);
    let (other, place) = output.words().pop().unwrap();
    let word = &contents[other.local().unwrap().index()][4 * place..4 * place + 4];
    let other = f64::from(f32::from_le_bytes(word.try_into().unwrap()));
    let to = &mut contents[buffer.local().unwrap().index()][bytes];
    match output {
        OutputPlace::F32(..) => to.copy_from_slice(&(moved(1e-5) as f32).to_le_bytes()),
        OutputPlace::F16(..) => to.copy_from_slice(&half::f16::from_f64(moved(2e-3)).to_le_bytes()),
        OutputPlace::U32(..) => to.copy_from_slice(&(want as u32 ^ 1).to_le_bytes()),
        OutputPlace::Mean(..) => to.copy_from_slice(&((moved(1e-5) * other) as f32).to_le_bytes()),
        OutputPlace::LogSum(..) => to.copy_from_slice(&((moved(1e-5) - other.ln()) as f32).to_le_bytes()),
        OutputPlace::Block(..) | OutputPlace::Scaled(..) => to[0] ^= 1 << 4,
    }
}

#[test]
fn parameters_are_laid_out_alike_in_rust_and_wgsl() {
    let wanted = std::env::var("KERNEL").unwrap_or_default();
    for kernel in KERNELS.iter().filter(|kernel| kernel.name.contains(&wanted)) {
        let Some(case) = some_cases(kernel).into_iter().next() else { continue };
        let step = case.plan.steps.iter().find(|s| s.kernel == kernel.name).expect("a step of the kernel");
        let fields = reflect(&case.plan.variants[step.variant]).unwrap().params;
        let wgsl: Vec<_> = fields.iter().map(|f| (f.name.as_str(), f.offset as usize, f.bytes as usize)).collect();
        assert_eq!(wgsl, kernel.params, "{}", kernel.name);
        assert_eq!(step.params.len(), kernel.params.iter().map(|p| p.2).sum::<usize>(), "{}", kernel.name);
    }
}

/// Few adapters have cooperative matrices. On the others the shaders that use them, of both sizes, are at least parsed
/// and validated.
#[test]
fn extended_shaders_of_matrices_are_valid() {
    let mut seen = BTreeSet::new();
    for kernel in KERNELS.iter().filter(|kernel| !kernel.matrices.is_empty()) {
        for matrices in [Matrices::Eight, Matrices::Sixteen] {
            for case in cases(kernel, &Target { matrices, ..Target::default() }) {
                for variant in case.plan.variants.iter().filter(|variant| !variant.enables.is_empty()) {
                    reflect(variant).unwrap_or_else(|e| panic!("{e}"));
                    seen.extend(variant.parts.iter().map(|part| part.source.path).filter(|p| p.contains("lib/matrix")));
                }
            }
        }
    }
    for file in ["lib/matrix16.wgsl", "lib/matrix8.wgsl"] {
        assert!(seen.contains(file), "no case with {file}");
    }
}

/// Vectors that are computed together have the bits of each computed by itself: all outputs, and the products of what
/// is rounded of them.
#[test]
fn places_have_the_bits_of_each_vector_alone() {
    if !gpu().capabilities().subgroups {
        println!("skipped: `{}` has no subgroup operations", gpu().report().name);
        return;
    }
    for name in ["moe_gate_up_grouped", "mul_mv_places"] {
        let kernel = KERNELS.iter().find(|kernel| kernel.name == name).expect("the kernel");
        let cases_with = |grouping: Option<Grouping>| {
            let choices = Choices { grouping, ..Choices::default() };
            cases(kernel, &Target { choices: choices.into(), ..target(Team::Subgroup, Arithmetic::Int) })
        };
        let uses = |case: &Case| case.plan.steps.iter().any(|step| step.kernel == name);
        let mut compared = 0;
        for (together, apart) in cases_with(None).into_iter().zip(cases_with(Some(Grouping::OFF))) {
            if uses(&together) {
                assert!(!uses(&apart), "{}", apart.name);
                let (one, other) = (outputs(&together), outputs(&apart));
                for (buffer, bytes) in &one {
                    let at = bytes.iter().zip(&other[buffer]).position(|(one, other)| one != other);
                    assert_eq!(at, None, "{name}: {}: `{buffer}`, of {} bytes", together.name, bytes.len());
                }
                compared += 1;
            }
        }
        println!("{name}: {compared} cases");
        assert!(compared > 20, "{name}: {compared}");
    }
}

/// The bytes after every buffer of a case that no kernel should touch.
const GUARD_BYTES: usize = 256;

/// What a case has in the end in the buffers of its outputs, as far as they are for rows that the batch has.
fn outputs(case: &Case) -> BTreeMap<String, Vec<u8>> {
    const OUTPUTS: [&str; 7] = ["hidden", "hidden.rounded", "route.ids", "product", "y", "x.rounded", "probe"];
    let count = u32::from_le_bytes(case.locals[Plan::BATCH.index()][..4].try_into().unwrap()) as usize;
    let finals = case.run(pipelines(Team::Subgroup)).unwrap().pop().unwrap();
    let named = case.plan.locals.iter().map(|local| local.name.clone()).zip(finals);
    let own = named.filter(|(name, _)| OUTPUTS.contains(&name.as_str()));
    let live = own.map(|(name, bytes)| {
        // Rows begin at whole vec4; buffers are a little longer than their rows.
        let end = (bytes.len() - GUARD_BYTES) / case.plan.rows / 16 * 16 * count;
        (name, bytes[..end].to_vec())
    });
    let live: BTreeMap<_, _> = live.collect();
    assert!(!live.is_empty(), "{}", case.name);
    live
}

/// The labels of the shaders of a kernel's cases. In products of bytes, only those that differ from the ones in floats.
fn labels(kernel: &'static Kernel, arithmetic: Arithmetic) -> Vec<&'static str> {
    let entries = entries(kernel).iter().filter(|entry| entry.arithmetic == arithmetic);
    entries.flat_map(|entry| &entry.labels).map(String::as_str).collect()
}

#[test]
fn extended_nothing_is_left_out_of_the_registries() {
    let stems = |folder: &str| -> BTreeSet<String> {
        let entries = std::fs::read_dir(format!("{}/engine/{folder}", env!("CARGO_MANIFEST_DIR"))).unwrap();
        entries.map(|e| e.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned()).collect()
    };
    let kernels: BTreeSet<String> = KERNELS.iter().map(|k| k.name.to_owned()).collect();
    assert_eq!(stems("wgsl/op"), kernels, "wgsl/op and KERNELS");
    let with_cases: BTreeSet<String> = CASES.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(with_cases, kernels, "CASES and KERNELS");
    let formats: BTreeSet<String> = QUANTS.iter().map(|q| q.name.to_owned()).collect();
    let mut files = stems("wgsl/quant");
    for shared in ["affine", "affine_float", "affine_half", "affine_int", "plain", "plain_half"] {
        assert!(files.remove(shared));
    }
    assert_eq!(files, formats, "wgsl/quant and QUANTS");
    for kernel in KERNELS {
        assert!(kernel.op.path.ends_with(&format!("/{}.wgsl", kernel.name)));
        let [floats, bytes] = [Arithmetic::Float, Arithmetic::Int].map(|arithmetic| labels(kernel, arithmetic));
        let labels = if floats.is_empty() { bytes.clone() } else { floats };
        assert!(!labels.is_empty() || !gpu().capabilities().subgroups, "{} has no case", kernel.name);
        // Other kernels of a case may read what this one has written.
        let own = |label: &&&str| label.split('.').next() == Some(kernel.name);
        let quantised = labels.iter().filter(own).any(|l| l.contains(".q4_0"));
        let bytes: Vec<&str> = bytes.into_iter().filter(|l| l.contains(".i8.")).collect();
        for quant in QUANTS.iter().filter(|_| quantised) {
            let (name, tag) = (kernel.name, format!(".{}.", quant.name));
            assert!(labels.iter().any(|l| l.contains(&tag)), "{name} has no case in {}", quant.name);
            let multiplied =
                bytes.is_empty() || quant.family == Family::Plain || bytes.iter().any(|l| l.contains(&tag));
            assert!(multiplied, "{name} has no case of bytes in {}", quant.name);
        }
    }
}

/// A covering set has every kernel, every format, and every WGSL file of every kernel that occurs in any case.
#[test]
fn extended_covering_sets_cover_every_kernel_and_every_format() {
    let all: Vec<Traits> = entries_of(KERNELS).into_iter().map(|entry| entry.traits.clone()).collect();
    let had = Met::of(&all);
    assert!(KERNELS.iter().all(|kernel| had.kernels.contains_key(kernel.name)), "{:?}", had.kernels.keys());
    let met: BTreeSet<&str> = had.formats.keys().map(|(name, _)| *name).collect();
    assert!(QUANTS.iter().all(|quant| met.contains(quant.name)), "{met:?}");
    for (extent, saving) in [(Extent::FEW, 4), (Extent::Pairs, 2)] {
        let chosen: Vec<Traits> = covering(&all, extent).into_iter().map(|index| all[index].clone()).collect();
        let cost = |traits: &[Traits]| traits.iter().map(|it| it.cost).sum::<usize>();
        println!("{extent:?}: {} of {} cases, {} of {}", chosen.len(), all.len(), cost(&chosen), cost(&all));
        let has = Met::of(&chosen);
        for (kernel, formats) in &had.kernels {
            let met = has.kernels.get(kernel).unwrap_or_else(|| panic!("no case of {kernel}"));
            assert!(met.len() >= extent.needed(formats.len()), "{kernel} in {met:?} of {formats:?}");
        }
        for (format, kernels) in &had.formats {
            let met = has.formats.get(format).unwrap_or_else(|| panic!("no case in {format:?}"));
            assert!(met.len() >= extent.needed(kernels.len()), "{format:?} in {met:?} of {kernels:?}");
        }
        let missing: Vec<_> = had.files.difference(&has.files).collect();
        assert!(missing.is_empty(), "kernels without a case with these files: {missing:?}");
        assert!(chosen.len() * saving < all.len(), "{} of {} cases are no saving", chosen.len(), all.len());
    }
}

/// The formats of each kernel, the kernels of each format, and the files of each kernel, in some cases.
#[derive(Default)]
struct Met<'a> {
    kernels: BTreeMap<&'a str, BTreeSet<Format<'a>>>,
    formats: BTreeMap<Format<'a>, BTreeSet<&'a str>>,
    files: BTreeSet<(&'a str, &'a str)>,
}

impl<'a> Met<'a> {
    fn of(cases: &'a [Traits]) -> Self {
        let mut met = Self::default();
        for case in cases {
            met.kernels.entry(case.kernel).or_default().extend(&case.formats);
            case.formats.iter().for_each(|format| _ = met.formats.entry(*format).or_default().insert(case.kernel));
            met.files.extend(case.files.iter().map(|file| (case.kernel, *file)));
        }
        met
    }
}
