//! Where programs keep the models that they download, as far as the environment says.

use crate::files::read_text;
use std::path::PathBuf;

/// The most bytes of a file that says where a folder is.
const LONGEST_PATH: usize = 16 << 10;

/// The folders in which programs keep models. Those that are not there are looked at for nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// The cache of Hugging Face's programs, which is also where wglm puts what it downloads; `None` if there is no home
    /// folder.
    pub hub: Option<PathBuf>,
    /// LM Studio's models.
    pub lm_studio: Vec<PathBuf>,
    /// What llama.cpp has downloaded.
    pub llama_cpp: Vec<PathBuf>,
    /// Ollama's models.
    pub ollama: Vec<PathBuf>,
}

impl Default for Places {
    /// The folders that the environment variables of these programs name (`HF_HUB_CACHE`, `HF_HOME`, `LLAMA_CACHE`,
    /// `OLLAMA_MODELS`), otherwise the usual ones.
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
        // LM Studio writes down where its home is if that is not the usual one.
        let pointer = below(".lmstudio-home-pointer").and_then(|file| read_text(&file, LONGEST_PATH).ok());
        let pointer = pointer.map(|text| PathBuf::from(text.trim())).filter(|home| !home.as_os_str().is_empty());
        let lm_studio = pointer.or_else(|| below(".lmstudio"));
        let lm_studio = [lm_studio, below(".cache/lm-studio")].into_iter().flatten();
        let ollama = match folder("OLLAMA_MODELS") {
            Some(folder) => vec![folder],
            // The second is that of a service on Linux.
            None => {
                below(".ollama/models").into_iter().chain([PathBuf::from("/usr/share/ollama/.ollama/models")]).collect()
            }
        };
        Self {
            hub,
            lm_studio: lm_studio.map(|home| home.join("models")).collect(),
            llama_cpp: folder("LLAMA_CACHE").or_else(|| Some(own_caches?.join("llama.cpp"))).into_iter().collect(),
            ollama,
        }
    }
}

/// The home folder of Hugging Face's programs.
pub(crate) fn hugging_face() -> Option<PathBuf> {
    let caches = || folder("XDG_CACHE_HOME").or_else(|| Some(home()?.join(".cache")));
    folder("HF_HOME").or_else(|| Some(caches()?.join("huggingface")))
}

/// The value of an environment variable that is set to something.
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

fn home() -> Option<PathBuf> {
    std::env::home_dir().filter(|home| !home.as_os_str().is_empty())
}
