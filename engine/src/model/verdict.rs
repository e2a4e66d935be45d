//! When kernels are checked at load, and what a result of the check is valid for. If an app saves the result, the next
//! load with the same kernels on the same adapter skips the check.

use crate::gpu::Gpu;
use crate::shader::Variant;
use crate::wgsl::VERSION;
use std::hash::{DefaultHasher, Hasher};

/// When a load checks the kernels that it compiled: see [`Model::load_with`](super::Model::load_with).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Check {
    /// Unless a finished check in [`LoadOptions::verdicts`](super::LoadOptions::verdicts) covers them. With software
    /// drivers, for which the kernels of prompts are compiled with the first prompt, only those of a token are checked.
    #[default]
    Auto,
    /// On every load, kernels of prompts included.
    Always,
    /// Never. Kernels that do not compile, and those that a verdict reports, are still replaced.
    Never,
}

/// The subject of a verdict on these shaders. Besides them it names everything that affects their compilation: the
/// adapter's driver, on a Mac the system, and whether indices are checked.
pub(super) fn subject<'a>(gpu: &Gpu, variants: impl Iterator<Item = &'a Variant>) -> String {
    let (report, mut shaders) = (gpu.report(), DefaultHasher::new());
    variants.for_each(|variant| shaders.write(variant.compose().as_bytes()));
    let checks = if gpu.checks() { ", indices checked" } else { "" };
    format!(
        "{}, {}, {}{checks}, wglm {}, shaders {:016x}",
        adapter(gpu),
        report.backend,
        driver(gpu),
        VERSION,
        shaders.finish(),
    )
}

/// The adapter, and its maker's number.
pub(super) fn adapter(gpu: &Gpu) -> String {
    format!("{} ({:04x})", gpu.report().name, gpu.report().vendor)
}

/// Everything of the device that decides how shaders are compiled: its driver, and on a Mac the system.
pub(super) fn driver(gpu: &Gpu) -> String {
    [gpu.report().driver.as_str(), &system()].join(" ").trim().to_owned()
}

/// The build of the system, if the system compiles shaders.
fn system() -> String {
    if !cfg!(target_os = "macos") {
        return String::new();
    }
    let plist = std::fs::read_to_string("/System/Library/CoreServices/SystemVersion.plist").unwrap_or_default();
    let build = plist.split_once("<key>ProductBuildVersion</key>").map_or("", |(_, rest)| rest);
    let value = build.split_once("<string>").and_then(|(_, rest)| rest.split_once("</string>"));
    value.map_or_else(String::new, |(build, _)| format!("build {build}"))
}
