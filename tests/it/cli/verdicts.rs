//! Tests that the results of checks at load are kept between commands.

use super::{ANSWER, command, outcome, with_cache};
use serde_json::Value;
use std::path::Path;

/// Runs the model with a cache folder of its own.
fn run(cache: &Path, check: &str) {
    let mut command = command(["run", "-p", super::QUESTION, "--temp", "0", "--check", check]);
    with_cache(&mut command, cache);
    let done = outcome(command);
    assert_eq!((done.code, done.out.as_str()), (Some(0), ANSWER), "{done:?}");
    assert!(!done.err.contains("note:"), "{done:?}");
}

#[test]
fn a_verdict_is_kept_in_the_cache_folder() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("wglm/verdicts.json");
    run(dir.path(), "never");
    assert!(!file.exists());
    run(dir.path(), "auto");
    let kept = std::fs::read(&file).unwrap();
    let verdicts: Vec<Value> = serde_json::from_slice(&kept).unwrap();
    assert_eq!((verdicts.len(), verdicts[0]["without"].as_str()), (1, Some("nothing")), "{verdicts:?}");
    run(dir.path(), "auto");
    assert_eq!(std::fs::read(&file).unwrap(), kept);

    // A file that cannot be read, or is about something else, counts as absent.
    std::fs::write(&file, b"{").unwrap();
    run(dir.path(), "auto");
    assert_eq!(std::fs::read(&file).unwrap(), kept);
    let other = String::from_utf8(kept).unwrap().replace("shaders", "other shaders");
    std::fs::write(&file, other).unwrap();
    run(dir.path(), "auto");
    let verdicts: Vec<Value> = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(verdicts.len(), 2, "{verdicts:?}");
}
