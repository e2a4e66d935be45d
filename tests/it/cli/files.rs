//! Tests model files that are broken, missing or valid.

use super::{refuses, succeed, wglm, written};
use crate::common::gguf_writer::GgufWriter;
use crate::common::models::fable_file;
use std::path::PathBuf;
use tempfile::TempDir;

#[test]
fn extended_files_that_are_not_models() {
    let dir = TempDir::new().unwrap();
    let whole = std::fs::read(fable_file("q4_0")).unwrap();
    let messages = written(&dir, "messages.json", b"[]");
    let llama = GgufWriter::new().meta("general.architecture", "llama").finish();
    let cases: [(&str, &[u8], &str); 8] = [
        ("empty.gguf", b"", "empty.gguf: not a GGUF file: it is empty"),
        ("text.gguf", b"no model, only words", "text.gguf: not a GGUF file: it begins with `no model"),
        ("page.gguf", b"<!DOCTYPE html><html>", "page.gguf: not a GGUF file: it is a web page"),
        (
            "version.gguf",
            b"GGUF\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            "this version of GGUF is not supported: version 1",
        ),
        ("magic.gguf", &whole[..3], "found 3 before the end of the file"),
        ("header.gguf", &whole[..1000], "tensor count"),
        ("data.gguf", &whole[..2_000_000], "an incomplete download?"),
        ("llama.gguf", &llama, "wglm runs models of the architecture `deepseek2`, such as GLM-4.7-Flash"),
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
fn extended_files_that_cannot_be_read() {
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
fn a_reason_is_given_once() {
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

/// The demonstration model's f16 file with a hole in place of its data.
fn header_only(dir: &TempDir) -> PathBuf {
    let whole = std::fs::read(fable_file("f16")).unwrap();
    let path = written(dir, "header.gguf", &whole[..160_000]);
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(whole.len() as u64).unwrap();
    path
}

#[test]
fn extended_plan_and_inspect_read_only_the_header() {
    let dir = TempDir::new().unwrap();
    let (hole, whole) = (header_only(&dir), fable_file("f16"));
    for command in ["plan -m", "plan --json -m", "plan --no-subgroups -m", "inspect"] {
        let [hole, whole] = [&hole, &whole].map(|path| succeed(&format!("{command} {}", path.display())).out);
        assert!(hole == whole && hole.lines().count() > 10, "{command}");
    }
}
