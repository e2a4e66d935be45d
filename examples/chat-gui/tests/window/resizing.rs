//! The window changes its size many times while wglm computes on its device.

use super::desk::{Display, Window};
use super::{QUESTION, json};

/// How often the window changes its size.
const CHANGES: u32 = 40;
/// The fewest of these changes that have to meet a submission, or the test would prove nothing.
const MET: u64 = 5;

/// Every change of the size configures the window's surface, which fails if wglm submits meanwhile. It is about to do
/// so during several of the changes, and `Gpu::pause` holds it back.
#[test]
#[ignore = "drives a window: needs Xvfb and xdotool"]
fn a_window_is_resized_while_it_loads_and_replies() {
    let folder = tempfile::tempdir().unwrap();
    let display = Display::open();
    let window = Window::open(&display, folder.path(), &["--temperature", "0"]);
    window.click("demo");
    resize(&window, CHANGES / 3);
    window.wait("the model", |status| status["model"] == "demonstration model");
    window.write(QUESTION);
    window.wait("the reply's beginning", |status| !status["pending"].as_str().unwrap().is_empty());
    resize(&window, CHANGES);
    let done = window.wait("the reply", |status| status["messages"].as_array().unwrap().len() == 2);
    assert_eq!((&done["messages"][0], &done["notices"]), (&QUESTION.into(), &json(&[])));
    let met = done["met"].as_u64().unwrap();
    assert!(met >= MET, "only {met} changes of the size met a submission");
    assert!(!window.errors().contains("the GPU reports"), "{}", window.errors());
    window.close();
}

fn resize(window: &Window<'_>, times: u32) {
    for change in 0..times {
        window.resize(700 + change % 7 * 50, 500 + change % 5 * 40);
    }
}
