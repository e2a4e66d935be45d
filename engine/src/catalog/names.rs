//! Names of repositories, and of the models in them, as their files are named.
//!
//! A repository holds the same model in several formats: a file for each, or several parts of one
//! (`NAME-00001-of-00003.gguf`). Authors put the format at the end of the file's name, and users put it after a colon,
//! as for llama.cpp and Ollama: `OWNER/REPO:Q4_K_M`.

use crate::error::{Error, Result};
use crate::visible::is_obeyed;
use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

/// A repository: `OWNER/REPO`. Both parts are safe as names of folders.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RepoName {
    owner: String,
    repo: String,
}

/// A repository, and optionally one of its models: `OWNER/REPO` or `OWNER/REPO:Q4_0`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelName {
    /// The repository.
    pub repo: RepoName,
    /// The model's label, or the name of its file.
    pub label: Option<String>,
}

impl RepoName {
    fn new(owner: &str, repo: &str) -> Option<Self> {
        let sound = |part: &str| {
            let letters = part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
            letters && !part.is_empty() && part.len() <= 96 && !part.starts_with('.') && !part.contains("--")
        };
        (sound(owner) && sound(repo)).then(|| Self { owner: owner.into(), repo: repo.into() })
    }

    /// The folder of the repository in a cache of Hugging Face's layout.
    pub(crate) fn folder(&self) -> String {
        format!("models--{}--{}", self.owner, self.repo)
    }

    /// The repository that a folder of such a cache belongs to.
    pub(crate) fn of_folder(folder: &str) -> Option<Self> {
        let (owner, repo) = folder.strip_prefix("models--")?.split_once("--")?;
        Self::new(owner, repo)
    }
}

impl fmt::Display for RepoName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.owner, self.repo)
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { repo, label } = self;
        match label {
            Some(label) => write!(f, "{repo}:{label}"),
            None => write!(f, "{repo}"),
        }
    }
}

impl FromStr for ModelName {
    type Err = Error;

    /// Parses a name. The address of a repository's page is accepted too.
    fn from_str(text: &str) -> Result<Self> {
        let wrong = || Error::argument("model name", "OWNER/REPO or OWNER/REPO:QUANT", format!("`{text}`"));
        let bare = text.strip_prefix("https://").unwrap_or(text);
        let bare = ["huggingface.co/", "hf.co/"].iter().find_map(|host| bare.strip_prefix(host)).unwrap_or(bare);
        let (name, label) = bare.split_once(':').map_or((bare, None), |(name, label)| (name, Some(label)));
        let (owner, repo) = name.trim_end_matches('/').split_once('/').ok_or_else(wrong)?;
        let repo = RepoName::new(owner, repo).ok_or_else(wrong)?;
        let label =
            label.map(|label| if label.is_empty() { Err(wrong()) } else { Ok(label.to_owned()) }).transpose()?;
        Ok(Self { repo, label })
    }
}

/// The files of one model, as indices into the list they were found in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    /// The name of the format, or the name of the file if the format does not identify the model.
    pub label: String,
    /// The path of the first file without its number and extension.
    pub stem: String,
    /// The files in order.
    pub parts: Vec<usize>,
    /// How many parts there should be.
    pub count: usize,
}

impl Group {
    /// Whether no part is missing.
    pub fn is_whole(&self) -> bool {
        self.parts.len() == self.count
    }
}

/// Whether `name`, a label or the name of a file, means the model with this label and stem, ignoring case.
pub(crate) fn is_called(name: &str, label: &str, stem: &str) -> bool {
    let name = name.strip_suffix(".gguf").unwrap_or(name);
    let name = split_part(name).map_or(name, |(stem, ..)| stem);
    let file = stem.rsplit('/').next().unwrap_or_default();
    !name.is_empty() && [label, stem, file].iter().any(|own| own.eq_ignore_ascii_case(name))
}

