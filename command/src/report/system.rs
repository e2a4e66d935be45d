//! The stage that describes the machine.

use super::stages::{Here, say, sum_up};
use crate::devices;
use crate::output;
use crate::selftest::system;
use std::process::Command;
use wglm_engine::instruments::adapter_details;

/// Programs that describe the machine; each exists on some systems. None of them prints a serial number or a name.
const PROGRAMS: [&[&str]; 6] = [
    &["sw_vers"],
    &["sysctl", "hw.model", "machdep.cpu.brand_string", "hw.memsize", "hw.ncpu", "hw.perflevel0.physicalcpu"],
    &["sysctl", "iogpu.wired_limit_mb", "kern.osproductversion"],
    &["system_profiler", "-detailLevel", "mini", "SPDisplaysDataType"],
    &["pmset", "-g"], // a Mac that saves power is slower
    &["nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit", "--format=csv"],
];
/// Files of Linux, and the prefixes of their useful lines.
const FILES: [(&str, &[&str]); 3] = [
    ("/etc/os-release", &["PRETTY_NAME"]),
    ("/proc/meminfo", &["MemTotal", "MemAvailable"]),
    ("/proc/cpuinfo", &["model name"]),
];

pub fn run(here: &Here<'_>) -> anyhow::Result<()> {
    let cores = std::thread::available_parallelism().map_or(0, |n| n.get());
    say(format_args!("{}, {cores} threads at once", system()))?;
    for line in PROGRAMS.into_iter().flat_map(output_of).chain(FILES.into_iter().flat_map(read)) {
        say(format_args!("{line}"))?;
    }
    say(format_args!(""))?;
    let options = here.args.gpu.options()?;
    devices::list(&options)?;
    say(format_args!("\nthe default:"))?;
    output::lines(adapter_details(&options)?)?;
    let gpu = here.gpu()?;
    let (adapter, can) = (gpu.report(), gpu.capabilities());
    let build = if cfg!(debug_assertions) { ", a debug build" } else { "" };
    sum_up(format_args!("wglm {}{build} on {}", env!("CARGO_PKG_VERSION"), system()))?;
    sum_up(format_args!("{} ({}, {}, {})", adapter.name, adapter.backend, adapter.kind, adapter.driver))?;
    sum_up(format_args!(
        "{} of memory, buffers of up to {}; {}; matrices {}; timestamps {}",
        adapter.memory.map_or("an unknown amount".into(), output::bytes),
        output::bytes(adapter.max_buffer),
        if can.subgroups { format!("subgroups of {}", can.subgroup) } else { "no subgroups".into() },
        devices::size_of_matrices(can.matrices),
        if adapter.timestamps { "yes" } else { "no" },
    ))
}

/// The output of a program; nothing if it does not exist.
fn output_of(command: &[&str]) -> Vec<String> {
    let [program, args @ ..] = command else { return Vec::new() };
    let output = Command::new(program).args(args).output().ok();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect()
}

/// The first line with each prefix.
fn read((path, beginnings): (&str, &[&str])) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let first = |beginning: &&str| text.lines().find(|line| line.starts_with(beginning)).map(str::to_owned);
    beginnings.iter().filter_map(first).collect()
}
