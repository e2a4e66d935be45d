//! Something else under the name of a file, such as a link or a pipe: it is not written to, and nothing waits for it.

use super::{FILE, hub, list, noisy, part, pull};
use crate::common::hub::{Server, contents, folder};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use tempfile::tempdir;
use wglm::Error;
use wglm::catalog::{Places, local_models};

const BYTES: usize = 100_000;

fn pipe(path: &Path) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

fn places(cache: &Path) -> Places {
    let none = tempdir().unwrap().path().to_owned();
    Places { hub: Some(cache.into()), lm_studio: Vec::new(), llama_cpp: vec![none.clone()], ollama: vec![none] }
}

/// With a link the download would overwrite the link's target, and with a pipe it would wait for a reader.
#[test]
fn a_part_is_a_regular_file() {
    let files = noisy(BYTES);
    let served = files.clone();
    let server = Server::start(move |request, _| served.answer(request));
    let dir = tempdir().unwrap();
    let precious = dir.path().join("precious");
    std::fs::write(&precious, "mine").unwrap();
    for (what, words) in [("link", "symbolic link, which is not followed"), ("pipe", "not a regular file")] {
        let cache = tempdir().unwrap();
        let path = part(&files, cache.path());
        pipe(&path);
        if what == "link" {
            std::fs::remove_file(&path).unwrap();
            symlink(&precious, &path).unwrap();
        }
        let hub = hub(&server, cache.path());
        let error = pull(&hub).unwrap_err();
        assert!(matches!(&error, Error::Io { path: found, .. } if *found == path), "{what}: {error}");
        assert!(error.to_string().contains(words), "{what}: {error}");
        let repository = list(&hub).unwrap();
        hub.discard(&repository, &repository.models[0]).unwrap_err();
        assert_eq!(contents(&precious).unwrap(), b"mine", "{what}");
        assert!(path.symlink_metadata().is_ok(), "{what}: what another put there stays");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(contents(&pull(&hub).unwrap().path).unwrap(), files.bytes(FILE));
    }
}

/// The same for the file with the commit of a branch, and for the link of a snapshot.
#[test]
fn other_files_of_the_cache_are_not_written_through() {
    let files = noisy(BYTES);
    let served = files.clone();
    let server = Server::start(move |request, _| served.answer(request));
    let cache = tempdir().unwrap();
    let root = folder(cache.path());
    let precious = cache.path().join("precious");
    std::fs::write(&precious, "mine").unwrap();
    std::fs::create_dir_all(root.join("refs")).unwrap();
    symlink(&precious, root.join("refs/main")).unwrap();
    let error = pull(&hub(&server, cache.path())).unwrap_err().to_string();
    assert!(error.contains("refs/main") && error.contains("symbolic link"), "{error}");
    assert_eq!(contents(&precious).unwrap(), b"mine");
    std::fs::remove_file(root.join("refs/main")).unwrap();
    pipe(&root.join("refs/main"));
    assert!(pull(&hub(&server, cache.path())).unwrap_err().to_string().contains("refs/main"));
    // A listing reads neither that pipe nor one under the name of a model.
    pipe(&root.join("snapshots/other/x-Q8_0.gguf"));
    let listed = local_models(&places(cache.path()));
    assert_eq!(listed.iter().map(|model| model.name.as_str()).collect::<Vec<_>>(), ["owner/some-GGUF:Q4_0"]);
}
