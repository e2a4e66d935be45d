//! Deletes models from the Hugging Face cache.
//!
//! * **Only files of that cache are deleted.** A link to a target outside is deleted as a link, and a folder that is a
//!   link to the outside is an error. Models of other programs stay, because those programs keep lists of their models.
//! * **Shared contents stay.** Contents are deleted only if no other file of any commit links to them, and nothing of a
//!   running download is deleted.

use super::part;
use crate::catalog::{LocalModel, Places, RepoFolder, RepoName, Source};
use crate::error::{Error, Result};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// What can be deleted of a model on this machine.
///
/// ```no_run
/// use wglm::catalog::{Places, find_model};
/// use wglm::download::Removal;
///
/// # fn main() -> wglm::Result<()> {
/// let places = Places::default();
/// let model = find_model("unsloth/GLM-4.7-Flash-GGUF:Q4_0", &places)?;
/// let removal = Removal::of(&model, &places)?;
/// println!("{} bytes would be free", removal.bytes());
/// removal.run()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    folder: RepoFolder,
    /// The names of its files, in all commits.
    names: Vec<PathBuf>,
    /// Contents that no other file links to.
    blobs: BTreeSet<PathBuf>,
    /// The incomplete files of unfinished downloads.
    parts: Vec<PathBuf>,
    bytes: u64,
}

impl Removal {
    /// Finds the files of a model in all commits of its repository. An incomplete file does not tell which model it
    /// belongs to, so it is included only for a model without any file, which represents all unfinished downloads from
    /// the repository. Nothing is deleted yet.
    ///
    /// # Errors
    /// [`Error::Argument`] for a model in another program's folder, and for one that is not in the cache of `places`,
    /// or in a folder that links to the outside.
    pub fn of(model: &LocalModel, places: &Places) -> Result<Self> {
        if model.source != Source::HuggingFace {
            return Err(foreign(model));
        }
        let folder = folder_of(model, places)?;
        let root = folder.canonical().ok_or_else(|| leads_out(model, folder.real()))?;
        let names = folder.files_of(&model.name);
        // A folder inside may be a link too.
        let is_inside = |name: &PathBuf| {
            let parent = name.parent().zip(name.parent().and_then(|parent| fs::canonicalize(parent).ok()));
            parent.is_some_and(|(parent, real)| folder.relative(parent).is_some_and(|rest| root.join(rest) == real))
        };
        if let Some(name) = names.iter().find(|name| !is_inside(name)) {
            return Err(leads_out(model, name.parent().and_then(|parent| fs::canonicalize(parent).ok())));
        }
        let blobs = unshared(&folder, &root.join("blobs"), &names);
        let is_real =
            |part: &PathBuf| fs::canonicalize(part).is_ok_and(|real| real.parent() == Some(&root.join("blobs")));
        let parts: Vec<PathBuf> =
            if names.is_empty() { folder.parts().into_iter().filter(is_real).collect() } else { Vec::new() };
        let own =
            |path: &PathBuf| fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file).map_or(0, |it| it.len());
        let bytes = names.iter().chain(&blobs).chain(&parts).map(own).sum();
        Ok(Self { folder, names, blobs, parts, bytes })
    }

    /// The bytes that will be freed. Contents that another file shares are not counted.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The files and links that will be deleted.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.parts.iter().chain(&self.names).chain(&self.blobs).map(PathBuf::as_path)
    }

    /// Deletes them, and folders that become empty.
    ///
    /// # Errors
    /// [`Error::Download`] before anything is deleted, if a program is downloading one of the files; [`Error::Io`] if a
    /// file cannot be deleted.
    pub fn run(self) -> Result<()> {
        part::remove(self.parts)?;
        // The contents first: if that fails, their links remain, and the next removal finds them.
        for path in self.blobs.iter().chain(&self.names) {
            fs::remove_file(path).map_err(Error::io("delete", path))?;
        }
        self.folder.tidy(&self.names);
        Ok(())
    }
}

/// The blobs that only these names link to.
fn unshared(folder: &RepoFolder, blobs: &Path, names: &[PathBuf]) -> BTreeSet<PathBuf> {
    let own =
        |name: &PathBuf| fs::canonicalize(name).ok().filter(|path| path.parent() == Some(blobs) && path.is_file());
    let links = folder.links();
    let others: BTreeSet<PathBuf> =
        links.iter().filter(|(name, _)| !names.contains(name)).filter_map(|(name, _)| own(name)).collect();
    let is_link = |name: &&PathBuf| links.iter().any(|(link, _)| link == *name);
    names.iter().filter(is_link).filter_map(own).filter(|blob| !others.contains(blob)).collect()
}

/// The folder of a model's repository.
fn folder_of(model: &LocalModel, places: &Places) -> Result<RepoFolder> {
    let cache = places.hub.as_deref().filter(|cache| model.path.starts_with(cache));
    let first = cache.and_then(|cache| model.path.strip_prefix(cache).ok()?.components().next());
    let name = first.and_then(|folder| RepoName::of_folder(folder.as_os_str().to_str()?));
    cache.zip(name).map(|(cache, name)| RepoFolder::new(cache, &name)).ok_or_else(|| elsewhere(model))
}

fn refused(model: &LocalModel, found: String) -> Error {
    Error::argument("model to delete", "a model in the Hugging Face cache", format!("`{}`, {found}", model.name))
}

fn elsewhere(model: &LocalModel) -> Error {
    refused(model, format!("which is not in it; delete {}", model.path.display()))
}

/// The error for a model whose folder in the cache is a link to a folder elsewhere.
fn leads_out(model: &LocalModel, folder: Option<PathBuf>) -> Error {
    let folder = folder.as_deref().or(model.path.parent()).unwrap_or(&model.path);
    refused(model, format!("whose folder is a link to {}; delete the files there", folder.display()))
}

/// The error for a model of another program, with the way to delete it there.
fn foreign(model: &LocalModel) -> Error {
    let path = model.path.display();
    refused(
        model,
        match model.source {
            Source::Ollama => format!("which is Ollama's; `ollama rm {}` deletes it", model.name),
            Source::LmStudio => format!("which is LM Studio's; delete it there (My Models), or the file {path}"),
            _ => format!("which is {}'s; delete the file {path}", model.source.name()),
        },
    )
}
