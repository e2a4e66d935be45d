//! The folders of programs that store models in layouts of their own.

use super::hub_cache::below;
use super::names::groups;
use super::{LocalModel, Source};
use crate::files::read_text;
use std::fs;
use std::path::{Path, PathBuf};

/// The maximum size of a manifest in bytes.
const MANIFEST: usize = 1 << 20;

/// LM Studio's models: `PUBLISHER/REPO/FILE.gguf`.
pub(super) fn lm_studio(folder: &Path) -> Vec<LocalModel> {
    let mut found = Vec::new();
    for (publisher, path) in folders(folder) {
        for (repo, path) in folders(&path) {
            found.extend(below(&path, &format!("{publisher}/{repo}"), Source::LmStudio));
        }
    }
    found
}

/// The models that llama.cpp has downloaded: files in one folder, `OWNER_REPO_FILE.gguf`. They are called by their file
/// names, since owners and repositories can contain `_` too.
pub(super) fn llama_cpp(folder: &Path) -> Vec<LocalModel> {
    let files: Vec<String> =
        fs::read_dir(folder).into_iter().flatten().flatten().filter_map(|e| e.file_name().into_string().ok()).collect();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let model = |group: super::names::Group| {
        let files: Vec<PathBuf> = group.parts.iter().map(|part| folder.join(files[*part])).collect();
        let path = files.first()?.clone();
        let bytes = files.iter().map(|path| fs::metadata(path).map_or(0, |about| about.len())).sum();
        let (whole, stem) = (group.is_whole(), group.stem);
        Some(LocalModel { name: stem.clone(), source: Source::LlamaCpp, path, bytes, whole, stem, files })
    };
    groups(&files).into_iter().filter_map(model).collect()
}

/// Ollama's models: `manifests/HOST/OWNER/NAME/TAG` names, in JSON, the digest of the file, which is
/// `blobs/sha256-DIGEST`.
pub(super) fn ollama(folder: &Path) -> Vec<LocalModel> {
    let mut found = Vec::new();
    for (host, path) in folders(&folder.join("manifests")) {
        for (owner, path) in folders(&path) {
            for (name, path) in folders(&path) {
                for entry in fs::read_dir(&path).into_iter().flatten().flatten() {
                    let Ok(tag) = entry.file_name().into_string() else { continue };
                    let name = match (host.as_str(), owner.as_str()) {
                        ("registry.ollama.ai", "library") => format!("{name}:{tag}"),
                        ("registry.ollama.ai", owner) => format!("{owner}/{name}:{tag}"),
                        (host, owner) => format!("{host}/{owner}/{name}:{tag}"),
                    };
                    let blob = read_text(&entry.path(), MANIFEST).ok().and_then(|text| weights(&text));
                    let Some(path) = blob.map(|blob| folder.join("blobs").join(blob)) else { continue };
                    let Ok(about) = fs::metadata(&path) else { continue };
                    let (source, bytes, stem, files) = (Source::Ollama, about.len(), String::new(), vec![path.clone()]);
                    found.push(LocalModel { name, source, path, bytes, whole: true, stem, files });
                }
            }
        }
    }
    found
}

/// The file name of the weights that a manifest lists. A model with several such layers is not supported.
fn weights(manifest: &str) -> Option<String> {
    let manifest: serde_json::Value = serde_json::from_str(manifest).ok()?;
    let mut layers = manifest["layers"]
        .as_array()?
        .iter()
        .filter(|layer| layer["mediaType"].as_str() == Some("application/vnd.ollama.image.model"));
    let digest = layers.next()?["digest"].as_str()?.strip_prefix("sha256:")?;
    let sound = digest.len() == 64 && digest.bytes().all(|b| b.is_ascii_hexdigit());
    (sound && layers.next().is_none()).then(|| format!("sha256-{digest}"))
}

/// The folders in a folder, by name.
fn folders(folder: &Path) -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<(String, PathBuf)> = entries
        .filter(|entry| entry.path().is_dir())
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())))
        .collect();
    found.sort_unstable();
    found
}
