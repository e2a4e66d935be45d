//! Servers, networks and disks that fail in all known ways.

use super::{FILE, hub, list, noisy, options, part, pull};
use crate::common::hub::{COMMIT, Files, REPO, Reply, Server, contents, folder, hash};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tempfile::tempdir;
use wglm::download::Hub;
use wglm::{Error, ErrorKind};

pub(super) const BYTES: usize = 400_000;

/// Whether an answer about contents is to be faulty: three are, as many as are retried. Connections take turns in any
/// order, so with more of them one piece might get no other.
pub(super) fn is_faulty(number: usize) -> bool {
    [1, 4, 7].contains(&number)
}

/// Downloads a file from a server that alters its answers about contents, by their number.
fn pulled(
    alter: impl Fn(Reply, usize) -> Reply + Send + Sync + 'static,
) -> (wglm::Result<Vec<u8>>, Files, Server, tempfile::TempDir) {
    let files = noisy(BYTES);
    let served = files.clone();
    let count = AtomicUsize::new(0);
    let server = Server::start(move |request, _| {
        let reply = served.answer(request);
        if request.is_content() { alter(reply, count.fetch_add(1, Ordering::Relaxed)) } else { reply }
    });
    let cache = tempdir().unwrap();
    let done = pull(&hub(&server, cache.path())).map(|pulled| contents(&pulled.path).unwrap());
    (done, files, server, cache)
}

/// Expects the whole file despite all faults.
pub(super) fn arrives(what: &str, alter: impl Fn(Reply, usize) -> Reply + Send + Sync + 'static) -> Server {
    let (done, files, server, cache) = pulled(alter);
    assert!(done.as_deref().is_ok_and(|bytes| bytes == files.bytes(FILE)), "{what}: {:?}", done.err());
    assert!(!part(&files, cache.path()).exists(), "{what}");
    server
}

/// Expects an error with these words, and that the received bytes stay or not.
pub(super) fn fails(
    what: &str,
    words: &str,
    keeps: bool,
    alter: impl Fn(Reply, usize) -> Reply + Send + Sync + 'static,
) {
    let (done, files, _server, cache) = pulled(alter);
    let error = done.expect_err(what);
    assert!(error.to_string().contains(words), "{what}: {error}");
    let part = part(&files, cache.path());
    assert_eq!(part.exists(), keeps, "{what}");
    if let Some(begun) = contents(&part) {
        assert!(!begun.is_empty() && begun == files.bytes(FILE)[..begun.len()], "{what}");
    }
    assert!(!part.with_extension("").exists() && !folder(cache.path()).join("snapshots").exists(), "{what}");
}

#[test]
fn lost_connections_are_retried() {
    let server = arrives("each ends early", |mut reply, _| {
        reply.stops = Some(30_000);
        reply
    });
    assert!(server.contents().len() > 8, "{}", server.contents().len());
    arrives("some end before a byte", |mut reply, number| {
        reply.stops = is_faulty(number).then_some(0);
        reply
    });
    fails("none is of use after some", "try again later; the download will resume", true, |mut reply, number| {
        reply.stops = (number > 3).then_some(0);
        reply
    });
}

#[test]
fn wrong_lengths_do_no_harm() {
    arrives("more is claimed than is sent", |mut reply, number| {
        reply.claims = (number % 2 == 0).then_some(reply.body.len() + 1000);
        reply
    });
    arrives("less is sent than was asked for", |mut reply, _| {
        reply.body.truncate(7_000.max(reply.body.len() / 2));
        reply
    });
    arrives("more is sent than was asked for", |mut reply, _| {
        reply.body.extend([7; 5000]);
        reply
    });
    fails("another part is sent", "a part other than the requested one", false, |reply, _| {
        reply.with("content-range", &format!("bytes 1-50000/{BYTES}"))
    });
}

#[test]
fn passing_trouble_is_waited_out() {
    for status in [408, 429, 500, 502, 503, 504] {
        arrives(&status.to_string(), move |reply, number| if is_faulty(number) { Reply::new(status) } else { reply });
    }
    let start = Instant::now();
    arrives("a wait that is asked for", |reply, number| match number {
        2 => Reply::new(429).with("retry-after", "1"),
        _ => reply,
    });
    assert!(start.elapsed() >= Duration::from_secs(1), "{:?}", start.elapsed());
    fails("trouble that stays", "answers 503", true, |reply, number| if number > 2 { Reply::new(503) } else { reply });
    fails("a wait that is too long", "answers 429", true, |reply, number| match number {
        0..=2 => reply,
        _ => Reply::new(429).with("retry-after", "86400"),
    });
}

