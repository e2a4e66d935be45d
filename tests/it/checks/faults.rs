//! Loads with one kernel that cannot be used: only that one is replaced, and the next load avoids it.

use super::{alone, altered, answer, broken, demo, load, replaced, with};
use crate::common::gpu::{gpu, open};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use wglm::{
    Cancel, Error, Event, GenerateOptions, KernelFault, LoadOptions, LoadStage, Matrices, Model, SamplerParams,
    Scheduler, SchedulerOptions, Verdict,
};
use wglm_engine::model::{DriverTimeouts, LoadOverrides};
use wglm_engine::shader::{Constant, SourcePart, Variant};
use wglm_engine::wgsl::Source;

/// A time limit for everything that ends, even if many programs share the processor.
const LONG: Duration = Duration::from_secs(300);

/// The options of a load that compiles the kernels of a token, one of which is altered.
fn options(alter: fn(&Variant) -> Variant) -> LoadOptions {
    waiting(alter, DriverTimeouts { compile: LONG, run: LONG })
}

fn waiting(alter: fn(&Variant) -> Variant, timeouts: DriverTimeouts) -> LoadOptions {
    let overrides = LoadOverrides { timeouts: Some(timeouts), ..altered(Matrices::None, alter) };
    LoadOptions { overrides, ..alone() }
}

/// Whether a variant belongs to this kernel and uses subgroup operations.
fn is(variant: &Variant, kernel: &str) -> bool {
    variant.kernel() == kernel && variant.label.contains(".sg.")
}

/// The load replaces only this kernel, for this reason, and computes the right answer. So does the next load, which
/// does not compile the kernel again: the first one compiled it `before` times.
fn replaces(model: &Model, options: LoadOptions, expected: (&str, KernelFault), compiled: &AtomicUsize) {
    let right = answer(&load(gpu(), &alone()).unwrap());
    let found = super::verdict(model);
    assert!(found.is_checked(), "{found}");
    assert_eq!(replaced(&found), [expected], "{found}");
    assert!(found.to_string().starts_with(&format!("on this GPU kernel `{}` {} (", expected.0, expected.1)), "{found}");
    assert_eq!(answer(model), right, "{found}");
    next_avoids(&found, options, &right, compiled);
}

fn next_avoids(found: &Verdict, options: LoadOptions, right: &[u32], compiled: &AtomicUsize) {
    let before = compiled.load(Ordering::Relaxed);
    assert!(before > 0, "never compiled");
    let next = LoadOptions { verdicts: vec![found.clone()], ..options };
    let model = load(&open(true), &next).unwrap();
    assert_eq!(replaced(&super::verdict(&model)), replaced(found));
    assert!(super::verdict(&model).is_checked());
    assert_eq!(answer(&model), right);
    assert_eq!(compiled.load(Ordering::Relaxed), before, "compiled again, although it is known");
}

static REFUSED: AtomicUsize = AtomicUsize::new(0);

/// Requires more workgroup memory than any adapter has.
fn refused(variant: &Variant) -> Variant {
    const TEXT: &str = "var<workgroup> all: array<u32, 1000000>;\n\
                        @compute @workgroup_size(1)\nfn main() { all[0] = 1u; }\n";
    if !is(variant, "mul_mv_pair") {
        return variant.clone();
    }
    REFUSED.fetch_add(1, Ordering::Relaxed);
    let source = Source { path: "op/large.wgsl", text: TEXT };
    Variant { enables: vec![], parts: vec![SourcePart { source, role: "w" }], ..variant.clone() }
}

#[test]
fn extended_a_kernel_that_is_refused_is_replaced() {
    let model = load(gpu(), &options(refused)).unwrap();
    assert_eq!(REFUSED.load(Ordering::Relaxed), 1, "what is refused was compiled again");
    replaces(&model, options(refused), ("mul_mv_pair", KernelFault::Refused), &REFUSED);
}

static DRIVER: AtomicUsize = AtomicUsize::new(0);

/// Needs matrices, which the driver refuses.
fn unsupported(variant: &Variant) -> Variant {
    if !is(variant, "absorb_query") {
        return variant.clone();
    }
    DRIVER.fetch_add(1, Ordering::Relaxed);
    Variant { enables: vec!["f16, wgpu_cooperative_matrix"], ..with_matrix(variant) }
}

fn with_matrix(variant: &Variant) -> Variant {
    const TEXT: &str = "@compute @workgroup_size(32)\nfn main() { let zero = coop_mat8x8<f32, C>(); _ = zero; }\n";
    let source = Source { path: "op/matrix.wgsl", text: TEXT };
    Variant { parts: vec![SourcePart { source, role: "w" }], ..variant.clone() }
}

