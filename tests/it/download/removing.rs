//! What is deleted from a cache, and what never is.

use super::{FILE, hub, noisy, pull};
use crate::common::hub::{COMMIT, Server, folder, hash, noise};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use tempfile::{TempDir, tempdir};
use wglm::Error;
use wglm::catalog::{LocalModel, Places, find_model, local_models};
use wglm::download::Removal;

const BYTES: usize = 10_000;
const NAME: &str = "owner/some-GGUF:Q4_0";

/// A cache with one downloaded model.
struct Cache {
    dir: TempDir,
}

impl Cache {
    fn new() -> Self {
        let files = noisy(BYTES);
        let server = Server::start(move |request, _| files.answer(request));
        let dir = tempdir().unwrap();
        pull(&hub(&server, &dir.path().join("hub"))).unwrap();
        Self { dir }
    }

    fn root(&self) -> PathBuf {
        folder(&self.places().hub.unwrap())
    }

    fn snapshot(&self, commit: &str) -> PathBuf {
        self.root().join("snapshots").join(commit)
    }

    fn blob(&self) -> PathBuf {
        self.root().join("blobs").join(hash(&noise(BYTES)))
    }

    fn places(&self) -> Places {
        let hub = Some(self.dir.path().join("hub"));
        Places { hub, lm_studio: Vec::new(), llama_cpp: Vec::new(), ollama: Vec::new() }
    }

    fn model(&self) -> LocalModel {
        find_model(NAME, &self.places()).unwrap()
    }

    fn removal(&self) -> wglm::Result<Removal> {
        Removal::of(&self.model(), &self.places())
    }

    /// A file of another commit with the same contents.
    fn link(&self, commit: &str, name: &str) -> PathBuf {
        let path = self.snapshot(commit).join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(Path::new("../../blobs").join(hash(&noise(BYTES))), &path).unwrap();
        path
    }
}

fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// The file of the model is deleted in every commit, and with the last one its contents.
#[test]
fn all_commits_lose_the_model() {
    let cache = Cache::new();
    let older = cache.link("older", FILE);
    let readme = cache.snapshot(COMMIT).join("README.md");
    fs::write(&readme, "another program's").unwrap();
    let removal = cache.removal().unwrap();
    assert_eq!((removal.bytes(), removal.files().count()), (BYTES as u64, 3));
    assert!(is_there(&older) && cache.blob().exists(), "nothing is deleted yet");
    removal.run().unwrap();
    assert!(!is_there(older.parent().unwrap()) && !is_there(&cache.blob()) && is_there(&readme));
    assert!(!is_there(&cache.snapshot(COMMIT).join(FILE)) && local_models(&cache.places()).is_empty());
}

#[test]
fn contents_that_another_file_has_stay() {
    let cache = Cache::new();
    let other = cache.link("older", "some-Q8_0.gguf");
    let removal = cache.removal().unwrap();
    assert_eq!(removal.bytes(), 0);
    removal.run().unwrap();
    assert!(other.exists() && cache.blob().exists());
    assert_eq!(local_models(&cache.places()).len(), 1);
}

/// A link out of the cache is deleted, and never what it leads to.
#[test]
fn links_out_of_the_cache_are_not_followed() {
    let cache = Cache::new();
    let precious = cache.dir.path().join("precious-Q4_0.gguf");
    fs::write(&precious, noise(BYTES)).unwrap();
    let link = cache.snapshot(COMMIT).join(FILE);
    fs::remove_file(&link).unwrap();
    symlink(&precious, &link).unwrap();
    let removal = cache.removal().unwrap();
    assert_eq!((removal.bytes(), removal.files().count()), (0, 1));
    removal.run().unwrap();
    assert!(precious.exists() && !is_there(&link) && cache.blob().exists());
}

