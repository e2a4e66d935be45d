//! Servers that send something other than requested, and what happens to the received bytes.

use super::faults::{BYTES, arrives, fails, is_faulty};
use super::{FILE, git_id, hub, noisy, part, pull};
use crate::common::hub::{COMMIT, Files, Reply, Server, content_of, contents, folder, hash, noise};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::tempdir;

/// Leaves the first bytes of the file as an earlier download would have.
fn begin(files: &Files, cache: &Path, bytes: usize) -> PathBuf {
    let begun = part(files, cache);
    std::fs::create_dir_all(begun.parent().unwrap()).unwrap();
    std::fs::write(&begun, &files.bytes(FILE)[..bytes]).unwrap();
    begun
}

/// If the hash is known, an answer with another tag or size is only retried and does not delete the received bytes.
#[test]
fn answers_about_another_file_delete_nothing() {
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
        fails(what, "the server sent a file other than the one it lists", true, move |reply, number| {
            if number > 2 { alter(reply) } else { reply }
        });
        arrives(what, move |reply, number| if is_faulty(number) { alter(reply) } else { reply });
    }
    arrives("a page that is as long as the file", move |reply, number| {
        let mut page = page(Reply::new(200));
        page.body.resize(BYTES, b' ');
        if number < 2 { page } else { reply }
    });
    arrives("a weak tag in between", |reply, number| {
        let tag = reply.headers.iter().find(|(name, _)| name == "etag").map(|(_, tag)| tag.clone()).unwrap();
        if number % 2 == 1 { reply.with("etag", &format!("W/{tag}")) } else { reply }
    });
}

/// If the hub itself lists another file, the old bytes are deleted.
#[test]
fn a_changed_file_is_not_combined_with_the_old_one() {
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

/// A hub that lists a file by its git id, as for small files.
fn by_git_id(files: &Files, id: &str) -> Server {
    let (served, listed) = (files.clone(), id.to_owned());
    Server::start(move |request, _| {
        if request.path.starts_with("/api/") {
            let file = serde_json::json!({ "rfilename": FILE, "size": BYTES, "blobId": listed });
            let mut reply = Reply::new(200);
            reply.body = serde_json::json!({ "sha": COMMIT, "siblings": [file] }).to_string().into_bytes();
            return reply;
        }
        let reply = served.answer(request);
        if reply.status == 302 { reply.with("x-linked-etag", &format!("\"{listed}\"")) } else { reply }
    })
}

/// If the list has no SHA-256, the git id of the contents decides.
#[test]
fn a_small_file_is_identified_by_its_git_id() {
    let files = noisy(BYTES);
    let id = git_id(files.bytes(FILE));
    let cache = tempdir().unwrap();
    let blobs = folder(cache.path()).join("blobs");
    let pulled = pull(&hub(&by_git_id(&files, &id), cache.path())).unwrap();
    assert!(pulled.verified && contents(&pulled.path).unwrap() == files.bytes(FILE));
    assert!(blobs.join(&id).exists());

    // A part whose beginning is another file's is not completed with the rest of this one.
    let cache = tempdir().unwrap();
    let blobs = folder(cache.path()).join("blobs");
    let begun = blobs.join(format!("{id}.part"));
    std::fs::create_dir_all(&blobs).unwrap();
    std::fs::write(&begun, [7; 1000]).unwrap();
    let server = by_git_id(&files, &id);
    let error = pull(&hub(&server, cache.path())).unwrap_err().to_string();
    assert!(
        error.contains("its git id is ") && error.contains(&format!("the hub lists {id}; it was deleted")),
        "{error}"
    );
    assert!(!begun.exists() && !blobs.join(&id).exists());
    assert!(pull(&hub(&server, cache.path())).unwrap().verified, "the next one begins anew");
}

/// A hash sent with the file counts if the list only has that of a pointer to the file.
#[test]
fn a_hash_sent_with_the_file_counts() {
    let files = noisy(BYTES);
    for wrong in [false, true] {
        let (served, sha256) = (files.clone(), hash(if wrong { b"another" } else { files.bytes(FILE) }));
        let server = Server::start(move |request, _| {
            let mut reply = served.answer(request);
            if request.path.starts_with("/api/") {
                let file = serde_json::json!({ "rfilename": FILE, "size": BYTES, "blobId": "f".repeat(40) });
                reply.body = serde_json::json!({ "sha": COMMIT, "siblings": [file] }).to_string().into_bytes();
            }
            if reply.status == 302 { reply.with("x-linked-etag", &format!("\"{sha256}\"")) } else { reply }
        });
        let cache = tempdir().unwrap();
        let done = pull(&hub(&server, cache.path()));
        assert_eq!(done.as_ref().is_ok_and(|pulled| pulled.verified), !wrong, "{done:?}");
    }
}

/// A server without ranges, such as a proxy, does not delete the received bytes, even if it never sends as many.
#[test]
fn a_server_without_ranges_does_not_replace_received_bytes() {
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
            assert!(error.contains("try again later; the download will resume"), "{error}");
            assert_eq!(contents(&begun).unwrap(), files.bytes(FILE)[..stops.max(100_000)]);
        } else {
            let pulled = done.unwrap();
            assert_eq!(pulled.received, (BYTES - 100_000) as u64);
            assert_eq!(contents(&pulled.path).unwrap(), files.bytes(FILE));
        }
    }
}

/// The same between two downloads: the hub lists another file, which has another name in the cache.
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

/// A wrong file is refused and deleted, whether the server or the disk with its beginning is the cause.
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

/// A server without ranges sends the whole file, and again from the first byte after a lost connection.
#[test]
fn a_server_without_ranges_is_enough() {
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

/// If a server begins to send ranges after a lost connection, the download continues from there.
#[test]
fn a_server_may_begin_to_send_ranges() {
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
