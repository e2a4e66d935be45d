//! The command as a user meets it: a process with arguments, streams and an exit code.
//!
//! Everything runs on the demonstration model. A test of a defect that is known stands here as well, ignored,
//! with the reason.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
#![cfg(all(feature = "cli", feature = "demo-model"))]

mod common;

use common::gguf_writer::GgufWriter;
use common::models::{fable_file, fixture, read_f32, read_u32, relative_l2};
use serde_json::Value;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// f32 arithmetic in another order.
const EXACT: f64 = 2e-5;
const VOCAB: usize = 2048;

/// What llama.cpp answers to this question at temperature 0 (tests/fixtures/fable, dialog1).
const QUESTION: &str = "What is seven plus five?";
const THOUGHT: &str = "7 plus 5 is 12.";
const ANSWER: &str = "Seven plus five is twelve.\n";

/// What came of a process.
#[derive(Debug)]
struct Outcome {
    /// None where a signal ended it.
    code: Option<i32>,
    out: String,
    err: String,
}

/// The command, without what the environment of the tests may hold.
fn command<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wglm"));
    command.args(args).env_remove("RUST_LOG").env_remove("NO_COLOR").stdin(Stdio::null());
    // Without it Mesa complains on stderr.
    if std::env::var_os("XDG_RUNTIME_DIR").is_none() {
        command.env("XDG_RUNTIME_DIR", std::env::temp_dir());
    }
    command
}

fn outcome(mut command: Command) -> Outcome {
    let output = command.output().unwrap();
    Outcome {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).expect("UTF-8 on stdout"),
        err: String::from_utf8(output.stderr).expect("UTF-8 on stderr"),
    }
}

/// Runs a command line, cut at spaces.
fn wglm(line: &str) -> Outcome {
    outcome(command(line.split_whitespace()))
}

/// Runs a command line and expects success.
fn succeed(line: &str) -> Outcome {
    let done = wglm(line);
    assert_eq!(done.code, Some(0), "{line}: {done:?}");
    done
}

fn run_prompt(prompt: &str, rest: &str) -> Outcome {
    let mut command = command(["run", "-p", prompt]);
    command.args(rest.split_whitespace());
    let done = outcome(command);
    assert_eq!(done.code, Some(0), "{prompt:?} {rest}: {done:?}");
    done
}

/// Gives `input` to the command's stdin.
fn fed(mut command: Command, input: &[u8]) -> Outcome {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    Outcome { code: output.status.code(), out, err }
}

/// A refusal: exit code 1, nothing on stdout, and on stderr one line that starts with `error: ` and holds
/// the words.
fn refused(what: &str, done: &Outcome, words: &str) {
    assert_eq!(done.code, Some(1), "{what}: {done:?}");
    assert_eq!(done.out, "", "{what}: {done:?}");
    let errors: Vec<&str> = done.err.lines().filter(|line| line.starts_with("error: ")).collect();
    assert!(errors.len() == 1 && errors[0].contains(words), "{what}: expected {words:?}: {done:?}");
    assert!(!done.err.contains("panicked"), "{what}: {done:?}");
}

fn refuses(line: &str, words: &str) {
    refused(line, &wglm(line), words);
}

/// The figures after a reply: tokens of the prompt cached, tokens computed, tokens generated.
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

