//! The models that are on this machine already, whichever program downloaded them, and their names.
//!
//! Nothing here opens a model: a listing reads a few directories. Unreadable entries are left out, because the folders
//! belong to other programs.

mod hub_cache;
mod names;
mod others;
mod places;

use crate::error::{Error, Result};
use crate::visible::is_obeyed;
use serde::Serialize;
use std::path::PathBuf;

#[cfg(feature = "download")]
pub(crate) use hub_cache::RepoFolder;
#[cfg(feature = "download")]
pub(crate) use names::groups;
pub(crate) use names::is_called;
pub use names::{ModelName, RepoName};
pub use places::Places;
#[cfg(feature = "download")]
pub(crate) use places::{hugging_face, is_on, variable};

/// The program in whose folder a model is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Source {
    /// The cache that Hugging Face's programs, llama.cpp and wglm share.
    HuggingFace,
    /// LM Studio.
    LmStudio,
    /// The former cache of llama.cpp.
    LlamaCpp,
    /// Ollama.
    Ollama,
}

impl Source {
    /// The display name.
    pub fn name(self) -> &'static str {
        match self {
            Self::HuggingFace => "Hugging Face",
            Self::LmStudio => "LM Studio",
            Self::LlamaCpp => "llama.cpp",
            Self::Ollama => "Ollama",
        }
    }
}

/// A model on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LocalModel {
    /// Its name: `OWNER/REPO:QUANT`, or the name that its program uses. For an unfinished download, the repository.
    pub name: String,
    /// The program in whose folder it is.
    pub source: Source,
    /// The file, or the first of several.
    pub path: PathBuf,
    /// The size of all its files in bytes.
    pub bytes: u64,
    /// Whether it is complete: `false` for an unfinished download, or if parts are missing.
    pub whole: bool,
    /// The path of its first file in the repository without its number and extension, which is an alternative name;
    /// empty if the files are named by their contents.
    #[serde(skip)]
    stem: String,
    /// All its files, in order.
    #[serde(skip)]
    #[cfg_attr(not(feature = "download"), allow(dead_code))] // only `download` compares them with hashes
    pub(crate) files: Vec<PathBuf>,
}

impl LocalModel {
    /// Whether this is its name, ignoring case.
    fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }

    /// The name without the label.
    fn repo(&self) -> &str {
        self.name.rsplit_once(':').map_or(&self.name, |(repo, _)| repo)
    }

    /// Whether it belongs to a repository and has this label or a file of this name.
    fn is_called(&self, repo: &str, label: &str) -> bool {
        let own = self.name.rsplit_once(':').map_or("", |(_, label)| label);
        self.repo().eq_ignore_ascii_case(repo) && is_called(label, own, &self.stem)
    }
}

/// The models in the folders of `places`, by name. Models are left out if their names contain characters that control a
/// terminal or make them look like other names.
///
/// ```
/// use wglm::catalog::{Places, local_models};
///
/// for model in local_models(&Places::default()) {
///     println!("{} {} bytes, {}", model.name, model.bytes, model.source.name());
/// }
/// ```
pub fn local_models(places: &Places) -> Vec<LocalModel> {
    let mut found: Vec<LocalModel> = places.hub.iter().flat_map(|folder| hub_cache::models(folder)).collect();
    found.extend(places.lm_studio.iter().flat_map(|folder| others::lm_studio(folder)));
    found.extend(places.llama_cpp.iter().flat_map(|folder| others::llama_cpp(folder)));
    found.extend(places.ollama.iter().flat_map(|folder| others::ollama(folder)));
    found.retain(|model| !model.name.contains(is_obeyed));
    found.sort_by(|a, b| a.name.to_lowercase().cmp(&b.name.to_lowercase()).then_with(|| b.whole.cmp(&a.whole)));
    found
}

/// Finds a model on this machine by its name, ignoring case: as [`local_models`] lists it, with the name of its file as
/// the label, or without a label if only one model matches. Its file can be passed to
/// [`Gguf::open`](crate::gguf::Gguf::open).
///
/// # Errors
/// [`Error::NoModel`] if there is none, or it is incomplete; [`Error::SeveralModels`] if there is more than one.
pub fn find_model(name: &str, places: &Places) -> Result<LocalModel> {
    find_listed(name, &local_models(places)).cloned()
}

/// Finds a model by its name, as [`find_model`] does, in a list that [`local_models`] returned. For programs that look
/// up many names.
///
/// # Errors
/// Those of [`find_model`].
pub fn find_listed<'a>(name: &str, all: &'a [LocalModel]) -> Result<&'a LocalModel> {
    let missing = |found: String, remedy: String| Error::NoModel { name: name.into(), found, remedy };
    // Ollama's names may begin like the address of a hub, so the name is first tried as typed.
    let plain = name.parse::<ModelName>().map_or_else(|_| name.to_owned(), |name| name.to_string());
    let (repo, label) = plain.split_once(':').unwrap_or((&plain, ""));
    let dynamic = format!("UD-{label}");
    let whole = || all.iter().filter(|model| model.whole);
    let found = whole()
        .find(|model| model.is(name))
        .or_else(|| whole().find(|model| model.is(&plain)))
        .or_else(|| whole().find(|model| model.is_called(repo, label)))
        .or_else(|| whole().find(|model| model.is_called(repo, &dynamic)));
    if let Some(model) = found {
        return Ok(model);
    }
    let begins = |model: &LocalModel, name: &str| model.repo().eq_ignore_ascii_case(name);
    for name in [name, &plain] {
        let mut several: Vec<&LocalModel> = whole().filter(|model| begins(model, name)).collect();
        several.dedup_by(|a, b| a.is(&b.name)); // two programs may have the same model
        match several.as_slice() {
            [model] => return Ok(model),
            [] => {}
            several => {
                let names: Vec<&str> = several.iter().map(|model| model.name.as_str()).collect();
                let (count, names) = (several.len(), names.join(", "));
                return Err(Error::SeveralModels { name: name.into(), count, names });
            }
        }
    }
    let is_meant = |model: &LocalModel| {
        [name, &plain].iter().any(|name| model.is(name) || begins(model, name)) || model.is_called(repo, label)
    };
    if all.iter().any(is_meant) {
        return Err(missing("only a part of it".into(), "download the rest".into()));
    }
    let others: Vec<&str> = whole()
        .filter(|model| !label.is_empty() && model.repo().eq_ignore_ascii_case(repo))
        .map(|model| model.name.as_str())
        .collect();
    let found = if others.is_empty() { "nothing".to_owned() } else { others.join(", ") };
    Err(missing(found, "download it, or name the path of a file".into()))
}