#[test]
fn refusals_are_reported() {
    use ErrorKind::{AccessDenied, Network, NotFound};
    let licence = "accept the licence at PAGE with an account there, and set HF_TOKEN to one of its tokens";
    for (status, code, kind, words) in [
        (401, None, AccessDenied, "check the name; if it is right, the repository is private or gated: request access"),
        (403, None, AccessDenied, licence),
        (401, Some("GatedRepo"), AccessDenied, licence),
        (403, Some("GatedRepo"), AccessDenied, licence),
        (401, Some("RepoNotFound"), NotFound, "check the name"),
        (404, Some("RepoNotFound"), NotFound, "answers 404: not found; check the name"),
        (404, None, NotFound, "check the name"),
        (418, None, Network, "answers 418"),
    ] {
        let server = Server::start(move |_, _| {
            code.map_or(Reply::new(status), |code| Reply::new(status).with("x-error-code", code))
        });
        let cache = tempdir().unwrap();
        let words = words.replace("PAGE", &format!("{}/{}", server.address, REPO));
        let error = list(&hub(&server, cache.path())).unwrap_err();
        assert!(matches!(error, Error::Download { .. }) && error.to_string().contains(&words), "{status}: {error}");
        assert_eq!(error.kind(), kind, "{status}: {error}");
        assert_eq!(server.requests().len(), 1, "{status} is not asked for again");
    }
    for (what, body) in [("no JSON", "<html>"), ("no commit", "{}"), ("a strange commit", r#"{"sha": "../.."}"#)] {
        let server = Server::start(move |_, _| {
            let mut reply = Reply::new(200);
            reply.body = body.into();
            reply
        });
        let cache = tempdir().unwrap();
        let error = list(&hub(&server, cache.path())).unwrap_err().to_string();
        assert!(error.contains("unexpected answer from the hub"), "{what}: {error}");
    }
}

#[test]
fn an_absent_server_is_reported_soon() {
    let cache = tempdir().unwrap();
    let server = Server::start(|_, _| Reply::new(404));
    let mut nobody = options(&server, cache.path());
    drop(server);
    nobody.endpoint = "http://127.0.0.1:1".into();
    let error = list(&Hub::new(nobody).unwrap()).unwrap_err().to_string();
    assert!(error.contains("no connection to 127.0.0.1:1"), "{error}");
}

#[test]
fn redirections_end() {
    let server = Server::start(|request, _| Reply::new(307).with("location", &request.path));
    let cache = tempdir().unwrap();
    let error = list(&hub(&server, cache.path())).unwrap_err().to_string();
    assert!(error.contains("more than 10 redirections"), "{error}");
    let server = Server::start(|_, _| Reply::new(302).with("location", "ftp://elsewhere"));
    let error = list(&hub(&server, cache.path())).unwrap_err().to_string();
    assert!(error.contains("a redirection without a valid address"), "{error}");
}

/// A repository's former name leads to it, and expired addresses of files are requested again.
#[test]
fn redirections_are_followed() {
    let files = noisy(BYTES);
    let stored = files.clone();
    let storage = Server::start(move |request, number| match number % 4 {
        3 => Reply::new(403),
        _ => stored.answer(request),
    });
    let (served, elsewhere) = (files.clone(), storage.address.clone());
    let server = Server::start(move |request, _| {
        let renamed = request.path.replace("/renamed/", "/");
        if request.path.starts_with("/api/") && !request.path.contains("/renamed/") {
            return Reply::new(307).with("location", &format!("/renamed{}", request.path));
        }
        let reply = served.answer(&crate::common::hub::Request { path: renamed, ..request.clone() });
        match reply.headers.iter().find(|(name, _)| name == "location").map(|(_, place)| place.clone()) {
            Some(place) => reply.with("location", &format!("{elsewhere}{place}")),
            None => reply,
        }
    });
    let cache = tempdir().unwrap();
    let pulled = pull(&hub(&server, cache.path())).unwrap();
    assert_eq!(contents(&pulled.path).unwrap(), files.bytes(FILE));
    assert!(storage.requests().len() > 8, "{}", storage.requests().len());
}

/// A hub that redirects everything to another hub is not a storage whose addresses expire: a refusal of that hub is
/// reported at once.
#[test]
fn a_refusal_after_a_redirection_is_reported() {
    for (status, words) in [
        (404, "answers 404: not found; check the name"),
        (401, "answers 401: a token is required; the token is not sent there"),
    ] {
        let hub_itself = Server::start(move |_, _| Reply::new(status));
        let elsewhere = hub_itself.address.clone();
        let server =
            Server::start(move |request, _| Reply::new(307).with("location", &format!("{elsewhere}{}", request.path)));
        let cache = tempdir().unwrap();
        let error = list(&hub(&server, cache.path())).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        assert_eq!(hub_itself.requests().len(), 1);
    }
}

#[test]
fn a_silent_server_is_tried_again() {
    let files = noisy(BYTES);
    let served = files.clone();
    let count = AtomicUsize::new(0);
    let server = Server::start(move |request, _| {
        let mut reply = served.answer(request);
        if request.is_content() && count.fetch_add(1, Ordering::Relaxed) == 2 {
            reply.held = Some((Arc::default(), 20_000));
        }
        reply
    });
    let cache = tempdir().unwrap();
    let mut impatient = options(&server, cache.path());
    impatient.patience = Duration::from_millis(500);
    impatient.retries = 20; // a busy machine may be silent for that long
    let pulled = pull(&Hub::new(impatient).unwrap()).unwrap();
    assert_eq!(contents(&pulled.path).unwrap(), files.bytes(FILE));
    let again = server.contents().into_iter().filter_map(|request| request.range());
    assert!(again.clone().any(|(first, _)| first % 50_000 == 20_000), "{:?}", again.collect::<Vec<_>>());
}

/// If the list lacks properties of a file, its address has them.
#[test]
fn a_list_without_sizes_is_enough() {
    let files = noisy(BYTES);
    let served = files.clone();
    let server = Server::start(move |request, _| {
        let mut reply = served.answer(request);
        if request.path.starts_with("/api/") {
            let list = serde_json::json!({ "sha": COMMIT, "siblings": [{ "rfilename": FILE }] });
            reply.body = list.to_string().into_bytes();
        }
        reply
    });
    let cache = tempdir().unwrap();
    let pulled = pull(&hub(&server, cache.path())).unwrap();
    assert!(pulled.verified);
    assert_eq!(contents(&pulled.path).unwrap(), files.bytes(FILE));
    assert!(folder(cache.path()).join("blobs").join(hash(files.bytes(FILE))).exists());
}

/// Names that lead out of the cache or contain control characters are not names of models.
#[test]
fn a_list_cannot_name_files_elsewhere() {
    let server = Server::start(move |request, _| {
        let hash = hash(b"x");
        let file = |name: &str| serde_json::json!({ "rfilename": name, "lfs": { "sha256": hash, "size": 1 } });
        let names = [
            "../../x-Q4_0.gguf",
            "/etc/x-Q4_0.gguf",
            "a/../../x-Q4_0.gguf",
            "a\\..\\x-Q4_0.gguf",
            "a//x-Q4_0.gguf",
            "a/./x-Q4_0.gguf",
            "x\u{1b}[31m-Q4_0.gguf",
            "x\u{202e}fugg.0_4Q-Q4_0.gguf",
        ];
        let siblings: Vec<_> = names.iter().map(|name| file(name)).collect();
        let mut reply = Reply::new(if request.path.contains(REPO) { 200 } else { 404 });
        reply.body = serde_json::json!({ "sha": COMMIT, "siblings": siblings }).to_string().into_bytes();
        reply
    });
    let cache = tempdir().unwrap();
    assert_eq!(list(&hub(&server, cache.path())).unwrap().models, []);
}

/// Sizes that no file can have are refused, for one file and for several together.
#[test]
fn sizes_beyond_reason_are_refused() {
    for (first, second) in [(u64::MAX, 1), (u64::MAX, u64::MAX), (1 << 62, 1 << 62), (1 << 63, 0)] {
        let server = Server::start(move |_, _| {
            let file = |number: usize, bytes: u64| {
                let name = format!("x-Q4_0-0000{number}-of-00002.gguf");
                serde_json::json!({ "rfilename": name, "size": bytes, "blobId": "f".repeat(40) })
            };
            let mut reply = Reply::new(200);
            let siblings = [file(1, first), file(2, second)];
            reply.body = serde_json::json!({ "sha": COMMIT, "siblings": siblings }).to_string().into_bytes();
            reply
        });
        let cache = tempdir().unwrap();
        let error = list(&hub(&server, cache.path())).unwrap_err().to_string();
        assert!(error.contains("unexpected answer from the hub: Q4_0 has "), "{error}");
    }
}

#[test]
fn a_folder_that_is_a_file_is_reported() {
    let files = noisy(1000);
    let server = Server::start(move |request, _| files.answer(request));
    let dir = tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = pull(&hub(&server, &file)).unwrap_err();
    assert!(matches!(&error, Error::Io { path, .. } if path.starts_with(&file)), "{error}");
}

/// No disk has that much space, so nothing is begun.
#[test]
fn too_little_space_is_reported_first() {
    let files = noisy(1000);
    let server = Server::start(move |request, _| {
        let mut reply = files.answer(request);
        if request.path.starts_with("/api/") {
            let text = String::from_utf8(reply.body).unwrap();
            reply.body = text.replace("\"size\":1000", "\"size\":1000000000000000000").into_bytes();
        }
        reply
    });
    let cache = tempdir().unwrap();
    let error = pull(&hub(&server, cache.path())).unwrap_err();
    let Error::Io { reason, .. } = &error else { panic!("{error}") };
    assert_eq!(reason.kind(), std::io::ErrorKind::StorageFull, "{error}");
    assert!(server.contents().is_empty() && !folder(cache.path()).exists());
}