#[test]
fn extended_a_kernel_that_the_adapter_cannot_run_is_replaced() {
    let model = load(gpu(), &options(unsupported)).unwrap();
    replaces(&model, options(unsupported), ("absorb_query", KernelFault::Refused), &DRIVER);
}

static HANGING: AtomicUsize = AtomicUsize::new(0);

/// Never finishes compiling.
fn hanging(variant: &Variant) -> Variant {
    if !is(variant, "moe_down") {
        return variant.clone();
    }
    HANGING.fetch_add(1, Ordering::Relaxed);
    loop {
        std::thread::park();
    }
}

#[test]
fn extended_a_kernel_that_does_not_finish_compiling_is_replaced() {
    // The time counts from the end of the previous compilation.
    let options = waiting(hanging, DriverTimeouts { compile: Duration::from_secs(8), run: LONG });
    let model = load(gpu(), &options).unwrap();
    replaces(&model, options, ("moe_down", KernelFault::CompilesForever), &HANGING);
}

static WRONG: AtomicUsize = AtomicUsize::new(0);

/// Makes the sums of a product too small.
fn wrong(variant: &Variant) -> Variant {
    if !is(variant, "query_up_kv_write") {
        return variant.clone();
    }
    WRONG.fetch_add(1, Ordering::Relaxed);
    with(variant, "lib/team_subgroup.wgsl", "var sum = v;", "var sum = 0.9 * v;")
}

#[test]
fn extended_one_wrong_kernel_among_right_ones_is_replaced() {
    let model = load(gpu(), &options(wrong)).unwrap();
    replaces(&model, options(wrong), ("query_up_kv_write", KernelFault::Wrong), &WRONG);
}

static ENDLESS: AtomicUsize = AtomicUsize::new(0);

/// Runs for far longer than the load waits, and writes no results. The software driver ends every loop after 65535
/// iterations, so each iteration does much work. On other GPUs, which are faster, the loop is run several times.
fn endless(variant: &Variant) -> Variant {
    if !is(variant, "mla_output") {
        return variant.clone();
    }
    ENDLESS.fetch_add(1, Ordering::Relaxed);
    let turn = "x = (x ^ (x >> 15u)) * 747796405u + i;\n".repeat(192);
    let rounds = if gpu().report().is_software() { 1 } else { 32 };
    let text = format!(
        "var<storage, read_write> y: array<u32>;\n\
         @compute @workgroup_size(WORKGROUP)\n\
         fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {{\n\
         if any(group != vec3<u32>(0u)) {{ return; }}\n\
         var x = lane;\nfor (var round = 0u; round < {rounds}u; round++) {{\n\
         for (var i = 0u; i < 65000u; i++) {{\n{turn}}}\n}}\ny[0] = x;\n}}\n"
    );
    let source = Source { path: "op/endless.wgsl", text: String::leak(text) };
    let constants = vec![("WORKGROUP".to_owned(), Constant::U32(1024))];
    Variant { enables: vec![], constants, parts: vec![SourcePart { source, role: "w" }], ..variant.clone() }
}

/// If the GPU recovers, the load continues. Otherwise the error contains what the next load needs on another device.
#[test]
fn extended_a_kernel_that_does_not_finish_running_is_avoided() {
    let right = answer(&load(gpu(), &alone()).unwrap());
    let options = waiting(endless, DriverTimeouts { compile: LONG, run: Duration::from_secs(2) });
    let device = open(true);
    let found = match load(&device, &options) {
        Ok(model) => super::verdict(&model),
        Err(error) => {
            let Error::WrongKernel { kernel, fault, remedy, .. } = &error else { panic!("{error:?}") };
            assert_eq!((kernel.as_str(), *fault), ("mla_output", KernelFault::RunsForever), "{error}");
            assert!(remedy.contains("stopped working"), "{error}");
            error.verdict().unwrap().clone()
        }
    };
    assert_eq!(replaced(&found), [("mla_output", KernelFault::RunsForever)], "{found}");
    next_avoids(&found, options, &right, &ENDLESS);
}

