//! `selftest`: every kernel in every format against its twin on the CPU, on the adapter at hand.
//!
//! The kernels are those that models run, compiled as models have them compiled; the cases and their bounds are those
//! of the tests. What a kernel gets wrong, or what a driver refuses, is a line of the table and no end of it.

use super::args::SelftestArgs;
use super::progress::ProgressLine;
use super::selftest_report::SelftestReport;
use serde::Serialize;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::Builder;
use std::time::Instant;
use wglm::kernels::{KERNELS, Kernel, KernelCheck};
use wglm::plan::Target;
use wglm::quant::Arithmetic;
use wglm::shader::Pipelines;
use wglm::{Error, Gpu, GpuOptions, Result};

/// A kernel in a format and an arithmetic.
#[derive(Serialize)]
pub struct SelftestRow {
    pub kernel: &'static str,
    /// Of its weights; `-` if it has none.
    pub format: String,
    pub arithmetic: &'static str,
    pub cases: usize,
    /// The largest error as a part of the magnitude of what was added up; none where nothing came of it.
    pub error: Option<f64>,
    /// What that may be; 0 where values are compared exactly.
    pub bound: Option<f64>,
    pub result: TestStatus,
    /// What is wrong with each case that failed, or why none was run.
    pub remarks: Vec<String>,
}

/// What came of a row.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TestStatus {
    Pass,
    Fail,
    /// The adapter has not what the kernel needs; models do without it there.
    Skip,
}

/// What all rows share.
#[derive(Serialize)]
pub struct SelftestConditions {
    pub wglm: &'static str,
    pub gpu_info: String,
    pub backends: &'static str,
    pub driver: String,
    pub system: String,
    /// Lanes of the subgroups that kernels are made for; none where they sum through workgroup memory.
    pub subgroup: Option<usize>,
    /// Shaders check every index, as in debug builds.
    pub checks: bool,
}

pub fn selftest(args: SelftestArgs) -> anyhow::Result<ExitCode> {
    let start = Instant::now();
    let options = args.gpu.options();
    let gpu = Gpu::open(&options)?;
    let wanted = |kernel: &&&Kernel| args.kernel.as_ref().is_none_or(|name| kernel.name.contains(name.as_str()));
    let kernels: Vec<&Kernel> = KERNELS.iter().filter(wanted).copied().collect();
    anyhow::ensure!(!kernels.is_empty(), "no kernel of that name; the kernels are {}", names().join(", "));
    let conditions = conditions(&gpu, options.checks);
    let mut report = SelftestReport::new(args.output.format(), &conditions)?;
    let progress = ProgressLine::new(kernels.len());
    let tests = Tests { options: &options, kernels: &kernels, bounds: args.bounds, next: AtomicUsize::new(0) };
    tests.run(gpu, &progress, &mut |row| progress.aside(|| report.row(row)))?;
    drop(progress);
    report.end(start.elapsed())
}

fn names() -> Vec<&'static str> {
    KERNELS.iter().map(|kernel| kernel.name).collect()
}

/// Devices that kernels are tested on at once. Nearly all time goes to compiling, which some drivers do one kernel at a
/// time on a device.
const DEVICES: usize = 4;

/// The kernels, which threads with a device each take in turn.
struct Tests<'a> {
    options: &'a GpuOptions,
    kernels: &'a [&'static Kernel],
    bounds: f64,
    /// The first kernel that no thread has taken.
    next: AtomicUsize,
}

impl Tests<'_> {
    /// Tells of every row in the order of the kernels.
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
                self.work(taken(&first), &sender); // the system refuses threads
            }
            drop(sender);
            let mut done: Vec<Option<Vec<SelftestRow>>> = self.kernels.iter().map(|_| None).collect();
            let mut told = 0;
            for rows in receiver {
                let (index, rows) = rows?;
                progress.advance();
                done[index] = Some(rows);
                while let Some(rows) = done.get_mut(told).and_then(Option::take) {
                    rows.into_iter().try_for_each(&mut *tell)?;
                    told += 1;
                }
            }
            let died = workers.into_iter().any(|worker| worker.join().is_err()); // joined here, for it to be an error
            anyhow::ensure!(!died && told == done.len(), "a thread died while testing kernels; please report it");
            Ok(())
        })
    }

    /// Takes kernels until none is left, or nobody listens.
    fn work(&self, gpu: Option<Gpu>, sender: &Sender<Result<(usize, Vec<SelftestRow>)>>) {
        let tested = gpu.map_or_else(|| Gpu::open(self.options), Ok).and_then(|gpu| {
            loop {
                let index = self.next.fetch_add(1, Ordering::Relaxed);
                let Some(kernel) = self.kernels.get(index) else { return Ok(()) };
                if sender.send(Ok((index, rows(kernel, &gpu, self.bounds)?))).is_err() {
                    return Ok(());
                }
            }
        });
        if let Err(error) = tested {
            let _ = sender.send(Err(error)); // if nobody listens, another one has failed
        }
    }
}

/// The device that is open already, for whoever comes first.
fn taken(first: &Mutex<Option<Gpu>>) -> Option<Gpu> {
    first.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// A row for each format and arithmetic of a kernel.
fn rows(kernel: &Kernel, gpu: &Gpu, bounds: f64) -> Result<Vec<SelftestRow>> {
    if !kernel.runs_with(gpu.capabilities().matrices) {
        let why = "the GPU has no cooperative matrices of its size".to_owned();
        return Ok(vec![SelftestRow { result: TestStatus::Skip, remarks: vec![why], ..SelftestRow::blank(kernel) }]);
    }
    let mut checks = kernel.checks(Target::of(gpu))?;
    checks.iter_mut().for_each(|check| loosen(check, bounds));
    let pipelines = Pipelines::new(gpu); // of this kernel alone: no other has use for them
    checks.iter().map(|check| row(kernel, check, &pipelines)).collect()
}

fn loosen(check: &mut KernelCheck, factor: f64) {
    let expected = check.cases.iter_mut().flat_map(|case| &mut case.expected);
    expected.for_each(|expected| expected.bound *= factor);
}

impl SelftestRow {
    fn blank(kernel: &Kernel) -> Self {
        let (format, remarks, arithmetic) = ("-".into(), Vec::new(), Arithmetic::Float.name());
        let result = TestStatus::Fail;
        Self { kernel: kernel.name, format, arithmetic, cases: 0, error: None, bound: None, result, remarks }
    }
}

/// Runs a check. Only a lost device or one without memory ends the test.
fn row(kernel: &Kernel, check: &KernelCheck, pipelines: &Pipelines) -> Result<SelftestRow> {
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
            let (error, bound) = (Some(verdict.worst), Some(verdict.bound));
            Ok(SelftestRow { error, bound, result, remarks: verdict.failures, ..blank })
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
        backends: report.backend,
        driver: report.driver.clone(),
        system: system(),
        subgroup: can.subgroups.then_some(can.subgroup),
        checks,
    }
}

/// The system and its version, as `uname` tells it.
fn system() -> String {
    let told = std::process::Command::new("uname").arg("-sr").output().ok().filter(|told| told.status.success());
    let told = told.map(|told| String::from_utf8_lossy(&told.stdout).trim().to_owned());
    format!("{}, {}", told.unwrap_or_else(|| std::env::consts::OS.into()), std::env::consts::ARCH)
}
