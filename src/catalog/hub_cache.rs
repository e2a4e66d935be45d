//! The cache that Hugging Face's programs share. Of a repository it has
//!
//! * `models--OWNER--REPO/blobs/HASH`: the files, each named by its SHA-256;
//! * `models--OWNER--REPO/snapshots/COMMIT/PATH`: a relative link to the blob for each file of a commit;
//! * `models--OWNER--REPO/refs/main`: the commit that a branch was at when it was last looked up.

use super::names::{RepoName, groups};
use super::{LocalModel, Source};
use crate::files::read_text;
use std::fs;
use std::path::{Path, PathBuf};

/// The ending of a file that is not yet there as a whole.
pub(crate) const PART: &str = "part";

/// The most bytes of a file that names a commit.
const LONGEST_REFERENCE: usize = 1 << 10;

/// How many folders deep the files of a commit are, at most.
const DEPTH: usize = 3;

/// The folder of a repository in a cache.
#[derive(Debug, Clone)]
pub(crate) struct RepoFolder(PathBuf);

impl RepoFolder {
    pub fn new(cache: &Path, repo: &RepoName) -> Self {
        Self(cache.join(repo.folder()))
    }

    /// The file with these contents.
    #[cfg(feature = "download")]
    pub fn blob(&self, hash: &str) -> PathBuf {
        self.0.join("blobs").join(hash)
    }

    /// The beginning of the file with these contents, while it is downloaded.
    #[cfg(feature = "download")]
    pub fn part(&self, hash: &str) -> PathBuf {
        self.0.join("blobs").join(format!("{hash}.{PART}"))
    }

    /// A file of a commit, by its path in the repository.
    pub fn file(&self, commit: &str, path: &str) -> PathBuf {
        self.0.join("snapshots").join(commit).join(path)
    }

    /// Whether a file of any commit leads to these contents.
    #[cfg(feature = "download")]
    pub fn is_linked(&self, hash: &str) -> bool {
        fn below(folder: &Path, hash: &str, depth: usize) -> bool {
            fs::read_dir(folder).into_iter().flatten().flatten().any(|entry| match fs::read_link(entry.path()) {
                Ok(to) => to.file_name().is_some_and(|name| name == hash),
                Err(_) => depth > 0 && entry.path().is_dir() && below(&entry.path(), hash, depth - 1),
            })
        }
        below(&self.0.join("snapshots"), hash, DEPTH + 1)
    }

    /// The file that says which commit a branch is at.
    pub fn reference(&self, revision: &str) -> PathBuf {
        self.0.join("refs").join(revision)
    }

    /// The commits there are files of: that of `main` first, then those that changed last.
    fn commits(&self) -> Vec<String> {
        let main = read_text(&self.reference("main"), LONGEST_REFERENCE).unwrap_or_default();
        let entries = fs::read_dir(self.0.join("snapshots")).into_iter().flatten().flatten();
        let mut commits: Vec<(bool, std::time::SystemTime, String)> = entries
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let changed = entry.metadata().and_then(|about| about.modified()).unwrap_or(std::time::UNIX_EPOCH);
                Some((name == main.trim(), changed, name))
            })
            .collect();
        commits.sort_unstable_by(|a, b| b.cmp(a));
        commits.into_iter().map(|(.., name)| name).collect()
    }
}

/// The models in a cache. Of one that several commits have, the newest is listed that is there as a whole.
pub(super) fn models(cache: &Path) -> Vec<LocalModel> {
    let mut found: Vec<LocalModel> = Vec::new();
    for entry in fs::read_dir(cache).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(repo) = name.to_str().and_then(RepoName::of_folder) else { continue };
        let folder = RepoFolder::new(cache, &repo);
        for commit in folder.commits() {
            let root = folder.file(&commit, "");
            for model in below(&root, &repo.to_string(), Source::HuggingFace) {
                match found.iter_mut().find(|other| other.name == model.name) {
                    Some(other) if model.whole && !other.whole => *other = model,
                    Some(_) => {}
                    None => found.push(model),
                }
            }
        }
        let begun = fs::read_dir(entry.path().join("blobs")).into_iter().flatten().flatten();
        for part in begun.filter(|part| part.path().extension().is_some_and(|ending| ending == PART)) {
            let bytes = part.metadata().map_or(0, |about| about.len());
            let (name, path) = (repo.to_string(), part.path());
            let (source, stem, files) = (Source::HuggingFace, String::new(), vec![path.clone()]);
            found.push(LocalModel { name, source, path, bytes, whole: false, stem, files });
        }
    }
    found
}

/// The models among the files below a folder, which are those of a repository.
pub(super) fn below(root: &Path, repo: &str, source: Source) -> Vec<LocalModel> {
    let mut files = Vec::new();
    walk(root, "", DEPTH, &mut files);
    let paths: Vec<&str> = files.iter().map(|(path, _)| path.as_str()).collect();
    let model = |group: super::names::Group| {
        let bytes = group.parts.iter().map(|part| files[*part].1).sum();
        let name = format!("{repo}:{}", group.label);
        let files: Vec<PathBuf> = group.parts.iter().map(|part| root.join(paths[*part])).collect();
        let (path, whole) = (files.first()?.clone(), group.is_whole());
        Some(LocalModel { name, source, path, bytes, whole, stem: group.stem, files })
    };
    groups(&paths).into_iter().filter_map(model).collect()
}

/// The GGUF files below a folder, at most so many folders deep: their paths with `/`, and their sizes.
fn walk(folder: &Path, before: &str, depth: usize, files: &mut Vec<(String, u64)>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        let path = format!("{before}{name}");
        // Links to blobs count as what they lead to; those that lead nowhere are left out.
        let Ok(about) = fs::metadata(entry.path()) else { continue };
        if about.is_dir() && depth > 0 {
            walk(&entry.path(), &format!("{path}/"), depth - 1, files);
        } else if about.is_file() && path.ends_with(".gguf") {
            files.push((path, about.len()));
        }
    }
}
