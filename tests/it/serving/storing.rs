//! Tests the cache on disk: after a restart of any kind, prompts are found there.

use super::client::ask;
use super::{Serving, figure_in, wait_for};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Stdio;

/// A question after a system prompt of more than 256 tokens.
fn about(story: &str, question: &str) -> Value {
    let system = format!("{story} sat on a branch and looked at a hill. ").repeat(13);
    let messages = json!([{"role": "system", "content": system}, {"role": "user", "content": question}]);
    json!({"messages": messages, "temperature": 0, "max_tokens": 4, "reasoning_effort": "minimal"})
}

fn start(folder: &Path, more: &[&str]) -> Serving {
    Serving::start(&[&["--cache-dir", folder.to_str().unwrap(), "-np", "1", "-ub", "1"], more].concat())
}

/// The text of an answer, and how many tokens of its prompt were cached.
fn answered(serving: &Serving, body: &Value, key: &str) -> (String, u64) {
    let headers = [("content-type", "application/json"), ("x-api-key", key)];
    let answer = ask(&serving.address, "POST", "/v1/chat/completions", &headers, body.to_string().as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.text());
    let answer = answer.json();
    let text = answer["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
    (text, answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap())
}

#[cfg(unix)]
fn end(mut serving: Serving, signal: &str) {
    let sent = std::process::Command::new("kill").args([signal, &serving.process.id().to_string()]).status().unwrap();
    assert!(sent.success());
    serving.process.wait().unwrap();
}

/// The names of the files in a folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// The cache of a key is found with this key only, wherever it stands in the list after a restart.
#[cfg(unix)]
#[test]
fn extended_a_prompt_is_cached_after_a_restart_for_its_key_only() {
    let folder = tempfile::tempdir().unwrap();
    let (body, other) = (about("An owl", "What did it see?"), about("An owl", "Where did it sit?"));
    let serving = start(folder.path(), &["--api-key", "anna"]);
    let (text, cached) = answered(&serving, &body, "anna");
    assert_eq!(cached, 0);
    end(serving, "-TERM");
    let serving = start(folder.path(), &["--cache-disk", "1G", "--api-key", "ben", "--api-key", "anna"]);
    let metrics = || ask(&serving.address, "GET", "/metrics", &[("x-api-key", "ben")], b"").text();
    let figure = |name: &str| figure_in(&metrics(), &format!("disk_cache_{name}"));
    assert_eq!(figure("limit_bytes"), 1 << 30);
    assert_eq!((answered(&serving, &body, "anna"), figure("read_tokens_total")), ((text, 256), 256));
    // The conversation of another key takes the slot over, and this one comes back.
    assert_eq!(answered(&serving, &body, "ben").1, 0);
    assert_eq!(answered(&serving, &other, "anna").1, 256);
    wait_for("what the other key sent", || figure("written_tokens_total") >= 256);
    let failures = ["damaged_total", "failures_total", "dropped_tokens_total", "removed_tokens_total"];
    assert_eq!(failures.map(figure), [0; 4]);
    assert!(figure("bytes") > 0);
}

/// A kill at any moment leaves a folder from which the next server answers the same.
#[cfg(unix)]
#[test]
fn extended_a_killed_server_loses_little() {
    let folder = tempfile::tempdir().unwrap();
    let stories = ["An owl", "A hare"];
    let ask = |serving: &Serving| stories.map(|story| answered(serving, &about(story, "What did it see?"), ""));
    let wanted = {
        let serving = start(folder.path(), &[]);
        let wanted = ask(&serving).map(|(text, _)| text);
        wait_for("all but the last", || serving.figure("disk_cache_written_tokens_total") >= 256);
        end(serving, "-KILL"); // perhaps while the last one is being written
        wanted
    };
    for _ in 0..2 {
        let serving = start(folder.path(), &[]);
        assert!(names(folder.path()).iter().all(|name| !name.ends_with(".new")), "{:?}", names(folder.path()));
        let found = ask(&serving);
        assert_eq!(found.clone().map(|(text, _)| text), wanted);
        let lost = found[..1].iter().filter(|(_, cached)| *cached < 256).count();
        assert_eq!(lost, 0, "only the last one may be lost: {found:?}");
        assert_eq!(serving.figure("disk_cache_damaged_total"), 0);
        end(serving, "-KILL");
    }
}

#[test]
fn mistakes_are_reported_before_the_model_is_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    for (args, wanted) in [
        (&["--cache-disk", "1G"][..], "--cache-dir"),
        (&["--cache-dir", path, "--cache-disk", "0"], "expected a size, such as 500M or 20G"),
        (&["--cache-dir", path, "--cache-disk", "x"], "expected a size, such as 500M or 20G"),
        (&["--cache-dir", path, "--cache-disk", "99999999T"], "too large"),
        (&["--cache-dir", file.to_str().unwrap()], "cannot create"),
    ] {
        let output = Serving::command(args).stderr(Stdio::piped()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(wanted), "{args:?}: {said}");
    }
}
