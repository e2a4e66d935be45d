//! Messages are edited, deleted, continued, switched between versions, found and exported; and settings have presets,
//! functions and schemas.

use super::desk::{Display, Window};
use super::{json, texts};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Writes a conversation as the first version of the program wrote it.
fn put(folder: &Path, settings: Value, messages: Value) {
    let conversation = serde_json::json!({ "version": 1, "title": "Mice", "messages": messages, "settings": settings });
    fs::write(folder.join("0000000000000001.json"), conversation.to_string()).unwrap();
}

/// Waits for the end of the reply with this number.
fn replied(window: &Window<'_>, number: u64) -> Value {
    window.wait("a reply", |status| status["replies"] == number && status["replying"] == false)
}

/// Waits until each message is this version, counted from 1, of that many.
fn versions(window: &Window<'_>, expected: &[(u64, u64)]) -> Value {
    let expected: Vec<Value> = expected.iter().map(|(version, of)| serde_json::json!([version - 1, of])).collect();
    window.wait("versions", |status| *status["versions"].as_array().unwrap() == expected)
}

fn replace(window: &Window<'_>, field: &str, text: &str) {
    window.click(field);
    window.press("ctrl+a");
    window.type_in(text);
}

#[test]
#[ignore = "drives a window: needs Xvfb and xdotool"]
fn messages_are_changed_continued_found_and_exported() {
    let folder = tempfile::tempdir().unwrap();
    let said = serde_json::json!([
        { "role": "user", "content": "What is a mouse?" },
        { "role": "assistant", "content": "A small animal." },
    ]);
    put(folder.path(), serde_json::json!({ "temperature": 0.0, "max_tokens": 8, "thinking": "Off" }), said);
    let display = Display::open();
    let window = Window::open(&display, folder.path(), &["--demo"]);
    window.wait("the model", |status| status["model"] == "demonstration model");
    continued(&window);
    changed(&window);
    found_and_exported(&window, folder.path());
    window.close();

    // Nothing is lost, and the model is loaded that was used last.
    let window = Window::open(&display, folder.path(), &[]);
    let loaded = window.wait("the model", |status| status["model"] == "demonstration model");
    assert_eq!(texts(&loaded)[0], "What is a mole?");
    window.click("previous 0");
    versions(&window, &[(1, 2), (1, 1), (1, 1), (1, 2)]);
    window.click("unload");
    let unloaded = window.wait("the end of the model", |status| status["model"] == Value::Null && status["held"] == 0);
    window.wait("the memory", |status| status["memory"] == 0);
    assert_eq!(texts(&unloaded).len(), 4, "the conversation stays");
    assert!(loaded["memory"].as_u64().unwrap() > 1 << 20, "{loaded}");
    window.picture("unloaded");
    window.close();
    assert!(
        !folder.path().join("window/last-model.json").exists(),
        "a model that was unloaded is not loaded at the next start"
    );
}

/// A reply that was cut off is continued, without computing any of it again, and regenerated.
fn continued(window: &Window<'_>) {
    window.write("Tell me a story about an owl.");
    let cut = replied(window, 1);
    assert_eq!((&cut["stop"], &cut["generated"]), (&"Length".into(), &8.into()));
    window.click("continue");
    let whole = replied(window, 2);
    let [before, after] = [&cut, &whole].map(|status| texts(status)[3].clone());
    assert!(after.starts_with(&before) && after.len() > before.len(), "{before:?}, then {after:?}");
    assert!(whole["new"].as_u64().unwrap() <= 1, "{whole}");
    window.click("again");
    replied(window, 3);
    let again = versions(window, &[(1, 1), (1, 1), (1, 1), (2, 2)]);
    assert_eq!(texts(&again)[3], before, "the temperature is 0");
    window.picture("versions");
    window.click("previous 3");
    assert_eq!(texts(&versions(window, &[(1, 1), (1, 1), (1, 1), (1, 2)]))[3], after);
}

/// Messages are deleted, restored, changed, and sent again with another text.
fn changed(window: &Window<'_>) {
    window.click("delete message 0");
    let deleted = window.wait("the deletion", |status| texts(status).len() == 3);
    assert_eq!(texts(&deleted)[0], "A small animal.");
    window.picture("deleted");
    window.click("undo");
    window.wait("the message", |status| texts(status).len() == 4);
    window.click("edit reply 1");
    window.wait("its text", |status| status["typed"] == "A small animal.");
    replace(window, "input", "A grey animal.");
    window.press("Return");
    let changed = window.wait("the change", |status| texts(status)[1] == "A grey animal.");
    assert_eq!((&changed["replies"], &changed["typed"], texts(&changed).len()), (&3.into(), &"".into(), 4));
    window.click("edit 0");
    window.wait("its text", |status| status["typed"] == "What is a mouse?");
    replace(window, "input", "What is a mole?");
    window.picture("editing-first");
    window.press("Return");
    let asked = replied(window, 4);
    assert_eq!(texts(&asked)[0], "What is a mole?");
    assert!(asked["cached"].as_u64().unwrap() > 0, "the beginning of the prompt is the same: {asked}");
    versions(window, &[(2, 2), (1, 1)]);
}

