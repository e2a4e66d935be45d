//! Clang, where there is one that knows f16: it stands in for Apple's compiler, which is a clang as well.

use crate::translate::{Text, checkable, runnable};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use tempfile::TempDir;

/// How kernels are compiled to be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// A little optimised.
    Plain,
    /// As Apple's compiler does: reordering sums, assuming that all are numbers, flushing what is too small. The
    /// machine also turns its order of things around.
    Fast,
}

impl Level {
    pub const ALL: [Self; 2] = [Self::Plain, Self::Fast];

    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Plain => &["-O1"],
            Self::Fast => &["-O2", "-ffast-math"],
        }
    }

    fn machine_flags(self) -> &'static [&'static str] {
        match self {
            Self::Plain => &["-O2"],
            Self::Fast => &["-O2", "-DBACKWARDS", "-DFLUSH"],
        }
    }
}

/// What the compiler may assume of workgroup memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// That other invocations write to it.
    Shared,
    /// What Apple's compiler does: naga passes workgroup memory to the entry by reference, and such parameters are
    /// `noalias` there, so that nobody else writes to it, not even while an invocation waits at a barrier
    /// (gfx-rs/wgpu#4500).
    Noalias,
}

/// How a program is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Build {
    pub level: Level,
    pub memory: Memory,
}

impl Build {
    pub const ALL: [Self; 4] = [
        Self { level: Level::Plain, memory: Memory::Shared },
        Self { level: Level::Fast, memory: Memory::Shared },
        Self { level: Level::Plain, memory: Memory::Noalias },
        Self { level: Level::Fast, memory: Memory::Noalias },
    ];
}

/// How the code of a kernel declares functions of the machine, less what clang's C++ can say of them.
const DECLARED: &str = " local_unnamed_addr #";
const RETURNING: &str = " local_unnamed_addr willreturn nounwind #";

/// A constant without a suffix is an f32 in Metal's language.
const LANGUAGE: [&str; 2] = ["-Xclang", "-cl-single-precision-constant"];

/// The clang of this machine, if it has a suitable one.
fn clang() -> Option<&'static str> {
    static FOUND: OnceLock<Option<String>> = OnceLock::new();
    let find = || {
        let versions = (15..=30).rev().map(|version| format!("clang++-{version}"));
        versions.chain(["clang++".to_owned()]).find(|name| knows_f16(name))
    };
    FOUND.get_or_init(find).as_deref()
}

fn knows_f16(name: &str) -> bool {
    let source = shim().join("metal_stdlib");
    let output =
        Command::new(name).args(LANGUAGE).args(["-std=c++14", "-fsyntax-only", "-w", "-x", "c++"]).arg(source).output();
    output.is_ok_and(|output| output.status.success())
}

fn shim() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/metal/shim")
}

/// Not by `println`, which the harness keeps to itself.
fn say(line: &str) {
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

/// A folder to compile in.
pub struct Workshop {
    clang: &'static str,
    dir: TempDir,
    /// The machine of each level, compiled.
    machines: [OnceLock<Result<PathBuf, String>>; 2],
}

impl Workshop {
    /// None, after a line that says so, where nothing can be compiled. That is an error where clang must be there.
    pub fn open() -> Option<Self> {
        let clang = clang().filter(|_| cfg!(target_os = "linux"));
        if clang.is_none() {
            let lack = "no clang++ 15 or newer (on Debian: clang-16), or this is not Linux";
            assert!(std::env::var_os("WGLM_REQUIRE_CLANG").is_none(), "{lack}");
            say(&format!("SKIPPED, no kernel was compiled or run as on a Mac: {lack}\n"));
        }
        Some(Self { clang: clang?, dir: TempDir::new().unwrap(), machines: Default::default() })
    }

    /// The machine, compiled, to be linked with kernels.
    fn machine(&self, level: Level) -> Result<PathBuf, String> {
        let compile = || {
            let object = self.dir.path().join(format!("machine.{level:?}.o"));
            let source = shim().join("machine.cpp");
            self.run(&[level.machine_flags(), &["-std=c++17", "-c"]].concat(), &[&source], Some(&object))?;
            Ok(object)
        };
        self.machines[level as usize].get_or_init(compile).clone()
    }

    /// A program of kernels and the machine to run them.
    pub fn program(&self, name: &str, texts: &[Text], build: Build) -> Result<PathBuf, String> {
        let Build { level, memory } = build;
        let source = self.file(&format!("{name}.{memory:?}"), &runnable(texts, memory)?);
        let made = |kind| self.dir.path().join(format!("{name}.{level:?}.{memory:?}.{kind}"));
        let (object, flags) = (made("o"), [level.flags(), &["-march=native", "-c"]].concat());
        let source_flags = [&flags[..], &["-std=c++14", "-fno-exceptions"]].concat();
        if memory == Memory::Noalias {
            // Optimised twice, as by Metal's front end and then for the GPU. Between, functions of the machine are said
            // to return, as Apple's are.
            let first = made("ll");
            self.run(&[&source_flags[..], &["-S", "-emit-llvm"]].concat(), &[&source], Some(&first))?;
            let text = std::fs::read_to_string(&first).map_err(|e| e.to_string())?;
            std::fs::write(&first, text.replace(DECLARED, RETURNING)).map_err(|e| e.to_string())?;
            self.run(&flags, &[&first], Some(&object))?;
        } else {
            self.run(&source_flags, &[&source], Some(&object))?;
        }
        let program = self.dir.path().join(format!("{name}.{level:?}.{memory:?}"));
        self.run(&[], &[&object, &self.machine(level)?], Some(&program))?;
        Ok(program)
    }

    /// Has kernels checked with address spaces: what clang has to say.
    pub fn check(&self, name: &str, texts: &[Text]) -> Result<(), String> {
        let source = self.file(name, &checkable(texts));
        let flags = ["-std=c++14", "-DMSL_ADDRESS_SPACES", "-fsyntax-only", "-ferror-limit=0"];
        self.run(&flags, &[&source], None)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(format!("{name}.cpp"));
        std::fs::write(&path, text).unwrap();
        path
    }

    fn run(&self, flags: &[&str], inputs: &[&Path], output: Option<&Path>) -> Result<(), String> {
        let mut command = Command::new(self.clang);
        command.args(flags).args(LANGUAGE).args(["-w", "-I"]).arg(shim()).args(inputs);
        if let Some(output) = output {
            command.arg("-o").arg(output);
        }
        let done = command.output().map_err(|e| e.to_string())?;
        if done.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&done.stderr).into_owned()) }
    }
}
