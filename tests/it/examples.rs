//! Runs the examples as a user does, with the demonstration model.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The path of a built example. Cargo builds all examples together with the tests, in a folder next to theirs.
fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(|deps| deps.parent()).expect("tests lie in target/PROFILE/deps");
    profile.join("examples").join(name).with_extension(std::env::consts::EXE_EXTENSION)
}

/// The output of an example for these lines of input. Cargo builds all examples along with the tests; before
/// `cargo test --test examples` alone, run `cargo build --examples`.
fn run(name: &str, input: &str) -> String {
    let path = built(name);
    let mut command = Command::new(&path);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    // An example may end before it has read everything.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name}: {}\n{out}\n{err}", output.status);
    assert!(!err.contains("panicked"), "{name} complains: {err}"); // drivers may print messages
    out.into_owned()
}

const STORY: &str = "In a quiet valley lived a shy owl";

#[test]
fn extended_generate() {
    let said = run("generate", "");
    assert!(said.contains(STORY) && said.contains("tokens per second"), "{said}");
}

#[test]
fn extended_embed_device() {
    let said = run("embed_device", "");
    assert!(said.contains(STORY), "{said}");
    let frames = said.rsplit_once('[').and_then(|(_, rest)| rest.split(' ').next()?.parse::<u32>().ok());
    assert!(frames.is_some_and(|frames| frames > 5), "{said}");
}

#[test]
fn chat() {
    let out = run("chat", "My name is Anna.\nWhat is my name?\n\nnever read\n");
    let turns: Vec<&str> = out.split("> ").collect();
    assert_eq!(turns.len(), 4, "{out}");
    assert!(turns[1].contains("[0 tokens from the cache"), "{out}"); // replies are sampled, so they differ each time
    assert!(!turns[2].contains("[0 tokens from the cache"), "{out}");
}

#[test]
fn long_custom_sampler() {
    let out = run("custom_sampler", "");
    let (story, figures) = out.trim_end().rsplit_once("\n[").expect(&out);
    let bits: f64 = figures.split(", ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!(story.len() > 40 && (0.05..4.0).contains(&bits), "{out}");
}

/// The demonstration model calls no functions; tests/replies tests that a call is answered.
#[test]
fn long_tool_call() {
    let out = run("tool_call", "");
    assert!(out.trim().len() > 3 && !out.contains("add("), "{out}");
}
