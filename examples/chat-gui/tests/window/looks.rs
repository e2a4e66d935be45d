//! How the window looks: letters of all scripts, Markdown, themes, names for screen readers, and the count of tokens.

use super::desk::{Display, Window};
use super::json;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Letters that the window's own fonts lack, and that are all in `marks.ttf`, a font of triangles made with
/// `fontTools.fontBuilder`.
const LETTERS: &str = "中文日本語한국어مرحباनमस्ते";

const REPLY: &str = "# 中文 and *others*\n\n日本語, 한국어, مرحبا, नमस्ते, 😀 → ⇒ ✔\n\n\
    So $\\alpha^2 \\leq \\frac{a}{b}$, see https://example.org/a_b. And\n\n\\[ \\sum_{i=1}^{n} i = \\frac{n(n+1)}{2} \\]\n\n\
    | Name | What it does, at some length | Price |\n|:--|:-:|--:|\n\
    | owl | sleeps by day and flies by night over the fields behind the mill, where it looks for mice of all kinds \
    and listens to the wind in the old trees | $3 |\n| `fox` | **runs** | 12.50 |\n\n```rust\nfn main() {}\n```\n";

/// Writes a conversation with all of these, and a configuration in which the system has the fonts of a folder, or none.
fn prepare(data: &Path, fonts: Option<&Path>) {
    let messages = serde_json::json!([
        { "role": "user", "content": "Greet me in many scripts:\n- with a *list*\n- on its own lines\n\nand in\ntwo lines." },
        { "role": "assistant", "content": REPLY },
    ]);
    let conversation = serde_json::json!({
        "version": 1, "title": "Scripts", "messages": messages, "settings": { "temperature": 0.0 },
    });
    fs::write(data.join("0000000000000001.json"), conversation.to_string()).unwrap();
    let folder = fonts.map_or(String::new(), |folder| format!("<dir>{}</dir>", folder.display()));
    let cache = data.join("fontcache");
    let config = format!("<fontconfig>{folder}<cachedir>{}</cachedir></fontconfig>", cache.display());
    fs::write(data.join("fonts.conf"), config).unwrap();
}

fn tokens(status: &Value) -> u64 {
    status["tokens"].as_u64().unwrap_or(0)
}

#[test]
#[ignore = "drives a window: needs Xvfb and xdotool"]
fn letters_of_all_scripts_come_from_fonts_of_the_system() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/window");
    let known = Command::new("sh").args(["-c", "PATH=$PATH:/sbin ldconfig -p | grep -q libfontconfig.so"]).status();
    if !known.unwrap().success() {
        eprintln!("SKIPPED, letters of all scripts: there is no libfontconfig, by which fonts of the system are found");
        return;
    }
    let display = Display::open();
    for (fonts, missing) in [(None, true), (Some(here.as_path()), false)] {
        let folder = tempfile::tempdir().unwrap();
        prepare(folder.path(), fonts);
        let window = Window::open(&display, folder.path(), &["--demo"]);
        let status = window.wait("the model", |status| status["model"] == "demonstration model");
        let boxes = status["boxes"].as_str().unwrap();
        for letter in LETTERS.chars() {
            assert_eq!(boxes.contains(letter), missing, "{letter} of {boxes}");
        }
        assert!(!boxes.contains(['→', '⇒', '😀', '✔']), "{boxes}");
        assert!(!window.errors().contains("panicked"), "{}", window.errors());
        window.close();
    }
}

#[test]
#[ignore = "drives a window: needs Xvfb and xdotool"]
fn settings_of_the_window_are_kept_and_everything_has_a_name() {
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path(), None);
    if std::env::var_os("WGLM_PICTURES").is_some() {
        fs::remove_file(folder.path().join("fonts.conf")).unwrap(); // pictures are to have real fonts
    }
    let display = Display::open();
    let window = Window::open(&display, folder.path(), &[]);
    let named = |window: &Window<'_>, what: &str| {
        let status = window.wait(what, |status| status["places"].as_object().is_some_and(|places| places.len() > 4));
        assert_eq!(status["nameless"], json(&[]), "of {what}");
    };
    named(&window, "the first page");
    window.click("settings");
    window.click("theme dark");
    let file = folder.path().join("window/appearance.json");
    window.wait("the theme", |_| file.exists());
    window.click("frame times");
    named(&window, "the settings");
    window.click("demo");
    window.wait("the model", |status| status["model"] == "demonstration model");
    window.picture("dark");
    window.click("theme light");
    window.picture("light");
    named(&window, "a conversation");
    window.click("rename");
    named(&window, "renaming");
    window.press("Return");
    window.close();
    assert_eq!(fs::read_to_string(file).unwrap(), r#"{"theme":"light","frame_times":true}"#);
}

/// The tokens are counted before anything is sent, and the count is what the prompt takes then.
#[test]
#[ignore = "drives a window: needs Xvfb and xdotool"]
fn tokens_are_counted_before_the_first_message_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let display = Display::open();
    let window = Window::open(&display, folder.path(), &["--demo", "--temperature", "0"]);
    window.wait("the model", |status| status["model"] == "demonstration model" && status["tokens"] == 0);
    window.click("input");
    window.type_in("What is two");
    let some = tokens(&window.wait("the count", |status| tokens(status) > 0 && status["typed"] == "What is two"));
    // However fast this is typed, it begins a second line and sends nothing.
    window.press("shift+Return");
    window.type_in("plus three?");
    let typed = "What is two\nplus three?";
    let all = tokens(&window.wait("the new count", |status| status["typed"] == typed && tokens(status) > some));
    window.press("Return");
    let done = window.wait("the reply", |status| status["replies"] == 1);
    assert_eq!(done["messages"][0], typed);
    assert_eq!(done["cached"].as_u64().unwrap() + done["new"].as_u64().unwrap(), all, "{done}");
    window.close();
}
