//! Tests the raw logits for other programs.

use super::{EXACT, VOCAB, command, json, refuses, succeed, token_file, wglm, written};
use crate::common::gpu::gpu_with_matrices;
use crate::common::models::{fable_file, fixture, read_f32, read_u32, relative_l2};
use serde_json::Value;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Runs `logits` and returns its rows. On a GPU with matrices, which multiply f16, it computes token by token.
fn logits(dir: &TempDir, tokens: &Path, rest: &str) -> Vec<f32> {
    let out = dir.path().join("logits.f32");
    let (from, to) = (tokens.display(), out.display());
    let rest = if gpu_with_matrices().is_some() { format!("-ub 1 {rest}") } else { rest.to_owned() };
    let done = succeed(&format!("logits --arithmetic float --tokens {from} --out {to} {rest}"));
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
fn extended_logits_are_those_of_other_programs() {
    let dir = TempDir::new().unwrap();
    let meta = json(&std::fs::read_to_string(fixture("fable/meta.json")).unwrap());
    for case in &meta["cases"].as_array().unwrap()[1..] {
        let name = case["name"].as_str().unwrap();
        let tokens = fixture(&format!("fable/{name}.tokens.i32"));
        let positions: Vec<String> = case["positions"].as_array().unwrap().iter().map(Value::to_string).collect();
        let positions = format!("--positions {}", positions.join(","));
        let f16 = format!("-m {} {positions}", fable_file("f16").display());
        let (precision, rest) = if name == "dialog1" { ("f16", &f16) } else { ("q4_0", &positions) };
        let want = read_f32(fixture(&format!("fable/{name}.{precision}.logits.f32")));
        same_rows(&logits(&dir, &tokens, rest), &want);
    }
}

#[test]
fn extended_rows_come_in_the_order_of_the_positions() {
    let dir = TempDir::new().unwrap();
    let tokens = fixture("fable/dialog1.tokens.i32");
    let want = read_f32(fixture("fable/dialog1.q4_0.logits.f32"));
    same_rows(&logits(&dir, &tokens, ""), &want);
    let positions = [5, 0, 26, 5, 9];
    let want: Vec<f32> = positions.iter().flat_map(|p| want[p * VOCAB..(p + 1) * VOCAB].to_vec()).collect();
    same_rows(&logits(&dir, &tokens, "--positions 5,0,26,5,9"), &want);
}

#[test]
fn extended_tokens_that_are_refused() {
    let dir = TempDir::new().unwrap();
    let good = token_file(&dir, "good.i32", &[1, 2, 3]);
    let cases: [(PathBuf, &str, &str); 6] = [
        (written(&dir, "odd.i32", &[0; 7]), "", "found 7 bytes"),
        (written(&dir, "empty.i32", b""), "", "found 0 bytes"),
        (token_file(&dir, "negative.i32", &[1, -1]), "", "expected token ids, found -1"),
        (token_file(&dir, "beyond.i32", &[1, 2048]), "", "token 2048 is outside the vocabulary of 2048 tokens"),
        (good.clone(), "--positions 0,3", "expected positions below 3, the number of tokens; found 3"),
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
fn extended_logits_go_into_a_pipe() {
    let tokens = fixture("fable/dialog1.tokens.i32").display().to_string();
    let dir = TempDir::new().unwrap();
    let bytes = |tokens: &str, out: &str| {
        let mut command = command(["logits", "--tokens", tokens, "--out", out, "--positions", "0,3"]);
        command.current_dir(dir.path()).stdin(std::fs::File::open(fixture("fable/dialog1.tokens.i32")).unwrap());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        output.stdout
    };
    let piped = bytes(&tokens, "/dev/stdout");
    assert_eq!(piped.len(), 2 * 4 * VOCAB);
    assert!(piped == bytes(&tokens, "-") && piped == bytes("-", "-"));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "no file named -");
}
