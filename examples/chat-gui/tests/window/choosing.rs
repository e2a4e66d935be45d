//! The first screen: what is on this machine, what fits, and what does not.

use super::desk::{Display, Window, cache};
use super::json;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Puts a file where Hugging Face's programs keep those of a repository.
pub fn put(data: &Path, repo: &str, name: &str, bytes: &[u8]) {
    let folder = cache(data).join(format!("models--{}", repo.replace('/', "--"))).join("snapshots/0123");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join(name), bytes).unwrap();
}

/// Whether a list of the status has an entry with this beginning and this end.
pub fn has(status: &Value, list: &str, begins: &str, ends: &str) -> bool {
    let entries = status[list].as_array().unwrap().iter().map(|entry| entry.as_str().unwrap());
    entries.into_iter().any(|entry| entry.starts_with(begins) && entry.ends_with(ends))
}

/// Has the window ask which models a repository has, which it does by itself on machines with enough memory.
pub fn look(window: &Window<'_>, repo: &str) {
    let button = format!("browse {repo}");
    let status = window.wait("the page", |status| status["offered"].to_string().contains(repo));
    if status["places"][&button].is_array() {
        window.click(&button);
    }
}

/// A click opens a model on this machine. The hub is not asked if one fits.
#[test]
#[ignore = "drives a window: needs Xvfb and xdotool"]
fn a_model_on_this_machine_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), "owner/good-GGUF", "demo-Q4_0.gguf", wglm::DEMO_MODEL);
    put(folder.path(), "owner/bad-GGUF", "page-Q8_0.gguf", b"<html>please log in</html>");
    let hub = super::hub::Server::start(|_, _| super::hub::Reply::new(404));
    let display = Display::open();
    let window = Window::open_with_hub(&display, folder.path(), &hub.address, &[]);
    let shown = window.wait("the models", |status| has(status, "local", "owner/good-GGUF:Q4_0: fits", ""));
    assert!(has(&shown, "local", "owner/bad-GGUF:Q8_0: does not run here: not a GGUF file", ""), "{shown}");
    assert!(hub.requests().is_empty(), "{:?}", hub.requests());
    window.picture("choosing");
    // A button that is not enabled does nothing.
    window.click("open owner/bad-GGUF:Q8_0");
    window.click("open owner/good-GGUF:Q4_0");
    let loaded = window.wait("the model", |status| status["model"] != Value::Null);
    assert_eq!((&loaded["model"], &loaded["notices"]), (&"owner/good-GGUF:Q4_0".into(), &json(&[])));
    window.write("Hello.");
    window.wait("the reply", |status| status["messages"].as_array().unwrap().len() == 2);

    // A button shows the page again, and a file can be named by its path.
    window.click("model");
    window.click("path");
    let broken = folder.path().join("broken.gguf");
    fs::write(&broken, &wglm::DEMO_MODEL[..100_000]).unwrap();
    window.type_in(broken.to_str().unwrap());
    window.wait("the verdict", |status| status["file"].as_str().is_some_and(|words| words.contains("does not run")));
    let whole = folder.path().join("whole.gguf");
    fs::write(&whole, wglm::DEMO_MODEL).unwrap();
    window.press("ctrl+a");
    window.type_in(whole.to_str().unwrap());
    window.wait("the other verdict", |status| status["file"] == "fits");
    window.press("Return");
    window.wait("the other model", |status| status["model"] == "whole.gguf");
    window.close();
}

/// Without a hub, and in a small window, the page shows the error and still offers the models on this machine.
#[test]
#[ignore = "drives a window: needs Xvfb and xdotool"]
fn without_a_hub_the_demonstration_model_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let display = Display::open();
    let window = Window::open(&display, folder.path(), &[]);
    let repo = "tencent/Youtu-LLM-2B-GGUF";
    look(&window, repo);
    let failed = window.wait("the failure", |status| has(status, "offered", repo, "."));
    assert!(failed["offered"].to_string().contains("Cannot get tencent/Youtu-LLM-2B-GGUF"), "{failed}");
    window.picture("without");
    window.resize(480, 420);
    window.picture("narrow");
    window.click("demo");
    window.wait("the model", |status| status["model"] == "demonstration model");
    window.write("Hello.");
    window.wait("the reply", |status| status["messages"].as_array().unwrap().len() == 2);
    window.picture("narrow-conversation");
    window.close();
}
