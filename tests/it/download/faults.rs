//! Servers, networks and disks that fail in all ways that are known.

use super::{FILE, hub, list, noisy, options, part, pull};
use crate::common::hub::{COMMIT, Files, REPO, Reply, Server, content_of, contents, folder, hash, noise};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tempfile::tempdir;
use wglm::{Error, Hub};

const BYTES: usize = 400_000;

/// Downloads a file from a server that alters its answers for contents; the number counts those.
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

/// Expects the whole file in spite of everything.
fn arrives(what: &str, alter: impl Fn(Reply, usize) -> Reply + Send + Sync + 'static) -> Server {
    let (done, files, server, cache) = pulled(alter);
    assert!(done.as_deref().is_ok_and(|bytes| bytes == files.bytes(FILE)), "{what}: {:?}", done.err());
    assert!(!part(&files, cache.path()).exists(), "{what}");
    server
}

/// Expects an error with these words, and whether what was there stays.
fn fails(what: &str, words: &str, keeps: bool, alter: impl Fn(Reply, usize) -> Reply + Send + Sync + 'static) {
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

/// Leaves the first bytes of the file as an earlier download would have.
fn begin(files: &Files, cache: &Path, bytes: usize) -> PathBuf {
    let begun = part(files, cache);
    std::fs::create_dir_all(begun.parent().unwrap()).unwrap();
    std::fs::write(&begun, &files.bytes(FILE)[..bytes]).unwrap();
    begun
}

#[test]
fn lost_connections_are_made_again() {
    let server = arrives("each ends early", |mut reply, _| {
        reply.stops = Some(30_000);
        reply
    });
    assert!(server.contents().len() > 8, "{}", server.contents().len());
    arrives("some end before a byte", |mut reply, number| {
        reply.stops = (number % 3 == 1).then_some(0);
        reply
    });
    fails("none is of use after some", "try again later, which goes on from here", true, |mut reply, number| {
        reply.stops = (number > 3).then_some(0);
        reply
    });
}

#[test]
fn lengths_that_are_lies_do_no_harm() {
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
    fails("another part is sent", "another part than was asked for", false, |reply, _| {
        reply.with("content-range", &format!("bytes 1-50000/{BYTES}"))
    });
}

/// Another tag or size is weak evidence where the hash is known: it costs attempts, and not what is there.
#[test]
fn answers_about_another_file_cost_nothing() {
    let page = |_: Reply| {
        let mut reply = Reply::new(200).with("content-type", "text/html");
        reply.body = b"<html>please log in</html>".into();
        reply
    };
    for (what, alter) in [
        ("another tag", (|reply| reply.with("etag", "\"another\"")) as fn(Reply) -> Reply),
        ("another size", |reply| reply.with("content-range", "bytes 50000-99999/1000000")),
        ("a range past the end", |_| Reply::new(416).with("content-range", "bytes */1000")),
        ("a proxy's page", page),
    ] {
        fails(
            what,
            "the server sent another file than is listed",
            true,
            move |reply, number| {
                if number > 2 { alter(reply) } else { reply }
            },
        );
        arrives(what, move |reply, number| if number % 3 == 1 { alter(reply) } else { reply });
    }
    arrives("a weak tag in between", |reply, number| {
        let tag = reply.headers.iter().find(|(name, _)| name == "etag").map(|(_, tag)| tag.clone()).unwrap();
        if number % 2 == 1 { reply.with("etag", &format!("W/{tag}")) } else { reply }
    });
}

/// The hub's own word that a file is another one is no weak evidence.
#[test]
fn a_file_that_changes_is_not_put_together_of_two() {
    let files = noisy(BYTES);
    let cache = tempdir().unwrap();
    let begun = begin(&files, cache.path(), 100_000);
    let served = files.clone();
    let server = Server::start(move |request, _| {
        let reply = served.answer(request);
        if reply.status == 302 { reply.with("x-linked-etag", &format!("\"{}\"", hash(b"another"))) } else { reply }
    });
    let error = pull(&hub(&server, cache.path())).unwrap_err().to_string();
    assert!(error.contains("has changed on the server"), "{error}");
    assert!(!begun.exists());
}

/// Where the list has no hash, nothing but the tag tells two files apart.
#[test]
fn a_changed_tag_counts_where_no_hash_is_known() {
    let number = "f".repeat(40);
    for changes in [false, true] {
        let files = noisy(BYTES);
        let (served, listed, count) = (files.clone(), number.clone(), AtomicUsize::new(0));
        let server = Server::start(move |request, _| {
            let mut reply = served.answer(request);
            if request.path.starts_with("/api/") {
                let file = serde_json::json!({ "rfilename": FILE, "size": BYTES, "blobId": listed });
                reply.body = serde_json::json!({ "sha": COMMIT, "siblings": [file] }).to_string().into_bytes();
            }
            let late = request.is_content() && count.fetch_add(1, Ordering::Relaxed) > 2;
            if changes && late { reply.with("etag", "\"another\"") } else { reply }
        });
        let cache = tempdir().unwrap();
        let done = pull(&hub(&server, cache.path()));
        if changes {
            assert!(done.unwrap_err().to_string().contains("has changed on the server"));
        } else {
            let pulled = done.unwrap();
            assert!(!pulled.verified && contents(&pulled.path).unwrap() == files.bytes(FILE));
        }
        assert!(!folder(cache.path()).join("blobs").join(format!("{number}.part")).exists());
    }
}

/// A server without ranges, such as a proxy, does not cost what is there, even if it never gets that far.
#[test]
fn the_whole_file_does_not_replace_what_is_there() {
    let files = noisy(BYTES);
    for (stops, attempts) in [(50_000, 4), (150_000, 4), (BYTES, 1)] {
        let cache = tempdir().unwrap();
        let begun = begin(&files, cache.path(), 100_000);
        let served = files.clone();
        let server = Server::start(move |request, _| {
            let mut whole = request.clone();
            whole.headers.remove("range");
            let mut reply = served.answer(&whole);
            reply.stops = (request.is_content() && stops < BYTES).then_some(stops);
            reply
        });
        let done = pull(&hub(&server, cache.path()));
        assert_eq!(server.contents().len(), attempts, "{stops}");
        if stops < BYTES {
            let error = done.unwrap_err().to_string();
            assert!(error.contains("try again later, which goes on from here"), "{error}");
            assert_eq!(contents(&begun).unwrap(), files.bytes(FILE)[..stops.max(100_000)]);
        } else {
            let pulled = done.unwrap();
            assert_eq!(pulled.received, (BYTES - 100_000) as u64);
            assert_eq!(contents(&pulled.path).unwrap(), files.bytes(FILE));
        }
    }
}

/// The same from one download to the next: the hub lists another file, whose name in the cache is another.
#[test]
fn a_part_of_another_file_is_not_continued() {
    let (old, new) = (noisy(BYTES), Files::of(&[(FILE, &noise(BYTES + 1)[1..])]));
    let cache = tempdir().unwrap();
    let served = new.clone();
    let server = Server::start(move |request, _| served.answer(request));
    begin(&old, cache.path(), 100_000);
    let pulled = pull(&hub(&server, cache.path())).unwrap();
    assert_eq!(pulled.received, BYTES as u64);
    assert_eq!(contents(&pulled.path).unwrap(), new.bytes(FILE));
}

/// A wrong file is refused and not kept, whoever made it wrong: the server, or the disk that held its beginning.
#[test]
fn a_wrong_hash_is_refused() {
    fails("a byte is wrong", "its SHA-256 is ", false, |mut reply, number| {
        if number == 3 {
            reply.body[100] ^= 1;
        }
        reply
    });
    let files = noisy(BYTES);
    let cache = tempdir().unwrap();
    let path = part(&files, cache.path());
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, [0; 1000]).unwrap();
    let served = files.clone();
    let server = Server::start(move |request, _| served.answer(request));
    let error = pull(&hub(&server, cache.path())).unwrap_err().to_string();
    assert!(error.contains("the hub lists ") && error.contains("it was deleted"), "{error}");
    assert!(!path.exists());
    assert!(pull(&hub(&server, cache.path())).is_ok(), "the next one begins anew");
}

