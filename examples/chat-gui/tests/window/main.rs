//! Tests that use a real window, on a display of its own, as a user would: they write messages, stop replies, close the
//! window and open it again, load broken files, change, find and export conversations, and download models.
//!
//! Needs Xvfb and xdotool, so it only runs on request: `cargo test -p chat-gui -- --ignored`. With `WGLM_PICTURES` set
//! to a folder it also saves pictures of the window there, for the documentation; that needs ImageMagick's `import`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, missing_docs)]

mod asking;
mod changing;
mod choosing;
mod desk;
mod fetching;
#[allow(dead_code)] // only a part of it is needed here
#[path = "../../../../tests/common/hub.rs"]
mod hub;
mod looks;
mod resizing;

use desk::{Display, Window};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// The fewest frames that have to be drawn during a reply.
const FRAMES: u64 = 40;
/// The most dispatches that a frame may wait for with a software driver: the one that is under way when it begins.
const DISPATCHES: u64 = 1;

const QUESTION: &str = "Tell me a story about an owl.";

#[test]
#[ignore = "drives a window: needs Xvfb and xdotool"]
fn a_window_is_written_to_stopped_and_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let display = Display::open();
    let window = Window::open(&display, folder.path(), &["--temperature", "0"]);
    window.click("demo");
    window.wait("the model", |status| status["model"] == "demonstration model");
    let first = ask_and_watch(&window);
    ask_and_stop(&window);
    window.click("new");
    window.wait("an empty conversation", |status| names(status) == 2 && status["messages"] == json(&[]));
    window.close();
    fs::write(folder.path().join("damaged.json"), "{").unwrap();
    let third = open_again(&display, folder.path());
    frames_wait_for_little("first", &first);
    frames_wait_for_little("third", &third);
}

/// The first reply streams to its end, and the window draws meanwhile.
fn ask_and_watch(window: &Window<'_>) -> Value {
    window.write(QUESTION);
    let mut seen = Vec::new();
    let done = window.wait("the first reply", |status| {
        let pending = status["pending"].as_str().unwrap().to_owned();
        if status["replying"] == true && !seen.contains(&pending) {
            seen.push(pending);
        }
        status["messages"].as_array().unwrap().len() == 2
    });
    assert!(seen.len() >= 5, "the reply came in {} pieces", seen.len());
    assert!(seen.windows(2).all(|two| two[1].starts_with(&two[0])), "{seen:?}");
    assert_eq!(done["messages"][0], QUESTION);
    assert_eq!(done["cached"], 0);
    assert_eq!(done["notices"], json(&[]));
    window.picture("conversation");
    done
}

/// The second reply is stopped in the middle.
fn ask_and_stop(window: &Window<'_>) {
    window.write("Tell me a story about a fox.");
    window.wait("the second reply's beginning", |status| status["pending"].as_str().unwrap().len() > 40);
    window.click("stop");
    let done = window.wait("the stop", |status| status["replying"] == false);
    assert_eq!(done["stop"], "Cancelled");
    assert_eq!(done["messages"].as_array().unwrap().len(), 4, "the part that was generated is kept");
    assert!(done["cached"].as_u64().unwrap() > 0, "the first turn is in the cache: {done}");
}

/// The conversation is restored, and so is its cache; a damaged file is reported.
fn open_again(display: &Display, folder: &Path) -> Value {
    let window = Window::open(display, folder, &["--demo"]);
    let before = window.wait("the conversation's cache", |status| status["held"].as_u64().unwrap() > 0);
    assert_eq!(before["messages"][0], QUESTION);
    assert_eq!(names(&before), 1);
    let notices = before["notices"].to_string();
    assert!(notices.contains("damaged.json"), "{notices}");
    window.write("And a short one.");
    let done = window.wait("the third reply", |status| status["messages"].as_array().unwrap().len() == 6);
    let (cached, new) = (done["cached"].as_u64().unwrap(), done["new"].as_u64().unwrap());
    assert!(cached > 50 && new < 40, "{cached} tokens cached, {new} new");
    window.close();
    done
}

/// A truncated file is reported. The next load can be stopped, and the one after that succeeds.
#[test]
#[ignore = "drives a window: needs Xvfb and xdotool"]
fn loads_that_fail_or_are_stopped_leave_a_window_that_loads() {
    let folder = tempfile::tempdir().unwrap();
    let broken = folder.path().join("broken.gguf");
    fs::write(&broken, &wglm::DEMO_MODEL[..wglm::DEMO_MODEL.len() / 2]).unwrap();
    let display = Display::open();
    let window = Window::open(&display, folder.path(), &[broken.to_str().unwrap()]);
    let shown = window.wait("the error", |status| status["notices"] != json(&[]));
    assert!(shown["notices"][0].as_str().unwrap().contains("broken.gguf"), "{shown}");
    window.click("dismiss");
    window.wait("the error's end", |status| status["notices"] == json(&[]));
    window.click("demo");
    window.click("cancel");
    let stopped = window.wait("the load's end", |status| status["loading"] == false);
    assert_eq!((&stopped["model"], &stopped["notices"]), (&Value::Null, &json(&[])));
    window.click("demo");
    window.wait("the model", |status| status["model"] == "demonstration model");
    window.close();
}

