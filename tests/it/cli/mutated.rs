//! Gives randomly changed files to the command: each process ends soon, with little memory, and with a result or an
//! error. `WGLM_FILES` sets the number of files, each of which takes three processes.

use super::command;
use crate::gguf::fuzz::{Change, change};
use proptest::collection::vec;
use proptest::prelude::{Strategy, prop_assert, prop_oneof};
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::{TempDir, tempdir};
use wglm::Gguf;

/// The default number of files.
fn cases() -> u32 {
    std::env::var("WGLM_FILES").ok().and_then(|count| count.parse().ok()).unwrap_or(12)
}

/// The most address space of a process in KiB, including the program.
const MEMORY: usize = 1 << 20;
/// The most time of a process, which takes a fraction of a second.
const TIME: Duration = Duration::from_secs(60);

/// A file, and the size of its header.
#[derive(Debug, Clone)]
struct Original {
    name: String,
    header: usize,
}

impl Original {
    fn of(path: &Path) -> Self {
        let file = Gguf::open(path).unwrap();
        let header = file.tensors().map(|tensor| tensor.offset).min().unwrap();
        Self { name: path.to_str().unwrap().to_owned(), header }
    }

    /// Makes changes anywhere in the header, and as many near the beginning of its keys.
    fn changed(self) -> impl Strategy<Value = (Self, Vec<Change>)> {
        let place = prop_oneof![0..self.header, 0..self.header.min(2048)].boxed();
        vec(change(place), 1..6).prop_map(move |changes| (self.clone(), changes))
    }
}

/// The demonstration model, a model with a larger vocabulary, and all shapes of the family.
fn originals() -> Vec<Original> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths: Vec<_> =
        ["models/fable-10m-q4_0.gguf", "tests/fixtures/family/youtu.gguf"].map(|path| root.join(path)).into();
    let shapes = std::fs::read_dir(root.join("tests/fixtures/models")).unwrap();
    let shapes = shapes.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|e| e == "gguf"));
    // The two models with vocabularies are chosen as often as all others together.
    let shapes: Vec<_> = shapes.collect();
    paths = paths.iter().cycle().take(shapes.len()).cloned().collect();
    paths.extend(shapes);
    paths.iter().map(|path| Original::of(path)).collect()
}

/// Runs a command under limits, and returns its exit status, unless it took too long or a signal ended it, and its
/// output.
fn limited(dir: &TempDir, args: &[&str]) -> (Option<i32>, String) {
    let plain = command(args);
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &format!("ulimit -v {MEMORY}; exec \"$0\" \"$@\"")])
        .arg(plain.get_program())
        .args(plain.get_args());
    shell.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?)))).env_remove("RUST_LOG");
    let said = dir.path().join("said");
    shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&said).unwrap());
    let (start, mut process) = (Instant::now(), shell.spawn().unwrap());
    let code = loop {
        match process.try_wait().unwrap() {
            Some(status) => break status.code(),
            None if start.elapsed() > TIME => {
                process.kill().unwrap();
                process.wait().unwrap();
                break None;
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    (code, String::from_utf8_lossy(&std::fs::read(said).unwrap()).into_owned())
}

#[test]
fn any_file_is_opened_or_refused() {
    let dir = tempdir().unwrap();
    let (file, messages) = (dir.path().join("changed.gguf"), dir.path().join("messages.json"));
    std::fs::write(&messages, r#"[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]"#)
        .unwrap();
    let (file, messages) = (file.to_str().unwrap(), messages.to_str().unwrap());
    let commands: [&[&str]; 3] = [
        &["inspect", "--json", file],
        &["tokenize", "-m", file, "Tell me <|user|> a story about 12 owls."],
        &["template", "-m", file, "--messages", messages],
    ];
    let start = Instant::now();
    let mut runner = TestRunner::new(Config { cases: cases(), failure_persistence: None, ..Config::default() });
    let told = runner.run(&select(originals()).prop_flat_map(Original::changed), |(original, changes)| {
        let mut bytes = std::fs::read(&original.name).unwrap();
        changes.iter().for_each(|change| change.apply(&mut bytes));
        std::fs::write(file, bytes).unwrap();
        for args in commands {
            let (code, said) = limited(&dir, args);
            prop_assert!(matches!(code, Some(0 | 1)), "{args:?} of {}: {code:?}: {said}", original.name);
            prop_assert!(code == Some(0) || said.starts_with("error: ") && said.len() < 10_000, "{args:?}: {said}");
        }
        Ok(())
    });
    println!("{} files in {:?}", cases(), start.elapsed());
    if let Err(error) = told {
        panic!("{error}");
    }
}
