//! Clang, if this machine has one that supports f16. It represents Apple's compiler, which is a clang too.

use crate::quotients::by_the_machine;
use crate::translate::{Text, checkable, runnable};
use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use tempfile::TempDir;

/// How kernels are compiled before they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Level {
    /// With few optimisations. Divisions and functions that fast math makes inexact call the machine, which can let
    /// them err as far as Metal allows.
    Plain,
    /// As by Apple's compiler, which reorders sums, assumes that all values are finite, and flushes values that are too
    /// small. The machine also reverses its order of lanes.
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

/// What the compiler may assume about workgroup memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Memory {
    /// That other invocations write to it.
    Shared,
    /// What Apple's compiler assumes: naga passes workgroup memory to the entry point by reference, and such parameters
    /// are `noalias`, so no one else writes to it, not even while an invocation waits at a barrier (gfx-rs/wgpu#4500).
    Noalias,
}

/// How a kernel is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Build {
    pub level: Level,
    pub memory: Memory,
}

impl Build {
    /// As by Apple's compiler, and with neither of its liberties. A wrong kernel is wrong in both builds; otherwise the
    /// difference shows that a liberty breaks it.
    pub const EXTREMES: [Self; 2] =
        [Self { level: Level::Plain, memory: Memory::Shared }, Self { level: Level::Fast, memory: Memory::Noalias }];
    /// Also with each liberty separately.
    pub const ALL: [Self; 4] = [
        Self { level: Level::Plain, memory: Memory::Shared },
        Self { level: Level::Fast, memory: Memory::Shared },
        Self { level: Level::Plain, memory: Memory::Noalias },
        Self { level: Level::Fast, memory: Memory::Noalias },
    ];
}

/// The beginning of a line that declares a function of the machine in a kernel's intermediate code, the prefix of the
/// function's name, and the text before its attributes.
const DECLARED: [&str; 3] = ["declare ", "@_ZN7machine", " #"];

/// Kernels run briefly, so fast selection of instructions saves time. The optimiser, which uses assumptions about
/// memory, has finished by then.
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

/// For code whose operations are counted: loops over the values of a group are unrolled completely and others not at
/// all, so that one iteration is one in the text, and scalars are not combined to vectors.
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

/// The intermediate code of kernels, with the attribute that functions of the machine return, as Apple's do. C++ cannot
/// express it.
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

/// The local variables that kernel number `index` keeps in optimised code, except those of the shim: matrices, which
/// its functions take by reference, and values that lanes exchange.
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

/// This machine's clang, if it has a suitable one.
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

/// Not by `println`, whose output the test harness captures.
fn say(line: &str) {
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

/// A folder to compile in. Concurrent tests share it and the compiled files.
pub struct Workshop {
    clang: &'static str,
    dir: TempDir,
    /// The machine of each level, compiled.
    machines: [OnceLock<Made>; 2],
    /// The programs, by their sources.
    programs: Mutex<HashMap<(Build, String), Program>>,
}

/// A compiled file, or the compiler's messages.
type Made = Result<PathBuf, String>;
/// The number in a program's file name, and the program once it is compiled.
type Program = (usize, Arc<OnceLock<Made>>);

impl Workshop {
    /// `None`, after a message, if nothing can be compiled. That is an error where clang is required.
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

    /// The compiled machine, to be linked with kernels.
    fn machine(&self, level: Level) -> Result<PathBuf, String> {
        let compile = || {
            let object = self.dir.path().join(format!("machine.{level:?}.o"));
            let source = shim().join("machine.cpp");
            self.run(&[level.machine_flags(), &["-std=c++17", "-c"]].concat(), &[&source], Some(&object))?;
            Ok(object)
        };
        self.machines[level as usize].get_or_init(compile).clone()
    }

    /// A program with kernels and the machine that runs them. The same kernels are compiled once.
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

    /// Compiles a program: to intermediate code, which is changed by [`returning`] and then optimised once.
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

    /// The private arrays of each kernel, by its label, that remain after optimisation as by Apple's compiler.
    pub fn allocas(&self, texts: &[Text]) -> Result<Vec<(String, Vec<String>)>, String> {
        let name = format!("optimised.{}", texts[0].label);
        let code = self.intermediate(&name, texts, &["-fno-discard-value-names"])?;
        Ok(texts.iter().enumerate().map(|(index, text)| (text.label.clone(), kept_arrays(&code, index))).collect())
    }

    /// The intermediate code of kernels after optimisation as by Apple's compiler, to count operations in.
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

    /// The compiler's version: the first line of its description.
    pub fn version(&self) -> String {
        let told = Command::new(self.clang).arg("--version").output().unwrap();
        String::from_utf8_lossy(&told.stdout).lines().next().unwrap_or_default().to_owned()
    }

    /// Checks kernels with address spaces, and returns clang's messages.
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
