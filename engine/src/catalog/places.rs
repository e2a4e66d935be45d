//! The folders in which programs store downloaded models, as far as the environment says.

use crate::files::read_text;
use std::fs;
use std::path::{Path, PathBuf};

/// The maximum size of a file that contains the path of a folder, in bytes.
const LONGEST_PATH: usize = 16 << 10;

/// The maximum size of LM Studio's settings in bytes.
const LONGEST_SETTINGS: usize = 1 << 20;

/// The folders in which programs store models. Folders that do not exist are skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// The Hugging Face cache, which is also where wglm puts what it downloads; `None` if there is no home folder.
    pub hub: Option<PathBuf>,
    /// LM Studio's models.
    pub lm_studio: Vec<PathBuf>,
    /// The models that llama.cpp has downloaded.
    pub llama_cpp: Vec<PathBuf>,
    /// Ollama's models.
    pub ollama: Vec<PathBuf>,
}

impl Default for Places {
    /// The folders that the environment variables of these programs name (`HF_HUB_CACHE`, `HF_HOME`, `LLAMA_CACHE`,
    /// `OLLAMA_MODELS`) and that LM Studio's settings name, otherwise their defaults.
    fn default() -> Self {
        let home = home();
        let below = |path: &str| home.as_ref().map(|home| home.join(path));
        let caches = || folder("XDG_CACHE_HOME").or_else(|| below(".cache"));
        let own_caches = if cfg!(target_os = "macos") {
            below("Library/Caches")
        } else if cfg!(windows) {
            folder("LOCALAPPDATA")
        } else {
            caches()
        };
        let hub = folder("HF_HUB_CACHE").or_else(|| Some(hugging_face()?.join("hub")));
        let ollama = match folder("OLLAMA_MODELS") {
            Some(folder) => vec![folder],
            // The second is the default of a service on Linux.
            None => {
                below(".ollama/models").into_iter().chain([PathBuf::from("/usr/share/ollama/.ollama/models")]).collect()
            }
        };
        Self {
            hub,
            lm_studio: home.as_deref().map(lm_studio).unwrap_or_default(),
            llama_cpp: folder("LLAMA_CACHE").or_else(|| Some(own_caches?.join("llama.cpp"))).into_iter().collect(),
            ollama,
        }
    }
}

/// The folders of LM Studio's models, for the home folder of a user. LM Studio has a home of its own, whose path it
/// stores in a file; the settings there name the folder of the models if the user has moved it. A home or folder that
/// does not exist is listed all the same, since it may be on a removable disk.
fn lm_studio(home: &Path) -> Vec<PathBuf> {
    let pointer = read_text(&home.join(".lmstudio-home-pointer"), LONGEST_PATH).ok();
    let pointer = pointer.as_deref().and_then(|path| named(home, path));
    let homes = pointer.into_iter().chain([home.join(".lmstudio"), home.join(".cache/lm-studio")]);
    let mut folders: Vec<PathBuf> = Vec::new();
    for lm_studio in homes {
        for folder in moved_models(home, &lm_studio).into_iter().chain([lm_studio.join("models")]) {
            // A link to a listed folder is the same folder.
            let same = |other: &PathBuf| {
                *other == folder
                    || fs::canonicalize(other).is_ok_and(|it| fs::canonicalize(&folder).is_ok_and(|of| it == of))
            };
            if !folders.iter().any(same) {
                folders.push(folder);
            }
        }
    }
    folders
}

/// The folder that LM Studio's settings name for its models. Settings that cannot be read name none.
fn moved_models(home: &Path, lm_studio: &Path) -> Option<PathBuf> {
    let text = read_text(&lm_studio.join("settings.json"), LONGEST_SETTINGS).ok()?;
    let settings: serde_json::Value = serde_json::from_str(text.trim_start_matches('\u{feff}')).ok()?;
    named(home, settings["downloadsFolder"].as_str()?)
}

/// The folder that a text names; `~` is the home folder. `None` for a relative path, whose base is unknown, for a whole
/// disk, which takes too long to search, and for a folder of another machine, to which the system would send the user's
/// credentials.
fn named(home: &Path, text: &str) -> Option<PathBuf> {
    let text = text.trim();
    let folder = Path::new(text).strip_prefix("~").map_or_else(|_| PathBuf::from(text), |rest| home.join(rest));
    let is_remote = ["//", r"\\"].iter().any(|start| text.starts_with(start));
    (folder.is_absolute() && folder.parent().is_some() && !is_remote).then_some(folder)
}

/// The home folder of Hugging Face's programs.
pub(crate) fn hugging_face() -> Option<PathBuf> {
    let caches = || folder("XDG_CACHE_HOME").or_else(|| Some(home()?.join(".cache")));
    folder("HF_HOME").or_else(|| Some(caches()?.join("huggingface")))
}

/// The value of an environment variable that is set and not empty.
#[cfg(feature = "download")]
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
}

/// The folder that an environment variable names; `~` is the home folder.
fn folder(name: &str) -> Option<PathBuf> {
    let value = std::env::var_os(name).filter(|value| !value.is_empty())?;
    let path = PathBuf::from(value);
    match path.strip_prefix("~") {
        Ok(rest) => Some(home()?.join(rest)),
        Err(_) => Some(path),
    }
}

/// Whether an environment variable turns something on, as Hugging Face's programs read it.
#[cfg(feature = "download")]
pub(crate) fn is_on(name: &str) -> bool {
    variable(name).is_some_and(|value| ["1", "on", "yes", "true"].iter().any(|on| value.eq_ignore_ascii_case(on)))
}

fn home() -> Option<PathBuf> {
    std::env::home_dir().filter(|home| !home.as_os_str().is_empty())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// The folder of the settings comes first, wherever LM Studio's home is; unreadable files change nothing.
    #[test]
    fn moved_folders_of_lm_studio_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path();
        let usual = [home.join(".lmstudio/models"), home.join(".cache/lm-studio/models")];
        assert_eq!(lm_studio(home), usual);
        let settings = home.join(".lmstudio/settings.json");
        for useless in [
            "",
            "{",
            "[]",
            r#"{"downloadsFolder": 3}"#,
            r#"{"downloadsFolder": " "}"#,
            r#"{"downloadsFolder": "/"}"#,
            r#"{"downloadsFolder": "//host/a"}"#,
        ] {
            write(&settings, useless);
            assert_eq!(lm_studio(home), usual, "{useless}");
        }
        write(&settings, "\u{feff}{\"downloadsFolder\": \"~/big/models\"}");
        assert_eq!(lm_studio(home), [&[home.join("big/models")], &usual[..]].concat());
        let elsewhere = home.join("elsewhere");
        write(&home.join(".lmstudio-home-pointer"), &format!("{}\n", elsewhere.display()));
        let named = home.join("other");
        write(&elsewhere.join("settings.json"), &serde_json::json!({ "downloadsFolder": named }).to_string());
        let all = [&[named, elsewhere.join("models"), home.join("big/models")], &usual[..]].concat();
        assert_eq!(lm_studio(home), all);
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_is_listed_once() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path();
        fs::create_dir_all(home.join("disk")).unwrap();
        fs::create_dir_all(home.join(".lmstudio")).unwrap();
        std::os::unix::fs::symlink(home.join("disk"), home.join(".lmstudio/models")).unwrap();
        write(&home.join(".lmstudio/settings.json"), r#"{"downloadsFolder": "~/disk"}"#);
        assert_eq!(lm_studio(home), [home.join("disk"), home.join(".cache/lm-studio/models")]);
    }
}
