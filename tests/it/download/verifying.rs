//! Compares files on this machine with the hashes that a hub lists, or with those in their names.

use super::{FILE, git_id, hub, list, noisy, pull};
use crate::common::hub::{COMMIT, Files, Server, folder, hash, noise};
use std::path::{Path, PathBuf};
use tempfile::{TempDir, tempdir};
use wglm::catalog::{Places, local_models};
use wglm::download::{FileState, Hub, PullStage, VerifiedFile, verify_local};
use wglm::{Cancel, Error};

/// A size larger than the block that is read at a time.
const BYTES: usize = 2_500_000;

/// A cache with a model, and its hub.
fn pulled() -> (Server, TempDir, PathBuf) {
    let files = noisy(BYTES);
    let blob = hash(files.bytes(FILE));
    let server = Server::start(move |request, _| files.answer(request));
    let cache = tempdir().unwrap();
    pull(&hub(&server, cache.path())).unwrap();
    let blob = folder(cache.path()).join("blobs").join(blob);
    (server, cache, blob)
}

fn states(files: &[VerifiedFile]) -> Vec<FileState> {
    files.iter().map(|file| file.state).collect()
}

fn by_hub(hub: &Hub) -> Vec<FileState> {
    let repository = list(hub).unwrap();
    let mut most = 0;
    let found = hub.verify(&repository, &repository.models[0], &Cancel::default(), &mut |progress| {
        assert!(progress.stage == PullStage::Checking && progress.done <= progress.total, "{progress:?}");
        most = progress.done;
    });
    let found = states(&found.unwrap());
    assert!(most == BYTES as u64 || found != [FileState::Right], "{most} bytes were read");
    found
}

fn by_names(cache: &Path) -> Vec<FileState> {
    let none = cache.join("none");
    let places = Places {
        hub: Some(cache.into()),
        lm_studio: vec![cache.join("lm")],
        llama_cpp: vec![none],
        ollama: vec![cache.join("ollama")],
    };
    let verified = |model| states(&verify_local(model, &Cancel::default(), &mut |_| {}).unwrap());
    local_models(&places).iter().flat_map(verified).collect()
}

#[test]
fn a_wrong_file_is_found() {
    use FileState::{Missing, Right, Wrong};
    let (server, cache, blob) = pulled();
    let hub = hub(&server, cache.path());
    assert_eq!((by_hub(&hub), by_names(cache.path())), (vec![Right], vec![Right]));
    let asked = server.contents().len();

    let mut bytes = std::fs::read(&blob).unwrap();
    bytes[BYTES - 1] ^= 1;
    std::fs::write(&blob, &bytes).unwrap();
    assert_eq!((by_hub(&hub), by_names(cache.path())), (vec![Wrong], vec![Wrong]));
    bytes.push(0);
    std::fs::write(&blob, &bytes).unwrap();
    assert_eq!((by_hub(&hub), by_names(cache.path())), (vec![Wrong], vec![Wrong]));

    // The beginning of a file is not the whole file.
    std::fs::rename(&blob, blob.with_extension("part")).unwrap();
    assert_eq!((by_hub(&hub), by_names(cache.path())), (vec![Missing], vec![Missing]));
    assert_eq!(server.contents().len(), asked, "nothing is downloaded");
}

#[test]
fn a_comparison_can_be_cancelled() {
    let (server, cache, _) = pulled();
    let hub = hub(&server, cache.path());
    let repository = list(&hub).unwrap();
    let cancel = Cancel::default();
    let stopped = hub.verify(&repository, &repository.models[0], &cancel, &mut |_| cancel.cancel());
    assert!(matches!(stopped, Err(Error::Cancelled)), "{stopped:?}");
}

/// Small files in the cache are named by their git ids, files of Ollama by their SHA-256, and files of other programs
/// by no hash.
#[test]
fn names_contain_hashes() {
    let cache = tempdir().unwrap();
    let write = |path: &str, bytes: &[u8]| {
        let path = cache.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    };
    let (small, digest) = (noise(100), hash(b"weights"));
    let (root, id) = ("models--owner--some-GGUF", git_id(&small));
    write(&format!("{root}/blobs/{id}"), &small);
    write(&format!("{root}/snapshots/{COMMIT}/none"), b"");
    #[cfg(unix)]
    std::os::unix::fs::symlink(
        format!("../../blobs/{id}"),
        cache.path().join(format!("{root}/snapshots/{COMMIT}/a-Q4_0.gguf")),
    )
    .unwrap();
    write("lm/publisher/x-GGUF/x-Q4_0.gguf", b"x");
    write(&format!("ollama/blobs/sha256-{digest}"), b"weights");
    let layer = serde_json::json!({
        "mediaType": "application/vnd.ollama.image.model", "digest": format!("sha256:{digest}"),
    });
    let manifest = serde_json::json!({ "layers": [layer] }).to_string();
    write("ollama/manifests/registry.ollama.ai/library/glm/latest", manifest.as_bytes());
    let mut found = by_names(cache.path());
    let unknown = found.pop();
    assert_eq!(unknown, Some(FileState::Unknown), "that of LM Studio");
    assert!(found.len() > usize::from(cfg!(unix)) && found.iter().all(|state| *state == FileState::Right), "{found:?}");
    write(&format!("{root}/blobs/{id}"), &noise(101)[1..]);
    assert_eq!(by_names(cache.path()).contains(&FileState::Wrong), cfg!(unix));
}

/// Each part of a model is compared.
#[test]
fn parts_are_compared_one_by_one() {
    let part = |number: usize| (format!("x-Q4_0-0000{number}-of-00002.gguf"), noise(1000 * number));
    let files = Files(vec![part(1), part(2)]);
    let second = hash(&part(2).1);
    let server = Server::start(move |request, _| files.answer(request));
    let cache = tempdir().unwrap();
    let hub = hub(&server, cache.path());
    pull(&hub).unwrap();
    std::fs::write(folder(cache.path()).join("blobs").join(second), noise(2001)).unwrap();
    let repository = list(&hub).unwrap();
    let found = hub.verify(&repository, &repository.models[0], &Cancel::default(), &mut |_| {}).unwrap();
    assert_eq!(states(&found), [FileState::Right, FileState::Wrong]);
    assert!(found[1].path.starts_with(folder(cache.path()).join("blobs")), "{found:?}");
}