/// The models among files, by their paths with `/`, in the order of their labels. Image projectors and importance
/// matrices, which are GGUF files too, are left out.
pub(crate) fn groups(paths: &[&str]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    // The index of the group for a stem and a number of parts: a list may have very many files.
    let mut places: HashMap<(&str, usize), usize> = HashMap::new();
    let mut sorted: Vec<(usize, &str)> = paths.iter().copied().enumerate().collect();
    sorted.sort_unstable_by_key(|(_, path)| *path);
    for (index, path) in sorted {
        let file = path.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
        let Some(name) = path.strip_suffix(".gguf").filter(|_| is_safe(path)) else { continue };
        if file.starts_with("mmproj") || file.contains("imatrix") {
            continue;
        }
        let (stem, number, count) = split_part(name).unwrap_or((name, 1, 1));
        let place = *places.entry((stem, count)).or_insert_with(|| {
            groups.push(Group { label: label(stem), stem: stem.into(), parts: Vec::new(), count });
            groups.len() - 1
        });
        // If an earlier part is missing, the model stays incomplete.
        if number == groups[place].parts.len() + 1 {
            groups[place].parts.push(index);
        }
    }
    let mut labels: HashMap<String, usize> = HashMap::new();
    let mut stems: HashMap<String, usize> = HashMap::new();
    for group in &groups {
        *labels.entry(group.label.clone()).or_default() += 1;
        *stems.entry(group.stem.clone()).or_default() += 1;
    }
    for group in &mut groups {
        if labels[&group.label] > 1 {
            group.label.clone_from(&group.stem);
            // A repository may have a model both in one file and in parts.
            if group.count > 1 && stems[&group.stem] > 1 {
                group.label = format!("{}-of-{:05}", group.stem, group.count);
            }
        }
    }
    groups
}

/// Whether a path, joined to a folder, stays below it on any system, one level per part, and contains only characters
/// that display as themselves.
fn is_safe(path: &str) -> bool {
    let plain = path.split('/').all(|part| !matches!(part, "" | "." | ".."));
    plain && !path.contains(|c: char| matches!(c, '\\' | ':') || c.is_control() || is_obeyed(c))
}

/// The name, the number of a part, and the count of parts in `NAME-00001-of-00003`.
fn split_part(name: &str) -> Option<(&str, usize, usize)> {
    let (rest, count) = name.rsplit_once("-of-")?;
    let (stem, number) = rest.rsplit_once('-')?;
    let digits = |text: &str| (text.len() == 5).then(|| text.parse::<usize>().ok()).flatten();
    let (number, count) = (digits(number)?, digits(count)?);
    (number >= 1 && number <= count).then_some((stem, number, count))
}

/// The name of the format at the end of a file's name, in capital letters; the whole name if there is none.
fn label(stem: &str) -> String {
    let file = stem.rsplit('/').next().unwrap_or(stem);
    let (before, last) = file.rfind(['-', '.']).map_or(("", file), |at| (&file[..at], &file[at + 1..]));
    if !is_format(last) {
        return file.to_owned();
    }
    // Unsloth's dynamic formats have this prefix.
    let dynamic =
        before.len() >= 3 && before.get(before.len() - 3..).is_some_and(|end| end.eq_ignore_ascii_case("-ud"));
    format!("{}{}", if dynamic { "UD-" } else { "" }, last.to_ascii_uppercase())
}

