//! A model is downloaded from a hub that runs here. The download is paused, resumed, cancelled, interrupted and
//! refused.

use super::choosing::{has, look};
use super::desk::{Display, Window, cache};
use super::hub::{Files, Reply, Request, Server, hash};
use super::json;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// One of the repositories that the window offers.
const REPO: &str = "tencent/Youtu-LLM-2B-GGUF";
/// The number of bytes that the hub sends before it holds the rest back.
const FIRST: usize = 700_000;

/// A hub that has a model in one repository, and holds its contents back until they are let go.
struct Hub {
    server: Server,
    released: Arc<AtomicBool>,
    /// Whether contents are refused.
    refuse: Arc<AtomicBool>,
}

impl Hub {
    fn start() -> Self {
        let files = Files::of(&[("demo-Q4_0.gguf", wglm::DEMO_MODEL), ("demo-Q8_0.gguf", b"<html></html>")]);
        let (released, refuse) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (release, no) = (released.clone(), refuse.clone());
        let server = Server::start(move |request: &Request, _| {
            let mut reply = files.answer_as(REPO, request);
            let of_model =
                request.is_content() && request.range().is_some_and(|(first, last)| last - first > 2_000_000);
            if of_model && no.load(Ordering::Relaxed) {
                return Reply::new(403);
            }
            if of_model {
                reply.held = Some((release.clone(), FIRST));
            }
            reply
        });
        Self { server, released, refuse }
    }

    fn let_go(&self) {
        self.released.store(true, Ordering::Relaxed);
    }
}

/// The file of an unfinished download.
fn part(data: &Path) -> PathBuf {
    let folder = format!("models--{}", REPO.replace('/', "--"));
    cache(data).join(folder).join("blobs").join(format!("{}.part", hash(wglm::DEMO_MODEL)))
}

/// Opens a window, and begins to download what it offers.
fn begin<'a>(display: &'a Display, data: &Path, hub: &Hub) -> Window<'a> {
    let window = Window::open_with_hub(display, data, &hub.server.address, &[]);
    look(&window, REPO);
    let whole = wglm::DEMO_MODEL.len();
    let offer = format!("{REPO}: Q4_0, 0 of {whole} here, fits");
    window.wait("the offer", |status| has(status, "offered", &offer, ""));
    window.picture("offers");
    window.click(&format!("download {REPO}"));
    begun(&window);
    window
}

/// Waits until all bytes have arrived that the hub does not hold back.
fn begun(window: &Window<'_>) -> Value {
    window.wait("the beginning", |status| status["fetching"]["done"].as_u64().is_some_and(|done| done >= FIRST as u64))
}

/// Waits until nothing is being downloaded.
fn ended(window: &Window<'_>) -> Value {
    window.wait("the end of the download", |status| status["fetching"] == Value::Null)
}

#[test]
#[ignore = "drives a window: needs Xvfb and xdotool"]
fn a_download_is_paused_and_resumed_until_the_model_opens() {
    let (folder, hub) = (tempfile::tempdir().unwrap(), Hub::start());
    let display = Display::open();
    let window = begin(&display, folder.path(), &hub);
    window.picture("fetching");
    window.click("pause");
    let paused = ended(&window);
    let there = fs::metadata(part(folder.path())).unwrap().len();
    assert!(there >= FIRST as u64, "{there} bytes are left");
    assert!(has(&paused, "offered", &format!("{REPO}: Q4_0, {there} of "), "here, fits"), "{paused}");
    window.picture("paused");

    // A new window knows of the download, and resumes it where it was paused.
    window.close();
    let window = Window::open_with_hub(&display, folder.path(), &hub.server.address, &[]);
    window.wait("the offer", |status| has(status, "offered", &format!("{REPO}: Q4_0, {there} of "), ""));
    hub.let_go();
    let before = hub.server.contents().len();
    window.click(&format!("resume {REPO}"));
    let loaded = window.wait("the model", |status| status["model"] != Value::Null);
    assert_eq!((&loaded["model"], &loaded["notices"]), (&format!("{REPO}:Q4_0").into(), &json(&[])));
    let contents = hub.server.contents();
    let first = contents[before..].iter().filter_map(Request::range).map(|(first, _)| first).min();
    assert_eq!(first, Some(there as usize), "nothing is fetched twice");
    assert!(!part(folder.path()).exists());
    window.write("Hello.");
    window.wait("the reply", |status| status["messages"].as_array().unwrap().len() == 2);
    window.click("model");
    window.wait("the model here", |status| has(status, "local", &format!("{REPO}:Q4_0: fits"), ""));
    window.close();
}

#[test]
#[ignore = "drives a window: needs Xvfb and xdotool"]
fn a_cancelled_download_leaves_nothing() {
    let (folder, hub) = (tempfile::tempdir().unwrap(), Hub::start());
    let display = Display::open();
    let window = begin(&display, folder.path(), &hub);
    assert!(part(folder.path()).exists());
    window.click("cancel fetch");
    let shown = ended(&window);
    assert!(has(&shown, "offered", &format!("{REPO}: Q4_0, 0 of "), "The partial download was deleted."), "{shown}");
    assert!(!part(folder.path()).exists());

    // A paused download can be cancelled, too.
    window.click(&format!("download {REPO}"));
    begun(&window);
    window.click("pause");
    ended(&window);
    assert!(part(folder.path()).exists());
    window.click(&format!("cancel {REPO}"));
    window.wait("the deletion", |status| has(status, "offered", &format!("{REPO}: Q4_0, 0 of "), "was deleted."));
    assert!(!part(folder.path()).exists());
    window.close();
}

/// A window that is closed during a download keeps the bytes that have arrived. One whose hub refuses to send says so,
/// and can try again.
#[test]
#[ignore = "drives a window: needs Xvfb and xdotool"]
fn a_download_outlives_its_window_and_a_refusal() {
    let (folder, hub) = (tempfile::tempdir().unwrap(), Hub::start());
    let display = Display::open();
    begin(&display, folder.path(), &hub).close();
    let there = fs::read(part(folder.path())).unwrap();
    assert!(there.len() >= FIRST && there == wglm::DEMO_MODEL[..there.len()], "{} bytes are left", there.len());

    let window = Window::open_with_hub(&display, folder.path(), &hub.server.address, &[]);
    hub.refuse.store(true, Ordering::Relaxed);
    window.click(&format!("resume {REPO}"));
    let refused = window.wait("the refusal", |status| status["offered"].to_string().contains("403"));
    assert!(has(&refused, "offered", &format!("{REPO}: Q4_0, {} of ", there.len()), "."), "{refused}");
    window.picture("refused");
    hub.refuse.store(false, Ordering::Relaxed);
    // During the download the demonstration model replies. The end of the download is reported, and the new model is
    // not opened.
    window.click("demo");
    window.wait("the model", |status| status["model"] == "demonstration model");
    window.click("model");
    window.click(&format!("resume {REPO}"));
    window.wait("the download", |status| status["fetching"] != Value::Null);
    window.click("model");
    window.wait("the conversation", |status| status["places"]["input"].is_array());
    window.write("Hello.");
    window.wait("the reply", |status| status["messages"].as_array().unwrap().len() == 2);
    hub.let_go();
    let shown = window.wait("the end", |status| status["notices"] != json(&[]));
    assert!(shown["notices"][0].as_str().unwrap().starts_with(&format!("{REPO}:Q4_0 has been downloaded")), "{shown}");
    assert_eq!(shown["model"], "demonstration model");
    window.close();
    assert!(!part(folder.path()).exists());
}
