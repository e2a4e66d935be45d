//! Clang, where there is one that knows f16: it stands in for Apple's compiler, which is a clang as well.

use crate::quotients::by_the_machine;
use crate::translate::{Text, checkable, runnable};
use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use tempfile::TempDir;

/// How kernels are compiled to be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Level {
    /// A little optimised. Functions that fast math makes inexact, and divisions, are the machine's, which can have them
    /// err as far as Metal allows.
    Plain,
    /// As Apple's compiler does: reordering sums, assuming that all are numbers, flushing what is too small. The
    /// machine also turns its order of things around.
    Fast,
}

impl Level {
    pub const ALL: [Self; 2] = [Self::Plain, Self::Fast];

    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Plain => &["-O1", "-DERRING"],
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Memory {
    /// That other invocations write to it.
    Shared,
    /// What Apple's compiler does: naga passes workgroup memory to the entry by reference, and such parameters are
    /// `noalias` there, so that nobody else writes to it, not even while an invocation waits at a barrier
    /// (gfx-rs/wgpu#4500).
    Noalias,
}

/// How a kernel is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Build {
    pub level: Level,
    pub memory: Memory,
}

impl Build {
    /// As Apple's compiler does it, and with neither of its liberties: a kernel that is wrong is wrong there, or says which
    /// of them it does not bear.
    pub const EXTREMES: [Self; 2] =
        [Self { level: Level::Plain, memory: Memory::Shared }, Self { level: Level::Fast, memory: Memory::Noalias }];
    /// With each of them by itself, too.
    pub const ALL: [Self; 4] = [
        Self { level: Level::Plain, memory: Memory::Shared },
        Self { level: Level::Fast, memory: Memory::Shared },
        Self { level: Level::Plain, memory: Memory::Noalias },
        Self { level: Level::Fast, memory: Memory::Noalias },
    ];
}

/// What begins the line that declares a function of the machine in a kernel's intermediate code, what such a line
/// names, and what precedes its attributes.
const DECLARED: [&str; 3] = ["declare ", "@_ZN7machine", " #"];

/// Kernels run briefly, so it pays to choose their machine code quickly. What the compiler assumes of memory is used by
/// the optimiser, which is done by then.
const QUICK_CODE: [&str; 8] = [
    "-mllvm",
    "-fast-isel",
    "-mllvm",
    "-regalloc=fast",
    "-mllvm",
    "-optimize-regalloc=false",
    "-mllvm",
    "-disable-lsr",
];

/// For code to be counted in: loops over the values of a group are unrolled whole and others not at all, so that a turn of
/// a loop is one in the text, and scalars do not become lanes of vectors.
const COUNTABLE: [&str; 10] = [
    "-mllvm",
    "-unroll-threshold=600",
    "-mllvm",
    "-unroll-runtime=false",
    "-mllvm",
    "-unroll-allow-partial=false",
    "-mllvm",
    "-disable-vector-combine",
    "-fno-vectorize",
    "-fno-slp-vectorize",
];

/// The intermediate code of kernels, in which functions of the machine are said to return, as Apple's are. C++ has no
/// words for that.
fn returning(code: &str) -> Result<String, String> {
    let [declare, machine, attributes] = DECLARED;
    let mut found = 0;
    let line = |line: &str| match line.rsplit_once(attributes) {
        Some((before, after)) if line.starts_with(declare) && line.contains(machine) => {
            found += 1;
            format!("{before} willreturn nounwind{attributes}{after}\n")
        }
        _ => format!("{line}\n"),
    };
    let code: String = code.lines().map(line).collect();
    let all = code.lines().filter(|line| line.starts_with(declare) && line.contains(machine)).count();
    if found == all { Ok(code) } else { Err(format!("{} functions of the machine have no attributes", all - found)) }
}

/// The local variables that kernel number `index` keeps in optimised code, except the shim's own: matrices, which its
/// functions take by reference, and what lanes exchange.
fn kept_arrays(code: &str, index: usize) -> Vec<String> {
    let name = format!("kernel_{index}5main_");
    let mut lines = code.lines().skip_while(|line| !(line.starts_with("define ") && line.contains(&name)));
    assert!(lines.next().is_some(), "no kernel {index}");
    let body = lines.take_while(|line| *line != "}");
    let allocas = body.filter_map(|line| line.trim().split_once(" = alloca "));
    let own = |ty: &str| ty.starts_with('[') || !(ty.contains("simdgroup_matrix") || ty.contains("machine::"));
    let told = |(name, ty): (&str, &str)| format!("{name}: {}", ty.split(", align").next().unwrap_or(ty));
    allocas.filter(|(_, ty)| own(ty)).map(told).collect()
}

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

