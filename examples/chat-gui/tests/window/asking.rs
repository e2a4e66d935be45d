//! Messages are copied, edited and sent again, and replies regenerated.

use super::desk::{Display, Window};
use super::{json, texts};
use serde_json::Value;
use std::fs;

/// Waits for the end of the reply with this number.
fn replied(window: &Window<'_>, number: u64) -> Value {
    window.wait("a reply", |status| status["replies"] == number && status["replying"] == false)
}

/// Pastes into the empty field, and empties that again.
fn pasted(window: &Window<'_>) -> String {
    window.click("input");
    window.press("ctrl+v");
    let typed = window.wait("what was copied", |status| status["typed"] != "")["typed"].as_str().unwrap().to_owned();
    window.press("ctrl+a");
    window.press("BackSpace");
    window.wait("an empty field", |status| status["typed"] == "");
    typed
}

#[test]
#[ignore = "drives a window: needs Xvfb and xdotool"]
fn a_reply_is_copied_and_regenerated_and_its_message_edited() {
    let folder = tempfile::tempdir().unwrap();
    let display = Display::open();
    let window = Window::open(&display, folder.path(), &["--demo", "--temperature", "0"]);
    window.wait("the model", |status| status["model"] == "demonstration model");
    window.write("What is two plus three?");
    let first = replied(&window, 1);
    assert_eq!(texts(&first).len(), 2);
    window.click("copy reply");
    assert_eq!(pasted(&window), texts(&first)[1]);
    window.click("copy question");
    assert_eq!(pasted(&window), texts(&first)[0]);

    // At a temperature of 0 the new reply is the same, and the question is not computed again.
    window.click("again");
    let again = replied(&window, 2);
    assert_eq!(texts(&again), texts(&first));
    let tokens = |status: &Value, name: &str| status[name].as_u64().unwrap();
    let prompt = tokens(&first, "cached") + tokens(&first, "new");
    assert_eq!(tokens(&again, "cached") + tokens(&again, "new"), prompt);
    assert!(tokens(&again, "new") <= 2, "{again}");

    window.write("What is one plus one?");
    let third = replied(&window, 3);
    window.picture("asking");
    edit(&window, &third);
    let edited = replied(&window, 4);
    assert_eq!(edited["messages"][2], "What is one plus two?");
    assert_eq!((&edited["typed"], &edited["editing"]), (&"a draft".into(), &false.into()));
    assert_eq!(texts(&edited)[..2], texts(&first)[..], "the messages before it stay");
    assert!(tokens(&edited, "cached") > 10, "{edited}");
    window.close();

    // The file has what the window showed.
    let window = Window::open(&display, folder.path(), &[]);
    let kept = window.wait("the conversation", |status| texts(status).len() == 4);
    assert_eq!(texts(&kept), texts(&edited));
    assert_eq!(kept["conversations"], json(&["What is two plus three?"]));
    window.close();
}

/// The editing of the last message is cancelled with Escape once. Then the message is edited and sent.
fn edit(window: &Window<'_>, before: &Value) {
    window.click("input");
    window.press("Up");
    let editing = window.wait("the last message", |status| status["editing"] == true);
    assert_eq!(editing["typed"], before["messages"][2]);
    window.press("Escape");
    let left = window.wait("the empty field", |status| status["editing"] == false);
    assert_eq!((&left["typed"], &left["messages"]), (&"".into(), &before["messages"]));
    window.type_in("a draft");
    window.wait("the draft", |status| status["typed"] == "a draft");
    window.click("edit");
    window.wait("the last message again", |status| status["editing"] == true);
    window.picture("editing");
    window.press("ctrl+a");
    window.type_in("What is one plus two?");
    window.press("Return");
}

/// A conversation with a block of code and an unanswered message, as a window leaves it if it is closed too early.
#[test]
#[ignore = "drives a window: needs Xvfb and xdotool"]
fn code_is_copied_and_an_unanswered_message_answered() {
    let folder = tempfile::tempdir().unwrap();
    let code = "fn main() {\n    println!(\"an owl\");\n}";
    let messages = serde_json::json!([
        { "role": "user", "content": "Show me Rust." },
        { "role": "assistant", "content": format!("Like this:\n\n```rust\n{code}\n```\n\nThat is *all*.") },
        { "role": "user", "content": "What is two plus three?" },
    ]);
    let conversation = serde_json::json!({
        "version": 1, "title": "Rust", "messages": messages, "settings": { "temperature": 0.0 },
    });
    fs::write(folder.path().join("0000000000000001.json"), conversation.to_string()).unwrap();
    let display = Display::open();
    let window = Window::open(&display, folder.path(), &["--demo"]);
    window.wait("the model", |status| status["model"] == "demonstration model");
    window.click("copy code");
    assert_eq!(pasted(&window), code);
    window.picture("code");
    window.click("again");
    let done = replied(&window, 1);
    assert_eq!(texts(&done).len(), 4);
    window.close();
}

/// A message is kept whether or not there was time for a reply before the window was closed.
#[test]
#[ignore = "drives a window: needs Xvfb and xdotool"]
fn a_message_outlives_the_window() {
    let folder = tempfile::tempdir().unwrap();
    let display = Display::open();
    let window = Window::open(&display, folder.path(), &["--demo"]);
    window.wait("the model", |status| status["model"] == "demonstration model");
    window.write("Tell me a story about an owl.");
    window.wait("a reply under way", |status| status["replying"] == true || status["replies"] == 1);
    window.close();
    let window = Window::open(&display, folder.path(), &[]);
    let kept = window.wait("the conversation", |status| !texts(status).is_empty());
    assert_eq!(texts(&kept)[0], "Tell me a story about an owl.");
    window.close();
}
