//! The Hugging Face cache. For each repository it has
//!
//! * `models--OWNER--REPO/blobs/HASH`: the files, each named by its SHA-256;
//! * `models--OWNER--REPO/snapshots/COMMIT/PATH`: a relative link to the blob for each file of a commit;
//! * `models--OWNER--REPO/refs/main`: the commit that a branch was at when it was last looked up.

use super::names::{RepoName, groups};
use super::{LocalModel, Source};
use crate::files::read_text;
use std::fs;
use std::path::{Path, PathBuf};

/// The extension of an incomplete file.
pub(crate) const PART: &str = "part";

/// The maximum size of a file that names a commit, in bytes.
const LONGEST_REFERENCE: usize = 1 << 10;

/// The maximum depth of folders with files of a commit.
const DEPTH: usize = 3;

/// The maximum number of directory entries that are read below one folder, because a setting may name a folder with
/// millions of them by mistake.
const MAX_ENTRIES: usize = 1 << 17;

/// How many folders deep to search for links, which protect contents from being deleted.
#[cfg(feature = "download")]
const DEEPEST: usize = 64;

/// The folder of a repository in a cache.
#[derive(Debug, Clone, PartialEq, Eq)]
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

    /// The incomplete file with these contents, during its download.
    #[cfg(feature = "download")]
    pub fn part(&self, hash: &str) -> PathBuf {
        self.0.join("blobs").join(format!("{hash}.{PART}"))
    }

    /// A file of a commit, by its path in the repository.
    pub fn file(&self, commit: &str, path: &str) -> PathBuf {
        self.0.join("snapshots").join(commit).join(path)
    }

    /// Whether a file of any commit links to these contents.
    #[cfg(feature = "download")]
    pub fn is_linked(&self, hash: &str) -> bool {
        self.links().iter().any(|(_, to)| to.file_name().is_some_and(|name| name == hash))
    }

    /// The links of all commits, and their targets.
    #[cfg(feature = "download")]
    pub fn links(&self) -> Vec<(PathBuf, PathBuf)> {
        fn below(folder: &Path, depth: usize, links: &mut Vec<(PathBuf, PathBuf)>) {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                match fs::read_link(entry.path()) {
                    Ok(to) => links.push((entry.path(), to)),
                    Err(_) if depth > 0 && entry.path().is_dir() => below(&entry.path(), depth - 1, links),
                    Err(_) => {}
                }
            }
        }
        let mut links = Vec::new();
        below(&self.0.join("snapshots"), DEEPEST, &mut links);
        links
    }

    /// The incomplete files of unfinished downloads.
    pub fn parts(&self) -> Vec<PathBuf> {
        let begun = fs::read_dir(self.0.join("blobs")).into_iter().flatten().flatten().map(|entry| entry.path());
        begun.filter(|path| path.extension().is_some_and(|ending| ending == PART)).collect()
    }

    /// The files of a model, by its listed name, in all commits.
    #[cfg(feature = "download")]
    pub fn files_of(&self, name: &str) -> Vec<PathBuf> {
        let repo = name.rsplit_once(':').map_or(name, |(repo, _)| repo);
        let commits = self.commits().into_iter().map(|commit| self.file(&commit, ""));
        let models = commits.flat_map(|root| below(&root, repo, Source::HuggingFace));
        models.filter(|model| model.name == name).flat_map(|model| model.files).collect()
    }

    /// The path of the folder, unless it does not exist or is a link to somewhere else.
    #[cfg(feature = "download")]
    pub fn canonical(&self) -> Option<PathBuf> {
        let real = fs::canonicalize(&self.0).ok()?;
        (fs::canonicalize(self.0.parent()?).ok()?.join(self.0.file_name()?) == real).then_some(real)
    }

    /// The path of the folder, even if it is a link.
    #[cfg(feature = "download")]
    pub fn real(&self) -> Option<PathBuf> {
        fs::canonicalize(&self.0).ok()
    }

    /// A path relative to the folder.
    #[cfg(feature = "download")]
    pub fn relative<'a>(&self, path: &'a Path) -> Option<&'a Path> {
        path.strip_prefix(&self.0).ok()
    }

    /// Deletes the folders that the deletion of files has left empty, and the repository's folder if nothing remains.
    #[cfg(feature = "download")]
    pub fn tidy(&self, deleted: &[PathBuf]) {
        let snapshots = self.0.join("snapshots");
        for name in deleted {
            let above = name.ancestors().skip(1).take_while(|folder| *folder != snapshots);
            above.take_while(|folder| fs::remove_dir(folder).is_ok()).for_each(drop);
        }
        // Anything else stays, since a folder that is not empty is not deleted.
        let is_gone = |folder: &Path| fs::remove_dir(folder).is_ok() || !folder.exists();
        if is_gone(&snapshots) && is_gone(&self.0.join("blobs")) {
            let _ = fs::remove_dir_all(self.0.join("refs")); // which follows no links
            let _ = fs::remove_dir(&self.0);
        }
    }

    /// The file with the commit of a branch.
    pub fn reference(&self, revision: &str) -> PathBuf {
        self.0.join("refs").join(revision)
    }

    /// The commits with files: that of `main` first, then the most recently changed.
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

/// The models in a cache. If a model is in several commits, the newest complete one is listed.
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
        for path in folder.parts() {
            let bytes = fs::symlink_metadata(&path).map_or(0, |about| about.len());
            let name = repo.to_string();
            let (source, stem, files) = (Source::HuggingFace, String::new(), vec![path.clone()]);
            found.push(LocalModel { name, source, path, bytes, whole: false, stem, files });
        }
    }
    found
}

/// The models among the files below a folder that belongs to a repository.
pub(super) fn below(root: &Path, repo: &str, source: Source) -> Vec<LocalModel> {
    let (mut files, mut left) = (Vec::new(), MAX_ENTRIES);
    walk(root, "", DEPTH, &mut left, &mut files);
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

/// The GGUF files below a folder, with their paths (separated by `/`) and sizes. The search goes `depth` folders deep
/// and stops after `left` entries.
fn walk(folder: &Path, before: &str, depth: usize, left: &mut usize, files: &mut Vec<(String, u64)>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if *left == 0 {
            return;
        }
        *left -= 1;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let path = format!("{before}{name}");
        // Links to blobs count as their targets; dangling links are left out.
        let Ok(about) = fs::metadata(entry.path()) else { continue };
        if about.is_dir() && depth > 0 {
            walk(&entry.path(), &format!("{path}/"), depth - 1, left, files);
        } else if about.is_file() && path.ends_with(".gguf") {
            files.push((path, about.len()));
        }
    }
}