/// The GPU drops its work from a step of the check on: the error names the kernel of that step, and the next load
/// avoids it.
#[test]
fn extended_a_device_lost_during_the_check_leaves_a_verdict() {
    let right = answer(&load(gpu(), &alone()).unwrap());
    let device = open(true);
    let (checking, submissions) = (Arc::new(AtomicBool::new(false)), AtomicUsize::new(0));
    let (is_checking, dying) = (checking.clone(), device.clone());
    device.before_submissions(move || {
        let count = submissions.fetch_add(is_checking.load(Ordering::Relaxed).into(), Ordering::Relaxed);
        dying.drop_work(count >= 6); // after some steps, each of which is followed by a query
    });
    let failed = Model::load_with(&demo(), &device, &alone(), &Cancel::default(), &mut |progress| {
        checking.fetch_or(progress.stage >= LoadStage::Kernels, Ordering::Relaxed);
    });
    let error = failed.map(|_| ()).unwrap_err();
    let Error::WrongKernel { kernel, .. } = &error else { panic!("{error:?}") };
    let found = error.verdict().unwrap();
    assert_eq!(replaced(found), [(kernel.as_str(), KernelFault::RunsForever)], "{error}");
    assert!(!found.is_checked() && error.to_string().contains("stopped working"), "{error}");

    let model = load(&open(true), &LoadOptions { verdicts: vec![found.clone()], ..alone() }).unwrap();
    let known = super::verdict(&model);
    assert!(known.is_checked() && known.replaced() == found.replaced(), "{known}");
    assert_eq!(answer(&model), right);
}

static FAILED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Makes a kernel wrong with subgroups and without.
fn hopeless(variant: &Variant) -> Variant {
    if variant.kernel() != "mul_mv_pair" {
        return variant.clone();
    }
    FAILED.lock().unwrap().push(variant.label.clone());
    broken(variant)
}

/// If a kernel's replacement is wrong too, the load ends after compiling each of them once.
#[test]
fn a_kernel_without_another_form_ends_the_load() {
    let error = load(gpu(), &options(hopeless)).map(|_| ()).unwrap_err();
    let Error::WrongKernel { kernel, remedy, .. } = &error else { panic!("{error:?}") };
    assert!(kernel == "mul_mv_pair" && remedy.contains("nothing can take its place"), "{error}");
    assert_eq!(replaced(error.verdict().unwrap()), [("mul_mv_pair", KernelFault::Wrong)], "{error}");
    assert_eq!(FAILED.lock().unwrap().len(), 2, "{:?}", FAILED.lock().unwrap());
}

static LATE: AtomicBool = AtomicBool::new(false);

/// Refuses the variants of a kernel that are compiled after the load.
fn refused_late(variant: &Variant) -> Variant {
    match is(variant, "moe_gate_up") && LATE.load(Ordering::Relaxed) {
        true => with_matrix(variant),
        false => variant.clone(),
    }
}

/// The replies of several conversations side by side, with all kernels compiled before.
fn side_by_side(model: &Model) -> (Scheduler, Vec<Vec<u32>>) {
    let options = SchedulerOptions { sessions: 2, compile_all: Some(true), ..SchedulerOptions::default() };
    let scheduler = Scheduler::new(model, &options).unwrap();
    let tokens = &crate::common::goldens::goldens()[0].tokens;
    let options = GenerateOptions {
        sampling: SamplerParams::greedy(),
        max_tokens: Some(6),
        logprobs: Some(0),
        ..GenerateOptions::default()
    };
    let said = std::thread::scope(|scope| {
        let replies = [6, 12].map(|count| scheduler.generate(tokens[..count].to_vec(), options.clone()).unwrap());
        let told = replies.map(|reply| {
            scope.spawn(|| {
                let tokens = reply.filter_map(|event| match event.unwrap() {
                    Event::Token(token) => Some(token.chosen.token),
                    _ => None,
                });
                tokens.collect()
            })
        });
        told.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    (scheduler, said)
}

/// A kernel that is refused when the steps of several conversations are compiled is replaced there.
#[test]
fn extended_a_kernel_that_is_refused_after_the_load_is_replaced() {
    let right = side_by_side(&load(gpu(), &alone()).unwrap()).1;
    let model = load(gpu(), &LoadOptions { compile_all: Some(false), ..options(refused_late) }).unwrap();
    LATE.store(true, Ordering::Relaxed);
    let (scheduler, said) = side_by_side(&model);
    let found = super::verdict(scheduler.model());
    assert_eq!(replaced(&found), [("moe_gate_up", KernelFault::Refused)], "{found}");
    assert_eq!(said, right);
    assert!(said.iter().all(|tokens| tokens.len() == 6), "{said:?}");
    // The model itself keeps the kernels that it was loaded with, and the next load avoids the refused one.
    assert!(super::verdict(&model).replaced().is_empty());
    assert_eq!(answer(&model), answer(&load(gpu(), &alone()).unwrap()));
    let next = load(&open(true), &LoadOptions { verdicts: vec![found], ..options(refused_late) }).unwrap();
    assert_eq!(replaced(&super::verdict(&next)), [("moe_gate_up", KernelFault::Refused)]);
}
