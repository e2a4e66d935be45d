//! Tests the command as a user runs it: a process with arguments, streams and an exit status.
//!
//! Everything runs on the demonstration model. A test of a known defect is here as well, ignored, with the reason.

mod adapters;
mod arguments;
mod chatting;
mod constraining;
mod files;
#[cfg(unix)]
mod interrupts;
mod logits;
mod losing;
mod measuring;
#[cfg(target_os = "linux")]
mod mutated;
mod perplexities;
mod plans;
#[cfg(feature = "download")]
mod pulling;
mod reporting;
mod running;
#[cfg(unix)]
mod saving;
mod selftest;
mod streams;
#[cfg(unix)]
mod terminals;
mod texts;
#[cfg(target_os = "linux")]
mod tunings;
#[cfg(target_os = "linux")]
mod verdicts;

use serde_json::Value;
use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// The bound for f32 sums in another order.
const EXACT: f64 = 2e-5;
const VOCAB: usize = 2048;

/// The answer of llama.cpp to this question at temperature 0 (tests/fixtures/fable, dialog1).
const QUESTION: &str = "What is seven plus five?";
const THOUGHT: &str = "7 plus 5 is 12.";
const ANSWER: &str = "Seven plus five is twelve.\n";

/// The result of a process.
#[derive(Debug)]
struct CommandResult {
    /// The exit status; `None` if a signal ended the process.
    code: Option<i32>,
    out: String,
    err: String,
}

/// The command, without variables that the environment of the tests may set.
fn command<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wglm"));
    command.args(args).env_remove("RUST_LOG").env_remove("NO_COLOR").env("WGLM_NO_HISTORY", "1").stdin(Stdio::null());
    with_cache(&mut command, &std::env::temp_dir().join("wglm-tests"));
    #[cfg(unix)]
    heed_signals(&mut command);
    // Without this variable Mesa prints a complaint to stderr.
    if std::env::var_os("XDG_RUNTIME_DIR").is_none() {
        command.env("XDG_RUNTIME_DIR", std::env::temp_dir());
    }
    command
}

/// Restores the default handling of signals that the tests ignore, as they do if a shell has started them in the
/// background.
#[cfg(unix)]
pub fn heed_signals(command: &mut Command) {
    use nix::sys::signal::{SigHandler, Signal, signal};
    use std::os::unix::process::CommandExt;
    let heed = || {
        for number in [Signal::SIGINT, Signal::SIGHUP] {
            // SAFETY: the default action runs no code of this process.
            unsafe { signal(number, SigHandler::SigDfl) }?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec this calls nothing but `signal`, which is allowed there.
    unsafe { command.pre_exec(heed) };
}

/// Makes the command store its files in another folder. Mesa's compiled shaders stay where they are.
pub fn with_cache(command: &mut Command, folder: &Path) {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    let usual = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    if let Some(shaders) = variable("MESA_SHADER_CACHE_DIR").or(usual) {
        command.env("MESA_SHADER_CACHE_DIR", shaders);
    }
    command.env("XDG_CACHE_HOME", folder).env("XDG_CONFIG_HOME", folder);
}

fn outcome(mut command: Command) -> CommandResult {
    let output = command.output().unwrap();
    CommandResult {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).expect("UTF-8 on stdout"),
        err: String::from_utf8(output.stderr).expect("UTF-8 on stderr"),
    }
}

/// The command, for which every write to a file fails as on a full disk. Its pipes have no such limit.
#[cfg(unix)]
fn with_full_disk(plain: Command) -> Command {
    with_shell(plain, "trap '' XFSZ; ulimit -f 0")
}

/// The command, started by a shell after something else.
#[cfg(unix)]
pub fn with_shell(plain: Command, before: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{before}; exec \"$0\" \"$@\"")]).arg(plain.get_program()).args(plain.get_args());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    heed_signals(&mut shell);
    shell
}

/// Runs a command line, split at spaces.
fn wglm(line: &str) -> CommandResult {
    outcome(command(line.split_whitespace()))
}

/// Runs a command line and expects success.
fn succeed(line: &str) -> CommandResult {
    let done = wglm(line);
    assert_eq!(done.code, Some(0), "{line}: {done:?}");
    done
}

fn run_prompt(prompt: &str, rest: &str) -> CommandResult {
    let done = try_prompt(prompt, rest);
    assert_eq!(done.code, Some(0), "{prompt:?} {rest}: {done:?}");
    done
}

fn try_prompt(prompt: &str, rest: &str) -> CommandResult {
    let mut command = command(["run", "-p", prompt]);
    command.args(rest.split_whitespace());
    outcome(command)
}

/// Runs the command with `input` on its stdin.
fn fed(mut command: Command, input: &[u8]) -> CommandResult {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    CommandResult { code: output.status.code(), out, err }
}

/// Expects a refusal: exit status 1, nothing on stdout, and on stderr one line that begins with `error: ` and contains
/// the words.
fn refused(what: &str, done: &CommandResult, words: &str) {
    assert_eq!(done.code, Some(1), "{what}: {done:?}");
    assert_eq!(done.out, "", "{what}: {done:?}");
    let errors: Vec<&str> = done.err.lines().filter(|line| line.starts_with("error: ")).collect();
    assert!(errors.len() == 1 && errors[0].contains(words), "{what}: expected {words:?}: {done:?}");
    assert!(!done.err.contains("panicked"), "{what}: {done:?}");
}

fn refuses(line: &str, words: &str) {
    refused(line, &wglm(line), words);
}

/// The statistics after a reply: tokens of the prompt that were cached, that were computed, and generated tokens.
fn figures(err: &str) -> Vec<[usize; 3]> {
    let number = |line: &str, before: &str| {
        let rest = line.split_once(before).unwrap_or_else(|| panic!("{before} in {line}")).1.trim_start();
        rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap()].parse().unwrap()
    };
    let lines = err.lines().filter_map(|line| line.split_once("[prompt:")).map(|(_, figures)| format!(":{figures}"));
    lines.map(|l| [number(&l, ":"), number(&l, "cached,"), number(&l, "reply:")]).collect()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// Writes a file with this name and these bytes.
fn written(dir: &TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

fn token_file(dir: &TempDir, name: &str, tokens: &[i32]) -> PathBuf {
    written(dir, name, &tokens.iter().flat_map(|t| t.to_le_bytes()).collect::<Vec<u8>>())
}
