//! Compares files on this machine with their hashes. A hub lists the hashes; without a hub they are known for files
//! that are named by them, in the Hugging Face cache and in Ollama's folder.

use super::hash::{self, Hash};
use super::{PullProgress, PullStage, RemoteModel};
use crate::cancel::Cancel;
use crate::catalog::{LocalModel, RepoFolder};
use crate::error::{Error, Result};
use crate::files::{self, Links};
use serde::Serialize;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The bytes that are read at a time.
const BLOCK: usize = 1 << 20;

/// How a file compares with its hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FileState {
    /// It has the hash.
    Right,
    /// It has another size or hash.
    Wrong,
    /// It is missing or incomplete.
    Missing,
    /// Its hash is not recorded on this machine.
    Unknown,
}

/// A file of a model, compared with its hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct VerifiedFile {
    /// Its path, whether it exists or not.
    pub path: PathBuf,
    /// How it compares.
    pub state: FileState,
}

/// A file to compare.
struct Wanted {
    path: PathBuf,
    /// The size, if that is known.
    bytes: Option<u64>,
    /// The digits of the hash, if that is known.
    hash: Option<String>,
}

/// Reads the files of a model on this machine, and compares them with the hashes that they are named by. `tell`
/// receives the progress.
///
/// # Errors
/// [`Error::Io`](crate::Error::Io) if a file cannot be read; [`Error::Cancelled`](crate::Error::Cancelled). A file that
/// is wrong or missing is not an error.
pub fn verify_local(
    model: &LocalModel,
    cancel: &Cancel,
    tell: &mut dyn FnMut(PullProgress),
) -> Result<Vec<VerifiedFile>> {
    if !model.whole {
        return Ok(vec![VerifiedFile { path: model.path.clone(), state: FileState::Missing }]);
    }
    let wanted = model.files.iter().map(|path| Wanted { path: path.clone(), bytes: None, hash: named_by(path) });
    all(wanted.collect(), model.bytes, (cancel, tell))
}

/// The same for a model of a hub, which lists the hashes.
pub(super) fn remote(
    folder: &RepoFolder,
    commit: &str,
    model: &RemoteModel,
    telling: (&Cancel, &mut dyn FnMut(PullProgress)),
) -> Result<Vec<VerifiedFile>> {
    let wanted = model.files.iter().map(|file| {
        // On a system without links, the file itself is where the link would be.
        let (blob, named) = (folder.blob(file.id()), folder.file(commit, &file.path));
        let path = if blob.exists() { blob } else { named };
        Wanted { path, bytes: Some(file.bytes), hash: Some(file.id().to_owned()) }
    });
    all(wanted.collect(), model.bytes(), telling)
}

/// The hash in the name of the file that a path refers to.
fn named_by(path: &Path) -> Option<String> {
    let path = fs::canonicalize(path).ok()?;
    let name = path.file_name()?.to_str()?;
    let digits = name.strip_prefix("sha256-").unwrap_or(name);
    let is_blob = path.parent()?.file_name()? == "blobs";
    (is_blob && hash::is_hash(digits)).then(|| digits.to_owned())
}

fn all(
    wanted: Vec<Wanted>,
    total: u64,
    (cancel, tell): (&Cancel, &mut dyn FnMut(PullProgress)),
) -> Result<Vec<VerifiedFile>> {
    let mut done = 0;
    let mut report = |bytes: u64| {
        done += bytes;
        tell(PullProgress { stage: PullStage::Checking, done, total, trouble: None });
        cancel.check()
    };
    let compared = |wanted: Wanted| {
        let state = state(&wanted, &mut report)?;
        Ok(VerifiedFile { path: wanted.path, state })
    };
    wanted.into_iter().map(compared).collect()
}

fn state(wanted: &Wanted, report: &mut dyn FnMut(u64) -> Result<()>) -> Result<FileState> {
    let unreadable = Error::io("read", &wanted.path);
    let file = match files::open(&wanted.path, OpenOptions::new().read(true), Links::Followed) {
        Err(reason) if reason.kind() == io::ErrorKind::NotFound => return Ok(FileState::Missing),
        opened => opened.map_err(&unreadable)?,
    };
    let bytes = file.metadata().map_err(&unreadable)?.len();
    if wanted.bytes.is_some_and(|wanted| wanted != bytes) {
        return Ok(FileState::Wrong);
    }
    let Some(digits) = &wanted.hash else { return Ok(FileState::Unknown) };
    let mut hash = Hash::new(bytes, digits);
    read(file, &wanted.path, &mut hash, report)?;
    Ok(if hash.other_than(digits).is_none() { FileState::Right } else { FileState::Wrong })
}

fn read(mut file: File, path: &Path, hash: &mut Hash, report: &mut dyn FnMut(u64) -> Result<()>) -> Result<()> {
    let mut block = vec![0; BLOCK];
    loop {
        match file.read(&mut block) {
            Ok(0) => return Ok(()),
            Ok(count) => {
                hash.update(&block[..count]);
                report(count as u64)?;
            }
            Err(reason) if reason.kind() == io::ErrorKind::Interrupted => {}
            Err(reason) => return Err(Error::io("read", path)(reason)),
        }
    }
}