/// Whether a word is the name of a format: letters that formats begin with, then a number.
fn is_format(word: &str) -> bool {
    let letters: String = word.chars().take_while(char::is_ascii_alphabetic).collect();
    let number = word[letters.len()..].starts_with(|c: char| c.is_ascii_digit());
    number && ["Q", "IQ", "TQ", "F", "BF", "FP", "MXFP", "NVFP"].contains(&letters.to_ascii_uppercase().as_str())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_printed() {
        for (text, printed) in [
            ("unsloth/GLM-4.7-Flash-GGUF", "unsloth/GLM-4.7-Flash-GGUF"),
            ("a/b:Q4_0", "a/b:Q4_0"),
            ("https://huggingface.co/a/b", "a/b"),
            ("hf.co/a/b:UD-Q2_K_XL", "a/b:UD-Q2_K_XL"),
            ("a/b:sub/name.gguf", "a/b:sub/name.gguf"),
        ] {
            assert_eq!(text.parse::<ModelName>().unwrap().to_string(), printed);
        }
        for text in ["", "a", "a/", "/b", "a/b/c", "../b", "a/..", "a/b:", "a b/c", "a/b--c", "a/.git", "ä/b"] {
            assert!(text.parse::<ModelName>().is_err(), "{text}");
        }
        let repo = "a/b.c".parse::<ModelName>().unwrap().repo;
        assert_eq!(RepoName::of_folder(&repo.folder()), Some(repo));
    }

    #[test]
    fn files_are_grouped_into_models() {
        let files = [
            "README.md",
            "GLM-4.7-Flash-Q4_K_M.gguf",
            "GLM-4.7-Flash-UD-Q2_K_XL.gguf",
            "BF16/GLM-4.7-Flash-BF16-00002-of-00002.gguf",
            "BF16/GLM-4.7-Flash-BF16-00001-of-00002.gguf",
            "mmproj-F16.gguf",
            "imatrix_unsloth.gguf",
            "glm.iq4_xs.gguf",
            "a-Q6_K-00002-of-00002.gguf",
            "../b-Q6_K.gguf",
            "model.gguf",
            "a//x-Q3_K.gguf",
            "a/./x-Q3_K.gguf",
            "/x-Q3_K.gguf",
            "c:/x-Q3_K.gguf",
            "x\u{1b}]0;title\u{7}-Q3_K.gguf",
            "x\u{9b}31m-Q3_K.gguf",
            "x\u{202e}fugg.K_3Q-Q3_K.gguf",
        ];
        let found: Vec<(String, Vec<usize>, bool)> = groups(&files)
            .into_iter()
            .map(|group| (group.label.clone(), group.parts.clone(), group.is_whole()))
            .collect();
        let wanted = [
            ("BF16", vec![4, 3], true),
            ("Q4_K_M", vec![1], true),
            ("UD-Q2_K_XL", vec![2], true),
            ("Q6_K", vec![], false),
            ("IQ4_XS", vec![7], true),
            ("model", vec![10], true),
        ];
        assert_eq!(found, wanted.map(|(label, parts, whole)| (label.to_owned(), parts, whole)));
    }

    #[test]
    fn a_model_is_called_by_its_label_or_its_file() {
        let group = &groups(&["BF16/glm-BF16-00001-of-00002.gguf", "BF16/glm-BF16-00002-of-00002.gguf"])[0];
        for name in ["bF16", "BF16/glm-BF16", "glm-BF16-00001-of-00002.gguf", "glm-bf16.gguf"] {
            assert!(is_called(name, &group.label, &group.stem), "{name}");
        }
        for name in ["Q4_0", "glm", "", ".gguf"] {
            assert!(!is_called(name, &group.label, &group.stem), "{name}");
        }
        assert!(!is_called(".gguf", "latest", ""), "a model without files of its own");
    }

    /// Two models of the same format are distinguished by the names of their files.
    #[test]
    fn labels_are_unique() {
        let groups = groups(&["a-Q4_0.gguf", "b-Q4_0.gguf", "c-Q8_0.gguf"]);
        assert_eq!(groups.iter().map(|g| g.label.as_str()).collect::<Vec<_>>(), ["a-Q4_0", "b-Q4_0", "Q8_0"]);
        let files = ["x-Q4_0.gguf", "x-Q4_0-00001-of-00002.gguf", "x-Q4_0-00002-of-00002.gguf"];
        let groups = super::groups(&files);
        assert_eq!(groups.iter().map(|g| g.label.as_str()).collect::<Vec<_>>(), ["x-Q4_0-of-00002", "x-Q4_0"]);
        assert!(!is_called("x-Q4_0-of-00002", &groups[1].label, &groups[1].stem));
    }
}
