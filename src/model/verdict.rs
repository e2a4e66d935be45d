//! What a check at load found, to be kept: the next load with the same kernels on the same adapter need not look again.

use crate::error::Error;
use crate::gpu::{Gpu, Matrices};
use crate::plan::{Target, Team, WrongOutput};
use crate::shader::Variant;
use crate::wgsl::VERSION;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::hash::{DefaultHasher, Hasher};

/// Whether a load checks the kernels that it compiled: see [`Model::load_with`](super::Model::load_with).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Check {
    /// Unless one of [`LoadOptions::verdicts`](super::LoadOptions::verdicts) tells of them. On adapters in software,
    /// whose kernels for prompts are compiled with the first prompt, a token alone.
    #[default]
    Auto,
    /// Whatever is known, prompts too.
    Always,
    /// Not at all. What a verdict tells is heeded.
    Never,
}

/// What a check at load found. It is for the shaders that were checked, on the adapter, with the driver and by the
/// version of wglm that it was made with: where any of these is another, it does not count. Its form, as serde writes
/// it, may change in any release; what cannot be read is to be dropped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    subject: String,
    without: Without,
    fault: Option<Finding>,
}

/// What kernels do without, because of what was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Without {
    /// Nothing: all is well.
    Nothing,
    /// Cooperative matrices.
    Matrices,
    /// Subgroup operations, and so matrices too.
    Subgroups,
}

/// What was wrong with what is done without.
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
    /// The end of a load.
    pub fn error(self, gpu: &Gpu) -> Error {
        Error::WrongKernel { kernel: self.kernel, adapter: gpu.report().name.clone(), place: self.place }
    }
}

impl Without {
    /// What is to be tried where a target's kernels are wrong: less; none if there is no less.
    pub fn less_than(target: &Target) -> Option<Self> {
        match (target.team, target.matrices) {
            (Team::Workgroup, _) => None,
            (Team::Subgroup, Matrices::None) => Some(Self::Subgroups),
            (Team::Subgroup, _) => Some(Self::Matrices),
        }
    }

    /// A target without it.
    pub fn of(self, target: Target) -> Target {
        match self {
            Self::Nothing => target,
            Self::Matrices => Target { matrices: Matrices::None, ..target },
            // Without subgroups no wish for how products are divided can be granted.
            Self::Subgroups => {
                Target { matrices: Matrices::None, team: Team::Workgroup, tiling_overrides: &[], ..target }
            }
        }
    }
}

impl Verdict {
    pub(super) fn new(subject: String, without: Without, fault: Option<Finding>) -> Self {
        Self { subject, without, fault }
    }

    /// What it is about: the adapter, the driver, the version of wglm, and a number that stands for the shaders.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// What kernels do without.
    pub fn without(&self) -> Without {
        self.without
    }

    /// The kernel that was found wrong with what is done without, if there is anything.
    pub fn kernel(&self) -> Option<&str> {
        self.fault.as_ref().map(|fault| fault.kernel.as_str())
    }
}

impl fmt::Display for Verdict {
    /// In a sentence: what was found, and what it costs.
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

/// What a verdict on these shaders is about. Beside them only what compiles them matters: that is the adapter's driver,
/// on a Mac the system, and whether indices are checked.
pub(super) fn subject<'a>(gpu: &Gpu, variants: impl Iterator<Item = &'a Variant>) -> String {
    let (report, mut shaders) = (gpu.report(), DefaultHasher::new());
    variants.for_each(|variant| shaders.write(variant.compose().as_bytes()));
    let checks = if gpu.checks() { ", indices checked" } else { "" };
    format!(
        "{} ({:04x}), {}, {}{checks}, wglm {}, shaders {:016x}",
        report.name,
        report.vendor,
        report.backend,
        [report.driver.as_str(), &system()].join(" ").trim(),
        VERSION,
        shaders.finish(),
    )
}

/// The build of the system where that is what compiles shaders.
fn system() -> String {
    if !cfg!(target_os = "macos") {
        return String::new();
    }
    let told = std::fs::read_to_string("/System/Library/CoreServices/SystemVersion.plist").unwrap_or_default();
    let build = told.split_once("<key>ProductBuildVersion</key>").map_or("", |(_, rest)| rest);
    let value = build.split_once("<string>").and_then(|(_, rest)| rest.split_once("</string>"));
    value.map_or_else(String::new, |(build, _)| format!("build {build}"))
}
