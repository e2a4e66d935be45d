//! The command `selftest`: runs every kernel in every weight format on the adapter and compares it with its CPU
//! reference.
//!
//! The kernels are compiled as they are for models, and the cases and error bounds are those of the tests. A wrong
//! kernel, or one that the driver refuses, becomes a line of the table and does not end the test.

use super::args::SelftestArgs;
use super::progress::ProgressLine;
use super::selftest_report;
use serde::Serialize;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::Builder;
use std::time::Instant;
use wglm_engine::instruments::{KERNELS, Kernel, KernelCheck, Pipelines, Target};
use wglm_engine::{Arithmetic, Error, Gpu, GpuOptions};

type Result<T, E = Error> = std::result::Result<T, E>;

/// The result of a kernel in one weight format and one arithmetic.
#[derive(Serialize)]
pub struct SelftestRow {
    pub kernel: &'static str,
    /// The format of the weights; `-` if the kernel has none.
    pub format: String,
    pub arithmetic: &'static str,
    pub cases: usize,
    /// The largest error relative to the sum of the magnitudes that were added; `None` if the kernel did not run.
    pub error: Option<f64>,
    /// The bound for that error; 0 if values must be equal.
    pub bound: Option<f64>,
    pub result: TestStatus,
    /// Whether a row that failed passes with four times its bound: then its errors are probably rounding, and its bound
    /// is too narrow for this GPU.
    pub passes_at_four: bool,
    /// The error of each case that failed, or why no case was run.
    pub remarks: Vec<String>,
    /// The error relative to its bound. If values have to be equal, any error gives a very large number.
    pub share: Option<f64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TestStatus {
    Pass,
    Fail,
    /// The adapter lacks something that the kernel needs. Models run without this kernel there.
    Skip,
}

/// The columns that are the same in all rows.
#[derive(Serialize)]
pub struct SelftestConditions {
    pub wglm: &'static str,
    pub gpu_info: String,
    pub backends: &'static str,
    pub driver: String,
    pub system: String,
    /// The size of the subgroups that the kernels are compiled for; `None` if they reduce through workgroup memory.
    pub subgroup: Option<usize>,
    /// Whether shaders check every index, as in debug builds.
    pub checks: bool,
}

pub fn selftest(args: SelftestArgs) -> anyhow::Result<ExitCode> {
    let start = Instant::now();
    let options = GpuOptions { checks: cfg!(debug_assertions), ..args.gpu.options()? };
    let gpu = Gpu::open(&options)?;
    let wanted = |kernel: &&&Kernel| args.kernel.as_ref().is_none_or(|name| kernel.name.contains(name.as_str()));
    let kernels: Vec<&Kernel> = KERNELS.iter().filter(wanted).copied().collect();
    let names = || KERNELS.iter().map(|kernel| kernel.name).collect::<Vec<_>>().join(", ");
    anyhow::ensure!(!kernels.is_empty(), "no kernel of that name; the kernels are {}", names());
    let conditions = conditions(&gpu, options.checks);
    let mut report = selftest_report::begin(args.output.format(), &conditions)?;
    let progress = ProgressLine::new(kernels.len());
    let tests = Tests { options: &options, kernels: &kernels, bounds: args.bounds, next: AtomicUsize::new(0) };
    tests.run(gpu, &progress, &mut |row| progress.aside(|| report.row(row)))?;
    drop(progress);
    selftest_report::end(&report, start.elapsed())
}

/// The number of devices on which kernels are tested at once. Nearly all time is spent on compiling, and some drivers
/// compile one kernel at a time per device.
const DEVICES: usize = 4;

/// The kernels to test. Threads, each with a device, take them in turn.
struct Tests<'a> {
    options: &'a GpuOptions,
    kernels: &'a [&'static Kernel],
    bounds: f64,
    /// The index of the first kernel that no thread has taken.
    next: AtomicUsize,
}

impl Tests<'_> {
    /// Runs all tests, and passes every row to `tell` in the order of the kernels.
    fn run(
        &self,
        gpu: Gpu,
        progress: &ProgressLine,
        tell: &mut dyn FnMut(SelftestRow) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        progress.doing("testing kernels");
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(DEVICES).min(self.kernels.len());
        let first = Mutex::new(Some(gpu));
        std::thread::scope(|scope| {
            let (sender, receiver) = channel();
            let start = |_| {
                let (first, sender) = (&first, sender.clone());
                Builder::new().spawn_scoped(scope, move || self.work(taken(first), &sender)).ok()
            };
            let workers: Vec<_> = (0..threads).map_while(start).collect();
            if workers.is_empty() {
                self.work(taken(&first), &sender); // the system refuses to create threads
            }
            drop(sender);
            let mut done: Vec<Option<Vec<SelftestRow>>> = self.kernels.iter().map(|_| None).collect();
            let mut printed = 0;
            for rows in receiver {
                let (index, rows) = rows?;
                progress.advance();
                done[index] = Some(rows);
                while let Some(rows) = done.get_mut(printed).and_then(Option::take) {
                    rows.into_iter().try_for_each(&mut *tell)?;
                    printed += 1;
                }
            }
            let died = workers.into_iter().any(|worker| worker.join().is_err()); // joined here: a panic is an error
            anyhow::ensure!(!died && printed == done.len(), "a thread died while testing kernels; please report it");
            Ok(())
        })
    }

    /// Tests kernels until none is left or the receiver is gone.
    fn work(&self, gpu: Option<Gpu>, sender: &Sender<Result<(usize, Vec<SelftestRow>)>>) {
        let tested = gpu.map_or_else(|| Gpu::open(self.options), Ok).and_then(|gpu| {
            loop {
                let index = self.next.fetch_add(1, Ordering::Relaxed);
                let Some(kernel) = self.kernels.get(index) else { return Ok(()) };
                let mut rows = Vec::new();
                each_row(kernel, &gpu, self.bounds, &mut |row| -> Result<ControlFlow<()>> {
                    rows.push(row);
                    Ok(ControlFlow::Continue(()))
                })?;
                if sender.send(Ok((index, rows))).is_err() {
                    return Ok(());
                }
            }
        });
        if let Err(error) = tested {
            let _ = sender.send(Err(error)); // if the receiver is gone, another thread has failed
        }
    }
}