/// A commit or a repository that is a link to somewhere else is an error, and nothing is deleted.
#[test]
fn folders_out_of_the_cache_are_refused() {
    for part in ["snapshots/out", ""] {
        let cache = Cache::new();
        let inside = if part.is_empty() { cache.root() } else { cache.root().join(part) };
        let outside = cache.dir.path().join("outside");
        if part.is_empty() {
            fs::rename(&inside, &outside).unwrap();
        } else {
            fs::create_dir(&outside).unwrap();
            fs::write(outside.join(FILE), noise(BYTES)).unwrap();
        }
        symlink(&outside, &inside).unwrap();
        let error = cache.removal().unwrap_err();
        assert!(
            matches!(error, Error::Argument { .. }) && error.to_string().contains("whose folder is a link to"),
            "{error}"
        );
        assert!(is_there(&outside) && cache.blob().exists(), "{part}");
    }
}

/// Unfinished downloads are deleted, unless a program is downloading.
#[test]
fn a_running_download_is_left_alone() {
    let cache = Cache::new();
    let part = cache.root().join("blobs").join(format!("{}.part", "1".repeat(64)));
    fs::write(&part, "begun").unwrap();
    let models = local_models(&cache.places());
    let begun = models.iter().find(|model| !model.whole).unwrap();
    let held = fs::File::open(&part).unwrap();
    held.lock().unwrap();
    let error = Removal::of(begun, &cache.places()).unwrap().run().unwrap_err();
    assert!(error.to_string().contains("another program is downloading it") && part.exists(), "{error}");
    drop(held);
    Removal::of(begun, &cache.places()).unwrap().run().unwrap();
    assert!(!is_there(&part) && cache.model().path.exists());
}

/// Deleting an incomplete model does not delete the unfinished downloads of other models.
#[test]
fn an_incomplete_model_leaves_other_downloads() {
    let cache = Cache::new();
    let first = cache.link("older", "some-Q6_K-00001-of-00002.gguf");
    let parts = ["1", "2"].map(|digit| cache.root().join("blobs").join(format!("{}.part", digit.repeat(64))));
    parts.iter().for_each(|part| fs::write(part, "begun").unwrap());
    let models = local_models(&cache.places());
    let incomplete = models.iter().find(|model| model.name.ends_with(":Q6_K")).unwrap();
    Removal::of(incomplete, &cache.places()).unwrap().run().unwrap();
    assert!(!is_there(&first) && parts.iter().all(|part| is_there(part)));
    // If one of several unfinished downloads is running, none is deleted.
    let begun = models.iter().find(|model| model.name == "owner/some-GGUF").unwrap();
    let held = fs::File::open(&parts[1]).unwrap();
    held.lock().unwrap();
    Removal::of(begun, &cache.places()).unwrap().run().unwrap_err();
    assert!(parts.iter().all(|part| is_there(part)));
}

/// Names that differ only in case belong to two models.
#[cfg(target_os = "linux")] // whose file systems distinguish case
#[test]
fn names_in_another_case_are_other_models() {
    let cache = Cache::new();
    let [upper, lower] = ["Own.gguf", "own.gguf"].map(|name| cache.snapshot(COMMIT).join(name));
    [&upper, &lower].iter().for_each(|path| fs::write(path, noise(10)).unwrap());
    let models = local_models(&cache.places());
    let model = models.iter().find(|model| model.name == "owner/some-GGUF:Own").unwrap();
    Removal::of(model, &cache.places()).unwrap().run().unwrap();
    assert!(!is_there(&upper) && is_there(&lower));
}

/// The lists of other programs stay correct.
#[test]
fn models_of_other_programs_are_refused() {
    let cache = Cache::new();
    let ollama = cache.dir.path().join("ollama");
    let digest = hash(&noise(BYTES));
    let layer = format!(r#"{{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:{digest}"}}"#);
    let manifests = ollama.join("manifests/registry.ollama.ai/library/glm");
    fs::create_dir_all(&manifests).unwrap();
    fs::create_dir_all(ollama.join("blobs")).unwrap();
    fs::write(manifests.join("latest"), format!(r#"{{"layers": [{layer}]}}"#)).unwrap();
    fs::write(ollama.join("blobs").join(format!("sha256-{digest}")), noise(BYTES)).unwrap();
    let places = Places { ollama: vec![ollama], ..cache.places() };
    let model = find_model("glm:latest", &places).unwrap();
    let error = Removal::of(&model, &places).unwrap_err().to_string();
    assert!(error.contains("`ollama rm glm:latest` deletes it") && model.path.exists(), "{error}");
}