/// A folder to compile in. Tests that run at the same time share it, and what was compiled there.
pub struct Workshop {
    clang: &'static str,
    dir: TempDir,
    /// The machine of each level, compiled.
    machines: [OnceLock<Made>; 2],
    /// Programs by their sources.
    programs: Mutex<HashMap<(Build, String), Program>>,
}

/// A file that was compiled, or what the compiler said.
type Made = Result<PathBuf, String>;
/// The number in a program's file name, and the program once it is compiled.
type Program = (usize, Arc<OnceLock<Made>>);

impl Workshop {
    /// None, after a line that says so, where nothing can be compiled. That is an error where clang must be there.
    pub fn open() -> Option<Arc<Self>> {
        static OPEN: Mutex<Weak<Workshop>> = Mutex::new(Weak::new());

        let clang = clang().filter(|_| cfg!(target_os = "linux"));
        if clang.is_none() {
            let lack = "no clang++ 15 or newer (on Debian: clang-16), or this is not Linux";
            assert!(std::env::var_os("WGLM_REQUIRE_CLANG").is_none(), "{lack}");
            say(&format!("SKIPPED, no kernel was compiled or run as on a Mac: {lack}\n"));
        }
        let clang = clang?;
        let mut open = OPEN.lock().unwrap();
        let shop = open.upgrade().unwrap_or_else(|| {
            let (machines, programs) = Default::default();
            Arc::new(Self { clang, dir: TempDir::new().unwrap(), machines, programs })
        });
        *open = Arc::downgrade(&shop);
        Some(shop)
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

    /// A program of kernels, and of the machine that runs them. Kernels that were asked for before are not compiled again.
    pub fn program(&self, texts: &[Text], build: Build) -> Result<PathBuf, String> {
        let mut texts = texts.to_vec();
        texts.sort_by(|a, b| a.label.cmp(&b.label));
        let source = runnable(&texts, build.memory)?;
        let mut known = self.programs.lock().unwrap();
        let next = (known.len(), Arc::default());
        let (number, made) = known.entry((build, source.clone())).or_insert(next).clone();
        drop(known);
        made.get_or_init(|| self.compile(&format!("program{number}"), &source, build.level)).clone()
    }

    /// Compiles a program: to intermediate code, that code optimised once, with what is said in [`returning`].
    fn compile(&self, name: &str, source: &str, level: Level) -> Result<PathBuf, String> {
        let made = |kind| self.dir.path().join(format!("{name}.{kind}"));
        let (first, object, program) = (made("ll"), made("o"), made("program"));
        let flags = [level.flags(), &["-march=native"]].concat();
        let emit = ["-std=c++14", "-fno-exceptions", "-S", "-emit-llvm", "-Xclang", "-disable-llvm-passes"];
        self.run(&[&flags[..], &emit].concat(), &[&self.file(name, source)], Some(&first))?;
        let code = std::fs::read_to_string(&first).map_err(|e| e.to_string())?;
        let code = if level == Level::Plain { by_the_machine(&code)? } else { code };
        std::fs::write(&first, returning(&code)?).map_err(|e| e.to_string())?;
        self.run(&[&flags[..], &QUICK_CODE, &["-c"]].concat(), &[&first], Some(&object))?;
        self.run(&[], &[&object, &self.machine(level)?], Some(&program))?;
        Ok(program)
    }

    /// The private arrays of each kernel, by its label, that are left after optimising as Apple's compiler does.
    pub fn allocas(&self, texts: &[Text]) -> Result<Vec<(String, Vec<String>)>, String> {
        let name = format!("optimised.{}", texts[0].label);
        let code = self.intermediate(&name, texts, &["-fno-discard-value-names"])?;
        Ok(texts.iter().enumerate().map(|(index, text)| (text.label.clone(), kept_arrays(&code, index))).collect())
    }

    /// The intermediate code that is left of kernels once they are optimised as Apple's compiler does it, to be counted in.
    pub fn optimised(&self, name: &str, texts: &[Text]) -> Result<String, String> {
        self.intermediate(name, texts, &COUNTABLE)
    }

    fn intermediate(&self, name: &str, texts: &[Text], flags: &[&str]) -> Result<String, String> {
        let source = self.file(name, &runnable(texts, Memory::Noalias)?);
        let code = self.dir.path().join(format!("{name}.ll"));
        let emit = ["-std=c++14", "-fno-exceptions", "-S", "-emit-llvm"];
        self.run(&[Level::Fast.flags(), &emit, flags].concat(), &[&source], Some(&code))?;
        std::fs::read_to_string(&code).map_err(|e| e.to_string())
    }

    /// The first line of what the compiler says of itself: its version.
    pub fn version(&self) -> String {
        let told = Command::new(self.clang).arg("--version").output().unwrap();
        String::from_utf8_lossy(&told.stdout).lines().next().unwrap_or_default().to_owned()
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
