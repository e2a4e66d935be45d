//! Tests that the results of checks at load are saved for later commands.

use super::{ANSWER, command, outcome, with_cache};
use serde_json::{Value, json};
use std::path::Path;

/// Runs the model with its own cache folder.
fn run(cache: &Path, check: &str) {
    let mut command = command(["run", "-p", super::QUESTION, "--temp", "0", "--check", check]);
    with_cache(&mut command, cache);
    let done = outcome(command);
    assert_eq!((done.code, done.out.as_str()), (Some(0), ANSWER), "{done:?}");
    assert!(!done.err.contains("note:"), "{done:?}");
}

#[test]
fn extended_a_verdict_is_saved_in_the_cache_folder() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("wglm/verdicts.json");
    run(dir.path(), "never");
    assert!(!file.exists());
    run(dir.path(), "auto");
    let kept = std::fs::read(&file).unwrap();
    let verdicts: Vec<Value> = serde_json::from_slice(&kept).unwrap();
    let [verdict] = verdicts.as_slice() else { panic!("{verdicts:?}") };
    assert_eq!((&verdict["checked"], &verdict["replaced"]), (&json!(true), &json!([])), "{verdict}");
    run(dir.path(), "auto");
    assert_eq!(std::fs::read(&file).unwrap(), kept);

    // The next write removes the temporary file of a killed process.
    let left = file.with_file_name("verdicts.json.12-3.new");
    std::fs::write(&left, "[").unwrap();
    // A file that cannot be read, or is about something else, counts as absent.
    std::fs::write(&file, b"{").unwrap();
    run(dir.path(), "auto");
    assert_eq!(std::fs::read(&file).unwrap(), kept);
    assert!(!left.exists());
    let other = String::from_utf8(kept).unwrap().replace("shaders", "other shaders");
    std::fs::write(&file, other).unwrap();
    run(dir.path(), "auto");
    let verdicts: Vec<Value> = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(verdicts.len(), 2, "{verdicts:?}");
}

/// A kernel that an earlier start found unusable is avoided, and one sentence says so.
#[test]
fn extended_a_kernel_known_to_be_unusable_is_avoided() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("wglm/verdicts.json");
    run(dir.path(), "auto");
    let mut verdicts: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    verdicts[0]["replaced"] =
        json!([{ "kernel": "mul_mv_pair", "fault": "refused", "place": "`mul_mv_pair.q4_0`: no" }]);
    std::fs::write(&file, verdicts.to_string()).unwrap();
    let mut command = command(["run", "-p", super::QUESTION, "--temp", "0"]);
    with_cache(&mut command, dir.path());
    let done = outcome(command);
    assert_eq!((done.code, done.out.as_str()), (Some(0), ANSWER), "{done:?}");
    let note = "note: on this GPU kernel `mul_mv_pair` does not compile (`mul_mv_pair.q4_0`: no): a slower one takes its \
                place; a newer driver may help";
    assert!(done.err.contains(note), "{done:?}");
}