#[test]
fn passing_trouble_is_waited_out() {
    for status in [408, 429, 500, 502, 503, 504] {
        arrives(&status.to_string(), move |reply, number| if number % 3 == 1 { Reply::new(status) } else { reply });
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
fn refusals_are_told() {
    for (status, code, words) in [
        (401, None, "set HF_TOKEN to a token that may read it"),
        (403, None, "accept its conditions on its page"),
        (403, Some("GatedRepo"), "accept its conditions on its page, and set HF_TOKEN"),
        (404, Some("RepoNotFound"), "answers 404: not found; check the name"),
        (418, None, "answers 418"),
    ] {
        let server = Server::start(move |_, _| {
            code.map_or(Reply::new(status), |code| Reply::new(status).with("x-error-code", code))
        });
        let cache = tempdir().unwrap();
        let error = list(&hub(&server, cache.path())).unwrap_err();
        assert!(matches!(error, Error::Download { .. }) && error.to_string().contains(words), "{status}: {error}");
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
        assert!(error.contains("not what a hub sends"), "{what}: {error}");
    }
}

#[test]
fn nobody_there_is_told_soon() {
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
    assert!(error.contains("a redirection to nowhere"), "{error}");
}

/// What a repository was called before leads to it, and addresses of files that are no longer valid are asked for again.
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

/// A hub that redirects everything to another is no storage whose addresses expire: what that refuses is told at once.
#[test]
fn a_refusal_behind_a_redirection_is_told() {
    for (status, words) in [
        (404, "answers 404: not found; check the name"),
        (401, "answers 401: not without a token; the token is not sent there"),
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
fn a_silent_server_is_asked_again() {
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
    impatient.retries = 20; // a busy machine may be silent for that long by itself
    let pulled = pull(&Hub::new(impatient).unwrap()).unwrap();
    assert_eq!(contents(&pulled.path).unwrap(), files.bytes(FILE));
    let again = server.contents().into_iter().filter_map(|request| request.range());
    assert!(again.clone().any(|(first, _)| first % 50_000 == 20_000), "{:?}", again.collect::<Vec<_>>());
}

/// A server without ranges sends the whole file, and after a loss from its first byte on.
#[test]
fn a_server_without_ranges_will_do() {
    let files = noisy(BYTES);
    for losses in [0, 2] {
        let served = files.clone();
        let count = AtomicUsize::new(0);
        let server = Server::start(move |request, _| {
            if !request.is_content() {
                return served.answer(request);
            }
            let mut whole = request.clone();
            whole.headers.remove("range");
            let mut reply = content_of(served.bytes(FILE), &whole);
            reply.stops = (count.fetch_add(1, Ordering::Relaxed) < losses).then_some(BYTES / 2);
            reply
        });
        let cache = tempdir().unwrap();
        let pulled = pull(&hub(&server, cache.path())).unwrap();
        assert_eq!(contents(&pulled.path).unwrap(), files.bytes(FILE));
        assert_eq!(server.contents().len(), losses + 1);
    }
}

/// One that sends ranges only after a loss goes on from there.
#[test]
fn a_server_may_come_to_send_ranges() {
    let files = noisy(BYTES);
    let served = files.clone();
    let count = AtomicUsize::new(0);
    let server = Server::start(move |request, _| {
        let mut request = request.clone();
        let first = request.is_content() && count.fetch_add(1, Ordering::Relaxed) == 0;
        if first {
            request.headers.remove("range");
        }
        let mut reply = served.answer(&request);
        reply.stops = first.then_some(BYTES / 2);
        reply
    });
    let cache = tempdir().unwrap();
    let pulled = pull(&hub(&server, cache.path())).unwrap();
    assert_eq!(contents(&pulled.path).unwrap(), files.bytes(FILE));
    assert_eq!(server.contents()[1].range(), Some((BYTES / 2, BYTES - 1)));
}

/// What the list does not tell of a file, its address does.
#[test]
fn a_list_without_sizes_will_do() {
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

/// Names that lead out of the cache, or that do more than name when they are printed, are not those of models.
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
        ];
        let siblings: Vec<_> = names.iter().map(|name| file(name)).collect();
        let mut reply = Reply::new(if request.path.contains(REPO) { 200 } else { 404 });
        reply.body = serde_json::json!({ "sha": COMMIT, "siblings": siblings }).to_string().into_bytes();
        reply
    });
    let cache = tempdir().unwrap();
    assert_eq!(list(&hub(&server, cache.path())).unwrap().models, []);
}

/// Sizes that no file has do no harm, alone or together.
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
        assert!(error.contains("not what a hub sends: Q4_0 has "), "{error}");
    }
}

#[test]
fn a_folder_that_is_none_is_told() {
    let files = noisy(1000);
    let server = Server::start(move |request, _| files.answer(request));
    let dir = tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = pull(&hub(&server, &file)).unwrap_err();
    assert!(matches!(&error, Error::Io { path, .. } if path.starts_with(&file)), "{error}");
}

/// The device that is always full stands for a disk.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_told() {
    let files = noisy(BYTES);
    let served = files.clone();
    let server = Server::start(move |request, _| served.answer(request));
    let cache = tempdir().unwrap();
    let path = part(&files, cache.path());
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink("/dev/full", &path).unwrap();
    let error = pull(&hub(&server, cache.path())).unwrap_err();
    let Error::Io { action, reason, .. } = &error else { panic!("{error}") };
    assert_eq!((*action, reason.kind()), ("write", std::io::ErrorKind::StorageFull), "{error}");
}

/// No disk has that much room, and nothing is begun.
#[test]
fn too_little_room_is_told_before() {
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
