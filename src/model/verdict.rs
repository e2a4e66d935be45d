//! The result of a check at load. If an app saves it, the next load with the same kernels on the same adapter skips the
//! check.

use crate::error::Error;
use crate::gpu::{Gpu, Matrices};
use crate::plan::{Choices, Target, Team, WrongOutput};
use crate::shader::Variant;
use crate::wgsl::VERSION;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

/// When a load checks the kernels that it compiled: see [`Model::load_with`](super::Model::load_with).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Check {
    /// If none of [`LoadOptions::verdicts`](super::LoadOptions::verdicts) is about them. With software drivers, for
    /// which the kernels of prompts are compiled with the first prompt, only those of a token are checked.
    #[default]
    Auto,
    /// On every load, kernels of prompts included.
    Always,
    /// Never. Kernels that a verdict reports as wrong are still avoided.
    Never,
}

/// The result of a check at load. It is about the checked shaders, on one adapter, with one driver and one version of
/// wglm; if any of these differs, it does not apply. Its serialized form may change in any release; discard what cannot
/// be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    subject: String,
    without: Without,
    fault: Option<Finding>,
}

/// What kernels have to do without because of the result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Without {
    /// Nothing: all kernels are correct.
    Nothing,
    /// Cooperative matrices.
    Matrices,
    /// Subgroup operations, and so matrices too.
    Subgroups,
}

/// What was wrong with a kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Finding {
    kernel: String,
    place: String,
}

impl From<WrongOutput> for Finding {
    fn from(fault: WrongOutput) -> Self {
        Self { kernel: fault.kernel.to_owned(), place: fault.to_string() }
    }
}

impl Finding {
    /// The model and the verdict at the end of a load.
    pub fn error(self, gpu: &Gpu) -> Error {
        Error::WrongKernel { kernel: self.kernel, adapter: gpu.report().name.clone(), place: self.place }
    }
}

impl Without {
    /// What to do without next if the kernels of a target are wrong; `None` if nothing is left.
    pub fn less_than(target: &Target) -> Option<Self> {
        match (target.team, target.matrices) {
            (Team::Workgroup, _) => None,
            (Team::Subgroup, Matrices::None) => Some(Self::Subgroups),
            (Team::Subgroup, _) => Some(Self::Matrices),
        }
    }

    /// The target without it.
    pub fn of(self, target: &Target) -> Target {
        let target = target.clone();
        match self {
            Self::Nothing => target,
            Self::Matrices => Target { matrices: Matrices::None, ..target },
            // Without subgroups no tiling that was chosen applies.
            Self::Subgroups => {
                let choices = Arc::new(Choices { tilings: Vec::new(), ..(*target.choices).clone() });
                Target { matrices: Matrices::None, team: Team::Workgroup, choices, ..target }
            }
        }
    }
}

impl Verdict {
    pub(super) fn new(subject: String, without: Without, fault: Option<Finding>) -> Self {
        Self { subject, without, fault }
    }

    /// What the verdict is about: the adapter, the driver, the version of wglm, and a number that identifies the
    /// shaders.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// What kernels have to do without.
    pub fn without(&self) -> Without {
        self.without
    }

    /// The wrong kernel that made this necessary, if there is one.
    pub fn kernel(&self) -> Option<&str> {
        self.fault.as_ref().map(|fault| fault.kernel.as_str())
    }
}

impl fmt::Display for Verdict {
    /// Prints a sentence: what was found, and what it costs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cost = match self.without {
            Without::Nothing => return f.write_str("every kernel that was checked gives correct results"),
            Without::Matrices => "cooperative matrices are not used, which makes prompts several times slower",
            Without::Subgroups => "subgroup operations are not used, which makes everything several times slower",
        };
        let Some(Finding { kernel, place }) = &self.fault else { return f.write_str(cost) };
        write!(f, "kernel `{kernel}` gives wrong results on this GPU ({place}): {cost}; a newer driver may help")
    }
}

/// The subject of a verdict on these shaders. Besides them it consists of everything that affects their compilation:
/// the adapter's driver, on a Mac the system, and whether indices are checked.
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
    let told = std::fs::read_to_string("/System/Library/CoreServices/SystemVersion.plist").unwrap_or_default();
    let build = told.split_once("<key>ProductBuildVersion</key>").map_or("", |(_, rest)| rest);
    let value = build.split_once("<string>").and_then(|(_, rest)| rest.split_once("</string>"));
    value.map_or_else(String::new, |(build, _)| format!("build {build}"))
}