/// Takes the device that is already open; the first thread gets it.
fn taken(first: &Mutex<Option<Gpu>>) -> Option<Gpu> {
    first.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Tests a kernel: a row for each format and arithmetic, until `tell` refuses.
pub fn each_row<E: From<Error>>(
    kernel: &Kernel,
    gpu: &Gpu,
    bounds: f64,
    tell: &mut dyn FnMut(SelftestRow) -> Result<ControlFlow<()>, E>,
) -> Result<(), E> {
    let skipped = |why: &str| SelftestRow {
        result: TestStatus::Skip,
        remarks: vec![why.to_owned()],
        ..SelftestRow::blank(kernel)
    };
    if !kernel.runs_with(gpu.capabilities().matrices) {
        return tell(skipped("the GPU has no cooperative matrices of its size")).map(|_| ());
    }
    let mut checks = kernel.checks(&Target::of(gpu))?;
    if checks.is_empty() {
        return tell(skipped("it needs subgroup operations")).map(|_| ());
    }
    checks.iter_mut().for_each(|check| loosen(check, bounds));
    let pipelines = Pipelines::new(gpu); // for this kernel alone, since no other uses its pipelines
    for check in &mut checks {
        if tell(row(kernel, check, &pipelines)?)?.is_break() {
            break;
        }
    }
    Ok(())
}

/// The factor of bounds that shows whether the errors of a failed row exceed rounding.
const WIDER: f64 = 4.0;

fn loosen(check: &mut KernelCheck, factor: f64) {
    check.cases.iter_mut().for_each(|case| case.factor *= factor);
}

impl SelftestRow {
    fn blank(kernel: &Kernel) -> Self {
        let (format, remarks, arithmetic) = ("-".into(), Vec::new(), Arithmetic::Float.name());
        let result = TestStatus::Fail;
        let (kernel, cases, error, bound, passes_at_four, share) = (kernel.name, 0, None, None, false, None);
        Self { kernel, format, arithmetic, cases, error, bound, result, passes_at_four, remarks, share }
    }
}

/// Runs a check. Only a lost device or a lack of memory ends the whole test.
fn row(kernel: &Kernel, check: &mut KernelCheck, pipelines: &Pipelines) -> Result<SelftestRow> {
    let blank = SelftestRow {
        format: check.formats.clone(),
        arithmetic: check.arithmetic.name(),
        cases: check.cases.len(),
        ..SelftestRow::blank(kernel)
    };
    let allowed = pipelines.gpu().capabilities().max_storage_buffers as usize;
    let most = check.cases.iter().flat_map(|case| &case.plan.steps).map(|step| step.bindings.len()).max();
    if let Some(most) = most.filter(|most| *most > allowed) {
        let why = format!("binds {most} storage buffers, the GPU allows {allowed}");
        return Ok(SelftestRow { result: TestStatus::Skip, cases: 0, remarks: vec![why], ..blank });
    }
    match check.run(pipelines) {
        Ok(verdict) => {
            let result = if verdict.passed() { TestStatus::Pass } else { TestStatus::Fail };
            let (error, bound) = (verdict.worst, verdict.bound);
            let share = if error == 0.0 { 0.0 } else { error / bound.max(f64::MIN_POSITIVE) };
            let (error, bound, share) = (Some(error), Some(bound), Some(share));
            let mut passes_at_four = false;
            if result == TestStatus::Fail {
                loosen(check, WIDER);
                passes_at_four = check.run(pipelines)?.passed();
            }
            Ok(SelftestRow { error, bound, share, result, passes_at_four, remarks: verdict.failures, ..blank })
        }
        Err(error @ (Error::DeviceLost { .. } | Error::OutOfMemory { .. })) => Err(error),
        Err(error) => Ok(SelftestRow { remarks: vec![error.to_string()], ..blank }),
    }
}

fn conditions(gpu: &Gpu, checks: bool) -> SelftestConditions {
    let (report, can) = (gpu.report(), gpu.capabilities());
    SelftestConditions {
        wglm: env!("CARGO_PKG_VERSION"),
        gpu_info: report.name.clone(),
        backends: report.backend.name(),
        driver: report.driver.clone(),
        system: system(),
        subgroup: can.subgroups.then_some(can.subgroup),
        checks,
    }
}

/// The operating system and its version, as `uname` prints them.
pub fn system() -> String {
    let uname = std::process::Command::new("uname").arg("-sr").output().ok().filter(|output| output.status.success());
    let uname = uname.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    format!("{}, {}", uname.unwrap_or_else(|| std::env::consts::OS.into()), std::env::consts::ARCH)
}
