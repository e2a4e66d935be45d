//! The models that are on this machine already, whichever program downloaded them, and their names.
//!
//! Nothing here opens a model: a listing costs a few directories. What is not readable is left out, because the folders
//! belong to other programs.

mod hub_cache;
mod names;
mod others;
mod places;

use crate::error::{Error, Result};
use serde::Serialize;
use std::path::PathBuf;

#[cfg(feature = "download")]
pub(crate) use hub_cache::RepoFolder;
#[cfg(feature = "download")]
pub(crate) use names::{Group, groups};
pub use names::{ModelName, RepoName};
pub use places::Places;
#[cfg(feature = "download")]
pub(crate) use places::{hugging_face, variable};

/// Whose folder a model is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Source {
    /// The cache that Hugging Face's programs, llama.cpp and wglm share.
    HuggingFace,
    /// LM Studio.
    LmStudio,
    /// The cache that llama.cpp had before.
    LlamaCpp,
    /// Ollama.
    Ollama,
}

impl Source {
    /// The name for people.
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
    /// What to call it: `OWNER/REPO:QUANT`, or as the program calls it whose folder it is in. For an unfinished download,
    /// the repository.
    pub name: String,
    /// Whose folder it is in.
    pub source: Source,
    /// The file, or the first of several.
    pub path: PathBuf,
    /// The size of all its files in bytes.
    pub bytes: u64,
    /// Whether all of it is there: `false` for an unfinished download, and where parts are missing.
    pub whole: bool,
}

/// The models in the folders of `places`, by name.
///
/// ```
/// for model in wglm::local_models(&wglm::Places::default()) {
///     println!("{} {} bytes, {}", model.name, model.bytes, model.source.name());
/// }
/// ```
pub fn local_models(places: &Places) -> Vec<LocalModel> {
    let mut found: Vec<LocalModel> = places.hub.iter().flat_map(|folder| hub_cache::models(folder)).collect();
    found.extend(places.lm_studio.iter().flat_map(|folder| others::lm_studio(folder)));
    found.extend(places.llama_cpp.iter().flat_map(|folder| others::llama_cpp(folder)));
    found.extend(places.ollama.iter().flat_map(|folder| others::ollama(folder)));
    found.sort_by(|a, b| a.name.to_lowercase().cmp(&b.name.to_lowercase()).then_with(|| b.whole.cmp(&a.whole)));
    found
}

/// Finds a model on this machine by its name, in whichever letters: as [`local_models`] lists it, or without its label if
/// only one model begins so. Its file can be given to [`Gguf::open`](crate::gguf::Gguf::open).
///
/// # Errors
/// [`Error::NoModel`] if there is none or more than one, or not all of it.
pub fn find_model(name: &str, places: &Places) -> Result<LocalModel> {
    let all = local_models(places);
    let wanted = name.parse::<ModelName>().map_or_else(|_| name.to_owned(), |name| name.to_string());
    let is = |model: &&LocalModel| model.name.eq_ignore_ascii_case(&wanted);
    let begins = |model: &&LocalModel| {
        let rest = model.name.get(wanted.len()..).filter(|_| model.name.is_char_boundary(wanted.len()));
        rest.is_some_and(|rest| rest.starts_with(':') && model.name[..wanted.len()].eq_ignore_ascii_case(&wanted))
    };
    let missing = |found: String, remedy: String| Error::NoModel { name: name.into(), found, remedy };
    if let Some(model) = all.iter().find(|model| is(model) && model.whole) {
        return Ok(model.clone());
    }
    let dynamic = wanted.split_once(':').map(|(repo, label)| format!("{repo}:UD-{label}"));
    let is_dynamic = |model: &&LocalModel| dynamic.as_ref().is_some_and(|name| model.name.eq_ignore_ascii_case(name));
    if let Some(model) = all.iter().find(|model| is_dynamic(model) && model.whole) {
        return Ok(model.clone());
    }
    let several: Vec<&LocalModel> = all.iter().filter(|model| begins(model) && model.whole).collect();
    match several.as_slice() {
        [model] => return Ok((*model).clone()),
        [] => {}
        several => {
            let names: Vec<&str> = several.iter().map(|model| model.name.as_str()).collect();
            return Err(missing(
                format!("{} of that name", several.len()),
                format!("name one of {}", names.join(", ")),
            ));
        }
    }
    if all.iter().any(|model| is(&model) || begins(&model)) {
        return Err(missing("only a part of it".into(), "download the rest".into()));
    }
    let label = wanted.split_once(':').map_or("", |(repo, _)| repo);
    let others: Vec<&str> = all
        .iter()
        .filter(|model| {
            model.whole && model.name.split(':').next().is_some_and(|repo| repo.eq_ignore_ascii_case(label))
        })
        .map(|model| model.name.as_str())
        .collect();
    let found = if others.is_empty() { "nothing".to_owned() } else { others.join(", ") };
    Err(missing(found, "download it, or name the path of a file".into()))
}