/// A file of this name with these bytes.
fn written(dir: &TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

fn token_file(dir: &TempDir, name: &str, tokens: &[i32]) -> PathBuf {
    written(dir, name, &tokens.iter().flat_map(|t| t.to_le_bytes()).collect::<Vec<u8>>())
}

// ---- arguments

#[test]
fn help_and_version_go_to_stdout() {
    let commands = ["run", "chat", "inspect", "devices", "tokenize", "template", "logits", "plan", "bench", "profile"];
    let help = succeed("--help");
    assert!(commands.iter().all(|name| help.out.contains(name)) && help.err.is_empty(), "{help:?}");
    for name in commands {
        let help = succeed(&format!("{name} --help"));
        assert!(help.out.contains("Usage: wglm") && help.err.is_empty(), "{help:?}");
    }
    assert_eq!(succeed("--version").out, concat!("wglm ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn wrong_usage_exits_with_2() {
    for (line, words) in [
        ("", "Usage: wglm"),
        ("nosuch", "unrecognized subcommand 'nosuch'"),
        ("run -p hi --nosuch", "unexpected argument '--nosuch'"),
        ("run -p", "a value is required for '--prompt <TEXT>'"),
        ("run one two", "unexpected argument 'two'"),
        ("run one -p two", "cannot be used with"),
        ("run -p one -f two", "cannot be used with"),
        ("run -p hi -m one -m two", "cannot be used multiple times"),
        ("run -p hi -c few", "invalid value 'few' for '--ctx-size <N>'"),
        ("run -p hi -n 5.5", "invalid value '5.5' for '--n-predict <N>'"),
        ("run -p hi -n 99999999999999999999", "number too large"),
        ("run -p hi --seed few", "invalid value 'few' for '--seed <N>'"),
        ("run -p hi --temp warm", "invalid value 'warm' for '--temp <T>'"),
        ("run -p hi --reasoning maybe", "possible values: on, off"),
        ("run -p hi --cache-type q8_0", "possible values: f16, f32"),
        ("run -p hi -ctk q8_0", "possible values: f16, f32"),
        ("run -p hi -sys", "a value is required for '--system-prompt <TEXT>'"),
        ("tokenize", "required arguments were not provided"),
        ("template", "--messages <FILE>"),
        ("logits --tokens t.i32", "--out <FILE>"),
        ("logits --tokens t.i32 --out o.f32 --positions 0,-1", "invalid value '-1' for '--positions <LIST>'"),
        ("logits --tokens t.i32 --out o.f32 --positions 0,,1", "invalid value '' for '--positions <LIST>'"),
        ("plan -d few", "invalid value 'few'"),
        ("bench -r 0", "0 is not in 1.."),
    ] {
        let done = wglm(line);
        assert_eq!(done.code, Some(2), "{line}: {done:?}");
        assert!(done.out.is_empty() && done.err.contains(words), "{line}: expected {words:?}: {done:?}");
    }
}

// ---- files

#[test]
fn files_that_are_no_model() {
    let dir = TempDir::new().unwrap();
    let whole = std::fs::read(fable_file("q4_0")).unwrap();
    let messages = written(&dir, "messages.json", b"[]");
    let llama = GgufWriter::new().meta("general.architecture", "llama").finish();
    let cases: [(&str, &[u8], &str); 7] = [
        ("empty.gguf", b"", "expected 4 bytes, found 0"),
        ("text.gguf", b"no model, only words", "expected `GGUF`, found `no m`"),
        ("version.gguf", b"GGUF\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", "version 1 of GGUF is not supported"),
        ("magic.gguf", &whole[..3], "found 3 before the end of the file"),
        ("header.gguf", &whole[..1000], "tensor count"),
        ("data.gguf", &whole[..2_000_000], "an incomplete download?"),
        ("llama.gguf", &llama, "wglm runs GLM-4.7-Flash, whose files say `deepseek2`"),
    ];
    for (name, bytes, words) in cases {
        let path = written(&dir, name, bytes).display().to_string();
        refuses(&format!("plan -m {path}"), words);
        refuses(&format!("run -p hi -m {path}"), words);
        refuses(&format!("chat -m {path}"), words);
        if name == "llama.gguf" {
            let done = wglm(&format!("inspect {path}"));
            assert!(done.code == Some(1) && done.out.contains("general.architecture = \"llama\""), "{done:?}");
            continue;
        }
        refuses(&format!("inspect {path}"), words);
        refuses(&format!("tokenize -m {path} hi"), words);
        refuses(&format!("template -m {path} --messages {}", messages.display()), words);
    }
}

#[test]
fn files_that_cannot_be_read() {
    let dir = TempDir::new().unwrap();
    let place = dir.path().display();
    for command in ["inspect", "plan -m", "run -p hi -m", "chat -m", "tokenize hi -m", "bench -m"] {
        refuses(&format!("{command} {place}/nosuch.gguf"), "nosuch.gguf: ");
        refuses(&format!("{command} {place}"), "is a directory");
    }
    let tokens = format!("logits --out {place}/out.f32 --tokens");
    for command in ["run -f", "template --messages", &tokens] {
        refuses(&format!("{command} {place}/nosuch"), "cannot read");
        refuses(&format!("{command} {place}"), "cannot read");
    }
    let binary = written(&dir, "binary.txt", b"a\xff");
    refuses(&format!("run -f {}", binary.display()), "UTF-8");
}

#[test]
fn a_reason_comes_once() {
    let dir = TempDir::new().unwrap();
    for path in [dir.path().join("nosuch.gguf"), dir.path().to_owned()] {
        let done = wglm(&format!("inspect {}", path.display()));
        let parts: Vec<&str> = done.err.trim_end().split(": ").collect();
        assert!(parts.windows(2).all(|pair| pair[0] != pair[1]), "{}", done.err);
    }
}

#[cfg(unix)]
#[test]
fn an_unreadable_file() {
    use std::os::unix::fs::PermissionsExt;
    let dir = TempDir::new().unwrap();
    let path = written(&dir, "secret.gguf", b"GGUF");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).unwrap();
    if std::fs::read(&path).is_err() {
        refuses(&format!("inspect {}", path.display()), "Permission denied"); // root reads everything
    }
}

/// The demonstration model's f16 file with a hole in the place of its data.
fn header_only(dir: &TempDir) -> PathBuf {
    let whole = std::fs::read(fable_file("f16")).unwrap();
    let path = written(dir, "header.gguf", &whole[..160_000]);
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(whole.len() as u64).unwrap();
    path
}

#[test]
fn plan_and_inspect_read_the_header_alone() {
    let dir = TempDir::new().unwrap();
    let (hole, whole) = (header_only(&dir), fable_file("f16"));
    for command in ["plan -m", "plan --json -m", "plan --no-subgroups -m", "inspect"] {
        let [hole, whole] = [&hole, &whole].map(|path| succeed(&format!("{command} {}", path.display())).out);
        assert!(hole == whole && hole.lines().count() > 10, "{command}");
    }
}

// ---- run

#[test]
fn stdout_is_the_answer_and_nothing_else() {
    let dir = TempDir::new().unwrap();
    let file = written(&dir, "prompt.txt", format!("{QUESTION}\n").as_bytes()).display().to_string();
    let outcomes = [
        outcome(command(["run", "-p", QUESTION, "--temp", "0"])),
        outcome(command(["run", "--temp", "0", QUESTION])),
        outcome(command(["run", "--temp", "0", "-f", &file])),
        fed(command(["run", "--temp", "0", "-"]), QUESTION.as_bytes()),
        fed(command(["run", "--temp", "0", "-p", "-"]), format!("{QUESTION}\n").as_bytes()),
        outcome(command(["run", "--temp", "0", "-p", QUESTION, "--no-subgroups", "-n", "-1", "-c", "0"])),
        outcome(command(["run", "--temp", "0", "-p", QUESTION, "-m", &fable_file("f16").display().to_string()])),
    ];
    for done in &outcomes {
        assert_eq!((done.code, done.out.as_str()), (Some(0), ANSWER), "{done:?}");
        assert!(done.err.contains(THOUGHT) && !done.err.contains(ANSWER.trim_end()), "{done:?}");
        assert!(!done.err.contains('\x1b') && !done.err.contains("loading"), "{done:?}");
        assert_eq!(figures(&done.err), [[0, 11, 15]], "{done:?}");
    }
}

#[test]
fn without_reasoning_and_without_template() {
    let quiet = run_prompt("Tell me a story about an owl.", "--reasoning off --temp 0");
    let story = "Once upon a time there was a shy owl named Xavier. One morning Xavier found a golden key near a tall \
                 tower.";
    assert!(quiet.out.starts_with(story) && quiet.out.ends_with("it is good to ask for help.\n"), "{quiet:?}");
    assert!(quiet.err.starts_with("[prompt: 0 cached, 13 new"), "{quiet:?}");
    let raw = run_prompt(&format!("[gMASK]<sop><|user|>{QUESTION}<|assistant|></think>"), "--raw --temp 0");
    assert_eq!(raw.out, ANSWER);
    assert_eq!(figures(&raw.err)[0][..2], [0, 11]);
    let system = outcome(command(["run", "-p", "hi", "-sys", "Be brief.", "-n", "0"]));
    assert!(figures(&system.err)[0][1] > figures(&run_prompt("hi", "-n 0").err)[0][1], "{system:?}");
}

#[test]
fn the_same_seed_makes_the_same_text() {
    let story = |rest: &str| run_prompt("Tell me a story about a fox.", &format!("--reasoning off -n 24 {rest}")).out;
    let stories = ["-s 1", "--seed 2", "--seed 3", "-s 4"].map(story);
    assert_eq!(stories[0], story("--seed 1"));
    assert!(stories.iter().any(|other| *other != stories[0]), "{stories:?}");
    assert!(story("--seed 5 --temp 0") == story("--seed 6 --temp 0") && story("--top-k 1") == story("--temp 0"));
}

#[test]
fn as_many_tokens_as_asked_for() {
    for (count, out) in [(0, "\n"), (1, "\n"), (9, "\n"), (10, "Seven\n"), (15, ANSWER)] {
        let done = run_prompt(QUESTION, &format!("--temp 0 -n {count}"));
        assert_eq!(done.out, out, "{count}: {done:?}");
        assert_eq!(figures(&done.err), [[0, 11, count]], "{done:?}");
    }
    let full = run_prompt(QUESTION, "--temp 0 -c 20");
    assert!(full.err.contains("the context is full") && figures(&full.err)[0] == [0, 11, 10], "{full:?}");
    assert!(ANSWER.starts_with(full.out.trim_end()), "{full:?}");
}

#[test]
fn figures_have_their_own_line() {
    let done = run_prompt(QUESTION, "--temp 0 -n 3");
    assert!(done.err.lines().any(|line| line.starts_with("[prompt:")), "{done:?}");
}

#[test]
fn any_language() {
    for prompt in ["👋🏽 你好，世界", "Grüße, café", "  spaces  ", "--temp", "a\n\nb\r\n\tc"] {
        let done = outcome(command(["run", "-n", "6", "-p", prompt]));
        assert_eq!(done.code, Some(0), "{prompt:?}: {done:?}");
    }
}

#[test]
fn prompts_that_are_refused() {
    refuses("run", "no prompt; give one with -p, in a file with -f, or on stdin with -");
    refused("empty", &outcome(command(["run", "--raw", "-p", ""])), "the prompt is empty");
    refuses("run -p hi -c 1", "the context is full: 6 tokens needed, 1 available");
    let long = "fox ".repeat(5000);
    refused("long", &fed(command(["run", "-"]), long.as_bytes()), "available; start over or ask for a longer context");
    refused("binary", &fed(command(["run", "-"]), b"\xff\xfe"), "UTF-8");
    refuses("run -p hi -c 999999999", "use a shorter context (-c)");
    let silent = fixture("models/k-quants.gguf").display().to_string();
    refuses(&format!("run -p hi -m {silent}"), "this file has no tokenizer");
    refuses(&format!("tokenize hi -m {silent}"), "this file has no tokenizer");
}

#[test]
fn an_empty_prompt_is_refused() {
    refused("argument", &outcome(command(["run", "-p", ""])), "the prompt is empty");
    refused("stdin", &fed(command(["run", "-"]), b"\n"), "the prompt is empty");
}

#[test]
fn sampling_out_of_range_is_refused() {
    for (flag, words) in [
        ("--temp nan", "found NaN"),
        ("--temp inf", "found inf"),
        ("--temp=-1", "found -1"),
        ("--top-p 2", "expected a number from 0 to 1, found 2"),
        ("--top-p nan", "found NaN"),
        ("--min-p 2", "expected a number from 0 to 1, found 2"),
    ] {
        refuses(&format!("run -p hi {flag}"), words);
    }
}

#[test]
fn negative_numbers_reach_their_flags() {
    refuses("run -p hi --temp -1", "found -1");
    refuses("run -p hi --top-p -1", "found -1");
    for flag in ["-c -1", "--seed -1", "--top-k -1"] {
        let done = wglm(&format!("run -p hi -n 1 {flag}"));
        assert!(!done.err.contains("'-- -1'"), "{flag}: {done:?}");
    }
}

#[test]
fn absurd_sizes_are_refused() {
    for size in [1u64 << 57, u64::MAX] {
        refuses(&format!("run -p hi -c {size}"), "context: expected 1 to 4294967295 tokens");
        refuses(&format!("plan -c {size}"), "context: expected 1 to 4294967295 tokens");
        succeed(&format!("plan --json -d {size}"));
    }
}

// ---- adapters

#[test]
fn devices_are_listed() {
    let all = succeed("devices");
    assert_eq!(all.out.matches("(used unless another is asked for)").count(), 1, "{all:?}");
    let name = all.out.lines().next().unwrap().split(" (used").next().unwrap();
    let done = outcome(command(["run", "-p", QUESTION, "--temp", "0", "--gpu", name]));
    assert_eq!(done.out, ANSWER, "{done:?}");
}

#[test]
fn adapters_that_are_not_there() {
    for command in ["run -p hi", "chat", "bench"] {
        refuses(&format!("{command} --gpu nosuch"), "no GPU adapter found named `nosuch`; available: `");
        refuses(&format!("{command} --backend nosuch"), "`nosuch`");
    }
    refuses("devices --backend nosuch", "`nosuch`");
    for (variable, words) in [("WGPU_ADAPTER_NAME", "named `nosuch`"), ("WGPU_BACKEND", "`nosuch`")] {
        let mut command = command(["run", "-p", "hi"]);
        command.env(variable, "nosuch");
        refused(variable, &outcome(command), words);
    }
    if cfg!(target_os = "linux") {
        let mut none = command(["run", "-p", "hi", "--backend", "vulkan"]);
        none.env("VK_DRIVER_FILES", "/nonexistent").env("VK_ICD_FILENAMES", "/nonexistent");
        refused("no driver", &outcome(none), "install a Vulkan driver");
    }
}

#[test]
fn an_unknown_backend_is_named() {
    let done = wglm("run -p hi --backend nosuch");
    assert!(done.err.contains("vulkan") && !done.err.contains("install"), "{}", done.err);
}

// ---- chat

/// A conversation over pipes: the lines in, everything out.
fn chat(rest: &str, lines: &[&str]) -> Outcome {
    let arguments = ["chat"].into_iter().chain(rest.split_whitespace());
    let done = fed(command(arguments), lines.join("\n").as_bytes());
    assert_eq!(done.code, Some(0), "{done:?}");
    done
}

#[test]
fn a_conversation_computes_only_what_is_new() {
    let lines = ["My name is Clara.", "", "What is the opposite of dark?", "What is my name?"];
    let done = chat("--reasoning off --temp 0", &lines);
    assert_eq!(done.out, "Nice to meet you, Clara!\nThe opposite of dark is light.\nYour name is Clara.\n");
    let turns = figures(&done.err);
    assert_eq!(turns.len(), 3);
    // The last prompt is that of dialog2, 42 tokens long. Reply and end of a turn are in the cache for the next.
    assert_eq!(turns[2][0] + turns[2][1], 42, "{turns:?}");
    assert_eq!(turns[0][0], 0);
    for pair in turns.windows(2) {
        assert_eq!(pair[1][0], pair[0].iter().sum::<usize>(), "cached is what the turn before left: {turns:?}");
    }
}

#[test]
fn commands_of_a_conversation() {
    let lines = ["/help", "/nosuch", QUESTION, "/clear", "/reasoning off", QUESTION, "/exit", "never said"];
    let done = chat("--temp 0", &lines);
    assert_eq!(done.out, ANSWER.repeat(2), "{done:?}");
    assert!(done.err.contains("no command /nosuch") && done.err.contains("/clear"), "{done:?}");
    assert_eq!(done.err.matches(THOUGHT).count(), 1, "{done:?}");
    assert_eq!(figures(&done.err).len(), 2);
    assert_eq!(done.err.matches("4096 tokens of context").count(), 1);
}

#[test]
fn a_conversation_survives_a_full_context() {
    let long = "fox ".repeat(60);
    let done = chat("--temp 0 -c 40", &[&long, QUESTION]);
    assert!(done.err.contains("error: the context is full") && done.out == ANSWER, "{done:?}");
}

// ---- logits

/// Runs `logits` and returns its rows.
fn logits(dir: &TempDir, tokens: &Path, rest: &str) -> Vec<f32> {
    let out = dir.path().join("logits.f32");
    let done = succeed(&format!("logits --tokens {} --out {} {rest}", tokens.display(), out.display()));
    assert!(done.out.is_empty(), "{done:?}");
    read_f32(out)
}

fn same_rows(got: &[f32], want: &[f32]) {
    assert_eq!(got.len(), want.len());
    for (index, (got, want)) in got.chunks(VOCAB).zip(want.chunks(VOCAB)).enumerate() {
        let error = relative_l2(got, want);
        assert!(error < EXACT, "row {index}: {error:.2e}");
    }
}

#[test]
fn logits_are_those_of_other_programs() {
    let dir = TempDir::new().unwrap();
    let meta = json(&std::fs::read_to_string(fixture("fable/meta.json")).unwrap());
    for case in meta["cases"].as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let tokens = fixture(&format!("fable/{name}.tokens.i32"));
        let positions: Vec<String> = case["positions"].as_array().unwrap().iter().map(Value::to_string).collect();
        let positions = format!("--positions {}", positions.join(","));
        let f16 = format!("-m {} {positions}", fable_file("f16").display());
        for (precision, rest) in [("q4_0", &positions), ("f16", &f16)] {
            let want = read_f32(fixture(&format!("fable/{name}.{precision}.logits.f32")));
            same_rows(&logits(&dir, &tokens, rest), &want);
        }
    }
}

#[test]
fn rows_come_in_the_order_of_the_positions() {
    let dir = TempDir::new().unwrap();
    let tokens = fixture("fable/dialog1.tokens.i32");
    let want = read_f32(fixture("fable/dialog1.q4_0.logits.f32"));
    same_rows(&logits(&dir, &tokens, ""), &want);
    let positions = [5, 0, 26, 5, 9];
    let want: Vec<f32> = positions.iter().flat_map(|p| want[p * VOCAB..(p + 1) * VOCAB].to_vec()).collect();
    same_rows(&logits(&dir, &tokens, "--positions 5,0,26,5,9"), &want);
}

#[test]
fn tokens_that_are_refused() {
    let dir = TempDir::new().unwrap();
    let good = token_file(&dir, "good.i32", &[1, 2, 3]);
    let cases: [(PathBuf, &str, &str); 6] = [
        (written(&dir, "odd.i32", &[0; 7]), "", "found 7 bytes"),
        (written(&dir, "empty.i32", b""), "", "found 0 bytes"),
        (token_file(&dir, "negative.i32", &[1, -1]), "", "expected token ids, found -1"),
        (token_file(&dir, "beyond.i32", &[1, 2048]), "", "token 2048 is outside the vocabulary of 2048 tokens"),
        (good.clone(), "--positions 0,3", "expected less than the 3 tokens, found 3"),
        (good.clone(), "-c 2", "the context is full: 3 tokens needed, 2 available"),
    ];
    for (tokens, rest, words) in cases {
        let out = dir.path().join("out.f32").display().to_string();
        refuses(&format!("logits --tokens {} --out {out} {rest}", tokens.display()), words);
    }
    for out in [dir.path().to_owned(), dir.path().join("nosuch/out.f32")] {
        refuses(&format!("logits --tokens {} --out {}", good.display(), out.display()), "cannot write");
    }
}

#[test]
fn a_failure_leaves_the_old_output() {
    let dir = TempDir::new().unwrap();
    let tokens = token_file(&dir, "good.i32", &[1, 2, 3]);
    let old = written(&dir, "old.f32", b"precious");
    for rest in ["--gpu nosuch", "-c 2", "-m nosuch.gguf"] {
        wglm(&format!("logits --tokens {} --out {} {rest}", tokens.display(), old.display()));
        assert_eq!(std::fs::read(&old).unwrap(), b"precious", "{rest}");
    }
    wglm(&format!("logits --tokens {0} --out {0}", tokens.display()));
    assert_eq!(read_u32(tokens), [1, 2, 3], "the tokens' own file");
}

#[cfg(unix)]
#[test]
fn logits_go_into_a_pipe() {
    let tokens = fixture("fable/dialog1.tokens.i32").display().to_string();
    let arguments = ["logits", "--tokens", &tokens, "--out", "/dev/stdout", "--positions", "0,3"];
    let output = command(arguments).output().unwrap();
    assert!(output.status.success() && output.stdout.len() == 2 * 4 * VOCAB, "{:?}", output.status);
}

// ---- plan and inspect

#[test]
fn totals_of_a_plan_are_the_sums_of_its_steps() {
    for rest in ["", "-d 100", "-c 0 --no-subgroups", "-c 99999"] {
        let plan = json(&succeed(&format!("plan --json {rest}")).out);
        let steps = plan["steps"].as_array().unwrap();
        assert_eq!(plan["dispatches"], steps.len(), "{rest}");
        for total in ["weight_bytes", "cache_bytes", "activation_bytes"] {
            let sum: u64 = steps.iter().map(|step| step[total].as_u64().unwrap()).sum();
            assert!(plan[total] == sum && sum > 0, "{rest}: {total}");
        }
        for step in steps {
            let grid = step["grid"].as_array().unwrap();
            assert!(grid.len() == 3 && grid.iter().all(|size| size.as_u64() > Some(0)), "{step}");
            let [label, kernel, variant] = ["label", "kernel", "variant"].map(|key| step[key].as_str().unwrap());
            assert!(!label.is_empty() && variant.starts_with(kernel), "{step}");
        }
    }
    let [near, far] = ["0", "99"].map(|depth| json(&succeed(&format!("plan --json -d {depth}")).out));
    assert_eq!(near["cache_bytes"].as_u64().map(|bytes| bytes * 100), far["cache_bytes"].as_u64());
    let text = succeed("plan").out;
    assert!(text.contains(&format!("\n{} dispatches, ", near["dispatches"])), "{text}");
    let weights = near["weight_bytes"].as_f64().unwrap() / 1e3;
    assert!(text.contains(&format!("a token moves {weights:.0} kB of weights")), "{weights}: {text}");
}

#[test]
fn a_plan_in_words_heeds_the_depth() {
    assert_ne!(succeed("plan -d 100").out, succeed("plan").out);
}

#[test]
fn inspect_tells_what_a_file_holds_and_needs() {
    let report = succeed("inspect").out;
    for words in [
        "GGUF version 3",
        "deepseek2.context_length = u32 4096",
        "tokenizer.ggml.tokens = array of 2048 string",
        "tensors: 92",
        "weights",
        "cache per 1k tokens",
        "10.00 MiB for 4096 tokens",
        "scratch",
        "1 multi-token-prediction block",
    ] {
        assert!(report.contains(words), "expected {words:?}:\n{report}");
    }
    assert!(report.lines().all(|line| line.chars().count() <= 160), "{report}");
    let guessed = succeed(&format!("inspect {}", fixture("models/legacy-kv-b.gguf").display()));
    assert!((guessed.out + &guessed.err).contains("the file lacks `deepseek2.expert_gating_func`"));
}

// ---- template and tokenize

#[test]
fn templates_are_rendered_as_jinja2_renders_them() {
    let dir = TempDir::new().unwrap();
    let goldens = json(&std::fs::read_to_string(fixture("chat_template.json")).unwrap());
    let (mut rendered, mut beyond) = (0, 0);
    for case in goldens["cases"].as_array().unwrap() {
        let mut input = case["input"].as_object().unwrap().clone();
        let file = |name: &str, value: Value| written(&dir, name, value.to_string().as_bytes()).display().to_string();
        let mut line = format!("template --messages {}", file("messages.json", input.remove("messages").unwrap()));
        if let Some(tools) = input.remove("tools") {
            line += &format!(" --tools {}", file("tools.json", tools));
        }
        if let Some(thinks) = input.remove("enable_thinking") {
            line += if thinks == true { " --reasoning on" } else { " --reasoning off" };
        }
        if input.remove("add_generation_prompt") == Some(Value::Bool(false)) {
            line += " --no-generation-prompt";
        }
        if !input.is_empty() {
            beyond += 1; // a variable that the command has no flag for
            continue;
        }
        rendered += 1;
        assert_eq!(succeed(&line).out, case["rendered"].as_str().unwrap(), "{}", case["input"]);
    }
    assert!(rendered >= 8 && beyond <= 2, "{rendered} rendered, {beyond} beyond the flags");
}

#[test]
fn messages_that_are_refused() {
    let expected = "expected a JSON array of messages with `role` and `content`";
    for (messages, words) in [
        ("[", expected),
        ("", expected),
        ("{}", expected),
        (r#"[{"content":"x"}]"#, "missing field `role`"),
        (r#"[{"role":"user","content":5}]"#, expected),
        (r#"[{"role":"critic","content":"x"}]"#, "a message with the role critic"),
    ] {
        refused(messages, &fed(command(["template", "--messages", "-"]), messages.as_bytes()), words);
    }
    let dir = TempDir::new().unwrap();
    let [messages, tools] = [("m.json", "[]"), ("t.json", "{}")].map(|(n, t)| written(&dir, n, t.as_bytes()));
    let line = format!("template --messages {} --tools {}", messages.display(), tools.display());
    refuses(&line, "expected a JSON array of tools");
}

#[test]
fn tokens_are_those_of_llama_cpp() {
    let goldens = json(&std::fs::read_to_string(fixture("tokenizer.json")).unwrap());
    // Every process costs a moment; all cases go through the library's own test.
    for case in goldens["cases"].as_array().unwrap().iter().step_by(3) {
        let text = case["text"].as_str().unwrap();
        if text == "-" || text.contains('\0') {
            continue; // stdin, and what no argument can hold
        }
        let done = outcome(command(["tokenize", "--ids", "--", text]));
        assert_eq!(json(&done.out), case["ids"], "{text:?}");
    }
    let ids = |rest: &str| json(&succeed(&format!("tokenize --ids {rest}")).out).as_array().unwrap().len();
    assert!(ids("<|user|>") == 1 && ids("--no-parse-special <|user|>") > 1);
    let table = fed(command(["tokenize", "-"]), b"Hi\n\n").out;
    assert_eq!(table, "   1011 \"Hi\"\n    198 \"\\n\"\n");
}

// ---- bench, streams and signals

#[test]
fn bench_prints_its_table() {
    let table = succeed("bench -p 4,0 -n 2 -d 0,8 -r 2").out;
    let tests: Vec<&str> = table.lines().skip(2).map(|row| row.split('|').nth(2).unwrap().trim()).collect();
    assert_eq!(tests, ["pp4", "tg2", "pp4 @ d8", "tg2 @ d8"], "{table}");
    assert!(table.lines().skip(2).all(|row| row.contains(" ± ")), "{table}");
}

#[test]
fn readers_may_leave_early() {
    for line in ["plan --json", "inspect", "run -p story --raw"] {
        let mut command = command(line.split_whitespace());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = [0];
        child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        let output = child.wait_with_output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && !err.contains("error") && !err.contains("panicked"), "{line}: {err}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error() {
    for line in ["inspect", "plan", "run -p hi", "tokenize hi"] {
        let mut command = command(line.split_whitespace());
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        command.stdout(full);
        refused(line, &outcome(command), "No space left on device");
    }
}

#[test]
fn logs_are_plain_in_a_pipe() {
    let mut command = command(["run", "-p", "hi", "-n", "1"]);
    command.env("RUST_LOG", "wglm=info");
    let done = outcome(command);
    assert!(done.err.contains("INFO") && !done.err.contains('\x1b'), "{done:?}");
}

#[test]
fn logs_go_to_stderr() {
    let mut command = command(["run", "-p", QUESTION, "--temp", "0"]);
    command.env("RUST_LOG", "wglm=debug").env("NO_COLOR", "1");
    let done = outcome(command);
    assert!(done.out == ANSWER && done.err.contains("wglm::gpu") && !done.err.contains('\x1b'), "{done:?}");
}

/// Draws at random from the whole vocabulary: a reply that hardly ends by itself.
#[cfg(unix)]
const ENDLESS: &str = "--temp 1000 --top-k 0 --top-p 1 --min-p 0 --seed 7";

#[cfg(unix)]
fn interrupt(child: &std::process::Child) {
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

#[cfg(unix)]
#[test]
fn an_interrupted_run_prints_what_came() {
    let line = format!("run --raw -p once {ENDLESS}");
    let mut command = command(line.split_whitespace());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = vec![0; 20];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut out).unwrap();
    interrupt(&child);
    stdout.read_to_end(&mut out).unwrap();
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{err}");
    assert!(String::from_utf8(out).unwrap().ends_with('\n') && err.contains(", stopped;"), "{err}");
    assert!(figures(&err)[0][2] > 0, "{err}");
}

#[cfg(unix)]
#[test]
fn an_interrupt_in_a_conversation_stops_the_reply_alone() {
    let line = format!("chat --reasoning off {ENDLESS}");
    let mut command = command(line.split_whitespace());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut err = String::new();
    for turn in 1..=2 {
        writeln!(stdin, "{QUESTION}").unwrap();
        stdout.read_exact(&mut [0; 20]).unwrap();
        interrupt(&child);
        while figures(&err).len() < turn {
            assert!(stderr.read_line(&mut err).unwrap() > 0, "{err}");
        }
        assert_eq!(err.matches(", stopped;").count(), turn, "{err}");
    }
    drop(stdin);
    stdout.read_to_end(&mut Vec::new()).unwrap();
    stderr.read_to_string(&mut err).unwrap();
    assert!(child.wait().unwrap().success(), "{err}");
    assert_eq!(figures(&err).len(), 2, "{err}");
}
