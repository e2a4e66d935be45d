//! Tests that a file is either the old one or the new one, even on a full disk.

use super::{QUESTION, command, fed, json, outcome, refused, token_file, with_full_disk, written};
use tempfile::TempDir;

#[test]
fn extended_a_full_disk_leaves_the_old_file() {
    let dir = TempDir::new().unwrap();
    let before = br#"[{"role": "user", "content": "A."}]"#;
    let file = written(&dir, "saved.json", before);
    let talk = with_full_disk(command(["chat", "--temp", "0", "--reasoning", "off"]));
    let done = fed(talk, format!("{QUESTION}\n/save {}\n{QUESTION}\n", file.display()).as_bytes());
    assert!(done.code == Some(1) && done.err.contains("error: cannot write "), "{done:?}");
    assert_eq!(
        (done.out.lines().count(), std::fs::read(&file).unwrap().as_slice()),
        (2, before.as_slice()),
        "{done:?}"
    );

    let out = written(&dir, "out.f32", b"before");
    let tokens = token_file(&dir, "tokens.i32", &[1, 2]);
    let [tokens_name, out_name] = [&tokens, &out].map(|path| path.to_str().unwrap());
    let line = ["logits", "--tokens", tokens_name, "--out", out_name];
    refused("logits", &outcome(with_full_disk(command(line))), "cannot write ");
    assert_eq!(std::fs::read(&out).unwrap(), b"before");
    // A report replaces the previous one only once it has its first line.
    let report = written(&dir, "report.txt", b"before");
    refused("report", &outcome(with_full_disk(command(["report", "-o", report.to_str().unwrap()]))), "cannot ");
    assert_eq!(std::fs::read(&report).unwrap(), b"before");
    let names = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    assert_eq!(names, ["out.f32", "report.txt", "saved.json", "tokens.i32"]);
}

/// The file of a saved conversation may be a link, for example into a folder that is synchronised.
#[test]
fn a_link_stays_a_link() {
    let dir = TempDir::new().unwrap();
    let file = written(&dir, "file.json", b"[]");
    let link = dir.path().join("link.json");
    std::os::unix::fs::symlink("file.json", &link).unwrap();
    let talk = command(["chat", "--temp", "0", "--reasoning", "off", "-sys", "Hello."]);
    let done = fed(talk, format!("/save {}\n", link.display()).as_bytes());
    assert!(done.code == Some(0) && std::fs::symlink_metadata(&link).unwrap().is_symlink(), "{done:?}");
    assert_eq!(json(&std::fs::read_to_string(file).unwrap())[0]["content"], "Hello.");
}
