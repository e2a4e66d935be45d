//! The result of checking the kernels on one adapter at load, as plain data that an app can save. It is defined with
//! the errors because a failed load returns it in its error.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The result of a check at load. It is about the compiled shaders, on one adapter, with one driver and one version of
/// wglm; if any of these differs, it does not apply. Its serialized form may change in any release; discard what cannot
/// be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verdict {
    subject: String,
    checked: bool,
    replaced: Vec<KernelFinding>,
}

/// A kernel that cannot be used on an adapter, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct KernelFinding {
    /// The name of the kernel.
    pub kernel: String,
    /// What is wrong with it.
    pub fault: KernelFault,
    /// Where the fault was found: the step and the wrong value, or the shader and the compiler's message.
    pub place: String,
}

/// What is wrong with a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum KernelFault {
    /// It computes wrong results.
    Wrong,
    /// The driver's compiler refuses it.
    Refused,
    /// The driver's compiler does not finish it.
    CompilesForever,
    /// It does not finish, or the GPU stopped working while it ran.
    RunsForever,
}

impl fmt::Display for KernelFault {
    /// Prints the fault as a predicate, without its subject.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Wrong => "gives wrong results",
            Self::Refused => "does not compile",
            Self::CompilesForever => "does not finish compiling",
            Self::RunsForever => "does not finish running",
        })
    }
}

impl KernelFinding {
    /// A finding about a kernel. A long text, such as a compiler's message, is cut.
    pub(crate) fn new(kernel: &str, fault: KernelFault, place: &str) -> Self {
        const LONGEST: usize = 300;
        let words = place.split_whitespace().collect::<Vec<_>>().join(" ");
        let short: String = words.chars().take(LONGEST).collect();
        let place = if short.len() < words.len() { format!("{short}…") } else { short };
        Self { kernel: kernel.to_owned(), fault, place }
    }
}

impl Verdict {
    pub(crate) fn new(subject: String, checked: bool, replaced: Vec<KernelFinding>) -> Self {
        Self { subject, checked, replaced }
    }

    /// What the verdict is about: the adapter, the driver, the version of wglm, and a number that identifies the
    /// shaders.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// Whether the check finished. If it did not, the next load avoids the kernels that are known to be unusable
    /// and checks the others.
    pub fn is_checked(&self) -> bool {
        self.checked
    }

    /// The kernels that cannot be used, in the order in which they were found. They are replaced by kernels that use no
    /// cooperative matrices, or no subgroup operations either.
    pub fn replaced(&self) -> &[KernelFinding] {
        &self.replaced
    }
}

impl fmt::Display for Verdict {
    /// Prints a sentence: what was found, and what it costs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.replaced.is_empty() {
            return f.write_str("every kernel that was checked gives correct results");
        }
        f.write_str("on this GPU ")?;
        for (index, KernelFinding { kernel, fault, place }) in self.replaced.iter().enumerate() {
            let and = if index == 0 { "" } else { " and " };
            write!(f, "{and}kernel `{kernel}` {fault} ({place})")?;
        }
        let others =
            if self.replaced.len() == 1 { "a slower one takes its place" } else { "slower ones take their place" };
        write!(f, ": {others}; a newer driver may help")
    }
}