/// Names and settings are saved, and deleted conversations leave no files.
#[test]
#[ignore = "drives a window: needs Xvfb and xdotool"]
fn conversations_are_renamed_and_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let display = Display::open();
    let window = Window::open(&display, folder.path(), &["--demo"]);
    window.wait("the model", |status| status["model"] == "demonstration model");
    window.click("settings");
    window.click("system");
    window.type_in("you are an owl");
    window.wait("the system prompt", |status| status["system"] == "you are an owl");
    window.write("Hello.");
    window.wait("the reply", |status| status["messages"].as_array().unwrap().len() == 2);
    window.click("rename");
    window.press("ctrl+a");
    window.type_in("owls");
    window.press("Return");
    window.wait("the name", |status| status["conversations"] == json(&["owls"]));
    window.close();

    let window = Window::open(&display, folder.path(), &[]);
    let kept = window.wait("the conversation", |status| status["conversations"] == json(&["owls"]));
    assert_eq!((&kept["system"], &kept["messages"][0]), (&"you are an owl".into(), &"Hello.".into()));
    window.click("delete");
    window.click("really delete");
    window.wait("the deletion", |status| status["conversations"] == json(&["New conversation"]));
    window.close();
    let left = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut left = left.collect::<Vec<_>>();
    left.sort();
    assert_eq!(left, ["status", "window"], "nothing else is written");
}

/// Tuning shows its progress and can be stopped. The model replies afterwards.
#[test]
#[ignore = "drives a window: needs Xvfb and xdotool"]
fn a_model_is_tuned_and_that_is_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let display = Display::open();
    let window = Window::open(&display, folder.path(), &["--demo", "--temperature", "0"]);
    window.wait("the model", |status| status["model"] == "demonstration model");
    window.click("tune");
    window.wait("tuning", |status| status["tuning"] == true);
    window.click("stop");
    let done = window.wait("the end of it", |status| status["tuning"] == false && status["loading"] == false);
    let notices = done["notices"].as_array().unwrap();
    assert!(notices.len() == 1 && notices[0].as_str().unwrap().starts_with("Tuning has finished: "), "{notices:?}");
    window.wait("the model", |status| status["model"] == "demonstration model");
    window.write(QUESTION);
    window.wait("the reply", |status| status["messages"].as_array().unwrap().len() == 2);
    window.close();
}

/// The first start on a GPU that wglm has no measurements of announces that it tunes, and that can be stopped. The next
/// start uses the result.
#[test]
#[ignore = "drives a window: needs Xvfb and xdotool"]
fn a_first_start_tunes_once() {
    let folder = tempfile::tempdir().unwrap();
    let display = Display::open();
    let arguments = ["--demo", "--temperature", "0", "--first-tuning", "600"];
    let window = Window::open(&display, folder.path(), &arguments);
    let begun = window.wait("tuning", |status| status["tuning"] == true);
    assert!(begun["notices"][0].as_str().unwrap().contains("takes at most 600 seconds. Press Stop to skip"), "{begun}");
    window.click("stop");
    let done = window.wait("the end of it", |status| status["tuning"] == false && status["loading"] == false);
    assert!(done["notices"][1].as_str().unwrap().starts_with("Tuning has finished: "), "{done}");
    window.write(QUESTION);
    window.wait("the reply", |status| status["messages"].as_array().unwrap().len() == 2);
    window.close();
    assert_eq!(fs::read_dir(folder.path().join("tunings")).unwrap().count(), 1);

    let window = Window::open(&display, folder.path(), &arguments);
    let again = window.wait("the model", |status| status["model"] == "demonstration model");
    assert_eq!((&again["tuning"], &again["notices"]), (&Value::Bool(false), &json(&[])));
    window.close();
}

/// The number of conversations in the list.
fn names(status: &Value) -> usize {
    status["conversations"].as_array().unwrap().len()
}

/// The window was drawn while the reply was generated, and no frame waited for more than one of its dispatches. How
/// long the frames took depends on the load of the machine, and is printed.
fn frames_wait_for_little(reply: &str, status: &Value) {
    let (between, work, dispatches) = (&status["between_ms"], &status["work_ms"], &status["dispatches"]);
    let frames = status["frames"].as_u64().unwrap();
    eprintln!(
        "the {reply} reply: {} tokens, {frames} frames, between them {between}, work {work} ms, dispatches {dispatches}",
        status["generated"]
    );
    assert!(frames >= FRAMES, "only {frames} frames during the {reply} reply");
    let [counted, most] = ["frames", "most"].map(|name| dispatches[name].as_u64().unwrap());
    assert!(counted >= FRAMES, "dispatches were counted in {counted} frames of the {reply} reply");
    assert!(most <= DISPATCHES, "a frame of the {reply} reply waited for {most} dispatches");
}

/// The messages that the window shows.
fn texts(status: &Value) -> Vec<String> {
    status["messages"].as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

fn json(texts: &[&str]) -> Value {
    texts.into()
}

/// The time limit for anything.
const PATIENCE: Duration = Duration::from_secs(180);
