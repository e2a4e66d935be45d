//! The contents of a repository.

use super::client::{Attempt, Client, RequestFailure, is_hash};
use crate::catalog::{RepoName, groups, is_called};
use crate::error::{Error, ErrorKind, Result};
use crate::threads::StopCheck;
use serde::{Deserialize, Serialize};
use std::io::Read;

/// The maximum number of bytes of a listing that are read.
const LONGEST: u64 = 32 << 20;
/// The maximum size of a model in bytes: no file system has more.
const LARGEST: u64 = i64::MAX as u64;

/// A repository at a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Repository {
    /// The name.
    #[serde(skip)]
    pub name: RepoName,
    /// The requested revision.
    pub revision: String,
    /// Its commit, which downloads use.
    pub commit: String,
    /// The models in GGUF files, the smallest first.
    pub models: Vec<RemoteModel>,
}

/// A model in a repository: one file, or several parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RemoteModel {
    /// Its name after the colon of `OWNER/REPO:QUANT`.
    pub label: String,
    /// The files in order.
    pub files: Vec<RemoteFile>,
    #[serde(skip)]
    stem: String,
}

/// A file in a repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RemoteFile {
    /// The path in the repository.
    pub path: String,
    /// The size.
    pub bytes: u64,
    /// The SHA-256 of the contents in hexadecimal digits, if the hub lists it.
    pub sha256: Option<String>,
    /// Git's id of the contents.
    #[serde(skip)]
    pub(super) git: Option<String>,
}

impl Repository {
    /// The model with a label, or with the name of one of its files. The prefix `UD-` of a label may be omitted if the
    /// rest is not another model's label.
    ///
    /// # Errors
    /// [`Error::NoModel`], which lists the models of the repository.
    pub fn model(&self, label: &str) -> Result<&RemoteModel> {
        let called = |label: &str| self.models.iter().find(|model| model.is_called(label));
        called(label).or_else(|| called(&format!("UD-{label}"))).ok_or_else(|| {
            let labels: Vec<&str> = self.models.iter().map(|model| model.label.as_str()).collect();
            let found = if labels.is_empty() { "no GGUF file".into() } else { labels.join(", ") };
            Error::NoModel { name: format!("{}:{label}", self.name), found, remedy: "choose one of these".into() }
        })
    }
}

impl RemoteModel {
    /// The size of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().fold(0, |sum, file| sum.saturating_add(file.bytes))
    }

    /// A model for tests.
    #[cfg(test)]
    pub(super) fn of_file(path: &str, bytes: u64) -> Self {
        let file = RemoteFile { path: path.into(), bytes, sha256: None, git: Some("0".repeat(40)) };
        Self { label: "x".into(), files: vec![file], stem: "x".into() }
    }

    fn is_called(&self, label: &str) -> bool {
        is_called(label, &self.label, &self.stem)
    }
}

impl RemoteFile {
    /// The name of its blob in a cache: the hash of its contents.
    pub(super) fn id(&self) -> &str {
        self.sha256.as_deref().or(self.git.as_deref()).unwrap_or_default()
    }
}

/// The fields that are read from the hub's answer.
#[derive(Deserialize)]
struct About {
    sha: Option<String>,
    #[serde(default)]
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    blob_id: Option<String>,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    /// The name in the list of files, and that of older servers.
    #[serde(alias = "oid")]
    sha256: Option<String>,
    size: Option<u64>,
}

/// Asks the hub for the contents of a repository.
pub(super) fn list(
    client: &Client,
    repo: &RepoName,
    revision: &str,
    check_stop: &mut StopCheck<'_>,
) -> Result<Repository> {
    let about = client.persist(&repo.to_string(), check_stop, &|_| {}, |_| ask(client, repo, revision).into())?;
    let commit = about.sha.filter(|sha| !sha.is_empty() && sha.bytes().all(|b| b.is_ascii_alphanumeric()));
    let commit = commit.ok_or_else(|| strange(repo, "it has no commit"))?;
    let paths: Vec<&str> = about.siblings.iter().map(|sibling| sibling.rfilename.as_str()).collect();
    let mut models = Vec::new();
    for group in groups(&paths).into_iter().filter(|group| group.is_whole()) {
        let files = group.parts.iter().map(|part| file(client, repo, &commit, &about.siblings[*part], check_stop));
        let model = RemoteModel { label: group.label, stem: group.stem, files: files.collect::<Result<_>>()? };
        if model.bytes() > LARGEST {
            return Err(strange(repo, &format!("{} has {} bytes", model.label, model.bytes())));
        }
        models.push(model);
    }
    models.sort_by_key(RemoteModel::bytes);
    Ok(Repository { name: repo.clone(), revision: revision.into(), commit, models })
}

fn ask(client: &Client, repo: &RepoName, revision: &str) -> Result<About, RequestFailure> {
    let answer = client.get(&client.about(repo, revision), None, None)?;
    let mut text = Vec::new();
    let read = answer.into_reader().take(LONGEST).read_to_end(&mut text);
    read.map_err(|reason| RequestFailure::Transient(format!("the connection was lost ({reason})"), None))?;
    serde_json::from_slice(&text).map_err(|reason| RequestFailure::Permanent(strange(repo, &reason.to_string())))
}

/// A file of the list. A request for the file itself tells what the list lacks.
fn file(
    client: &Client,
    repo: &RepoName,
    commit: &str,
    sibling: &Sibling,
    check_stop: &mut StopCheck<'_>,
) -> Result<RemoteFile> {
    let path = sibling.rfilename.clone();
    let lfs = sibling.lfs.as_ref();
    let sha256 = lfs.and_then(|lfs| lfs.sha256.as_ref()).map(|hash| hash.to_ascii_lowercase());
    let sha256 = sha256.filter(|hash| is_hash(hash));
    let size = lfs.and_then(|lfs| lfs.size).or(sibling.size);
    let is_number = |id: &String| id.len() == 40 && id.bytes().all(|b| b.is_ascii_hexdigit());
    let git = sibling.blob_id.clone().filter(is_number);
    if let (Some(bytes), true) = (size, sha256.is_some() || git.is_some()) {
        return Ok(RemoteFile { path, bytes, sha256, git });
    }
    let url = client.file(repo, commit, &path);
    let (hash, length) = client.persist(&path, check_stop, &|_| {}, |_| {
        let answer = client.get(&url, Some(0..1), None);
        Attempt::from(answer.map(|answer| (answer.hash(), answer.size())))
    })?;
    let bytes = length.or(size).ok_or_else(|| strange(repo, &format!("it has no size for {path}")))?;
    let sha256 = sha256.or(hash);
    if sha256.is_none() && git.is_none() {
        return Err(strange(repo, &format!("it has no hash for {path}")));
    }
    Ok(RemoteFile { path, bytes, sha256, git })
}

fn strange(repo: &RepoName, reason: &str) -> Error {
    Error::Download {
        what: repo.to_string(),
        reason: format!("unexpected answer from the hub: {reason}"),
        remedy: "check the address of the hub (HF_ENDPOINT)".into(),
        kind: ErrorKind::Network,
    }
}