/// The search finds a message in another version, and opens that.
fn found_and_exported(window: &Window<'_>, folder: &Path) {
    window.press("ctrl+f");
    window.wait("the cursor in the search", |status| status["seeking"] == true);
    window.type_in("GREY");
    window.wait("what is found", |status| status["found"] == json(&["A grey animal."]));
    window.picture("found");
    window.press("Return");
    versions(window, &[(1, 2), (1, 1), (1, 1), (1, 2)]);
    window.click("search");
    window.press("Escape");
    window.wait("the list", |status| status["found"] == json(&[]));
    window.click("export conversation");
    let file = folder.join("mice.md");
    replace(window, "export path", file.to_str().unwrap());
    window.picture("exporting");
    window.press("Return");
    let shown = window.wait("the export", |status| status["notices"] != json(&[]));
    assert!(shown["notices"][0].as_str().unwrap().ends_with("mice.md."), "{shown}");
    let written = fs::read_to_string(file).unwrap();
    assert!(written.starts_with("# Mice\n\n## User\n\nWhat is a mouse?\n\n## Model\n\nA grey animal.\n"), "{written}");
    window.click("dismiss");
    window.click("next 0");
    versions(window, &[(2, 2), (1, 1)]);
}

/// A model that crashed the program is not loaded again; results of functions are typed; a schema is checked, and the
/// answer follows it; settings are saved as a preset, and chosen for another conversation.
#[test]
#[ignore = "drives a window: needs Xvfb and xdotool"]
fn settings_have_functions_schemas_and_presets() {
    let folder = tempfile::tempdir().unwrap();
    let call = serde_json::json!({ "id": "1", "type": "function",
        "function": { "name": "count", "arguments": { "animals": "owls" } } });
    let said = serde_json::json!([
        { "role": "user", "content": "How many owls are there?" },
        { "role": "assistant", "content": "", "tool_calls": [call] },
    ]);
    let tools = r#"[{"type": "function", "function": {"name": "count", "parameters": {"type": "object"}}}]"#;
    put(
        folder.path(),
        serde_json::json!({ "temperature": 0.0, "max_tokens": 16, "thinking": "Off", "tools": tools }),
        said,
    );
    fs::create_dir(folder.path().join("window")).unwrap();
    let last = r#"{"source": "demo", "context": null, "loaded": false}"#;
    fs::write(folder.path().join("window/last-model.json"), last).unwrap();
    fs::write(folder.path().join("window/presets.json"), "[{").unwrap();
    let display = Display::open();
    let window = Window::open(&display, folder.path(), &[]);
    let shown = window.wait("what was not done", |status| status["notices"].as_array().unwrap().len() == 2);
    assert!(shown["notices"][0].as_str().unwrap().contains("presets.json.damaged"), "{shown}");
    assert!(
        shown["notices"][1].as_str().unwrap().starts_with("demonstration model was not loaded at the start"),
        "{shown}"
    );
    assert_eq!((&shown["loading"], &shown["model"]), (&false.into(), &Value::Null));
    window.picture("not-loaded");
    window.click("dismiss");
    window.wait("the other notice", |status| status["notices"].as_array().unwrap().len() == 1);
    window.click("dismiss");
    window.click("demo");
    window.wait("the model", |status| status["model"] == "demonstration model");

    window.click("result 0");
    window.press("ctrl+Return"); // does nothing, since there is no result yet
    std::thread::sleep(Duration::from_millis(500)); // or both keys might arrive in one frame
    window.type_in("seven");
    window.picture("results");
    window.press("ctrl+Return");
    let answered = replied(&window, 1);
    assert_eq!(texts(&answered)[..3], ["How many owls are there?", "", "seven"]);
    assert_eq!(texts(&answered).len(), 4);

    window.click("settings");
    window.click("sampling");
    window.click("Functions");
    window.press("ctrl+a");
    window.press("BackSpace");
    window.click("JSON schema");
    window.type_in(r#"{"enum": ["an owl","#);
    let wrong = window.wait("the error", |status| status["errors"] != json(&[]));
    assert!(wrong["errors"][0].as_str().unwrap().contains("line 1 column"), "{wrong}");
    window.picture("schema");
    window.type_in(r#" "a mouse"]}"#);
    window.wait("its end", |status| status["errors"] == json(&[]));
    window.write("Which animal?");
    let answer = texts(&replied(&window, 2)).pop().unwrap();
    assert!([r#""an owl""#, r#""a mouse""#].contains(&answer.trim()), "{answer:?}");
    presets(&window);
    window.close();
}

/// The settings are saved under a name, and chosen for a conversation with other settings.
fn presets(window: &Window<'_>) {
    window.click("save preset");
    window.click("preset name");
    window.type_in("animals");
    window.press("Return");
    window.wait("the preset", |status| status["presets"] == json(&["animals"]) && status["preset"] == "animals");
    window.click("new");
    window.wait("the other conversation", |status| texts(status).is_empty());
    replace(window, "system", "you are a mouse");
    window.wait("its prompt", |status| status["system"] == "you are a mouse");
    window.picture("preset");
    window.click("presets");
    window.click("preset animals");
    window.wait("the preset's prompt", |status| status["system"] == "" && status["preset"] == "animals");
    window.click("delete preset");
    window.click("really delete preset");
    window.wait("its end", |status| status["presets"] == json(&[]) && status["preset"] == Value::Null);
}
