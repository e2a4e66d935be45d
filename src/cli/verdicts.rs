//! What checks at load found, kept in the user's cache folder: a load looks once, and from then on knows.

use directories::ProjectDirs;
use std::io::Write;
use std::path::{Path, PathBuf};
use wglm::Verdict;

/// Verdicts that are kept, the newest: one for each model on each adapter.
const KEPT: usize = 64;

/// Those that are kept; none where there is no file, or one that cannot be read.
pub fn kept() -> Vec<Verdict> {
    let text = file().and_then(|file| std::fs::read(file).ok());
    text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

/// Keeps a verdict. Where that cannot be, the next load looks again.
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

/// Writes beside the file and renames then, for others read it meanwhile.
fn write(file: &Path, all: &[Verdict]) -> std::io::Result<()> {
    std::fs::create_dir_all(file.parent().unwrap_or(Path::new(".")))?;
    let beside = file.with_extension(format!("{}.tmp", std::process::id()));
    std::fs::File::create(&beside)?.write_all(&serde_json::to_vec_pretty(all)?)?;
    std::fs::rename(beside, file)
}
