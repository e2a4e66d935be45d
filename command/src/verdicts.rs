//! Saves the results of the checks at load in the user's cache folder, so that the kernels are checked only once.

use directories::ProjectDirs;
use std::path::{Path, PathBuf};
use wglm_engine::Verdict;
use wglm_engine::instruments::{Readers, replace};

/// The maximum number of saved verdicts. The newest stay, one for each model on each adapter.
const KEPT: usize = 64;

/// The saved verdicts; none if there is no file or it cannot be read.
pub fn kept() -> Vec<Verdict> {
    let text = file().and_then(|file| std::fs::read(file).ok());
    text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

/// Saves a verdict. If that fails, the next load checks again.
pub fn keep(verdict: &Verdict) {
    let mut all = kept();
    if all.contains(verdict) {
        return;
    }
    all.retain(|other| other.subject() != verdict.subject());
    all.insert(0, verdict.clone());
    all.truncate(KEPT);
    let written = file().map(|file| write(&file, &all));
    if let Some(Err(error)) = written {
        tracing::warn!("the result of the kernel check is not saved: {error}");
    }
}

fn file() -> Option<PathBuf> {
    Some(ProjectDirs::from("", "", "wglm")?.cache_dir().join("verdicts.json"))
}

/// Replaces the file as a whole, because other processes may read it at any time.
fn write(file: &Path, all: &[Verdict]) -> std::io::Result<()> {
    std::fs::create_dir_all(file.parent().unwrap_or(Path::new(".")))?;
    replace(file, &serde_json::to_vec_pretty(all)?, Readers::Usual)
}
