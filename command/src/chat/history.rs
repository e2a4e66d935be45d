//! The history of typed messages, in a file that conversations share. Each message is added to the current contents,
//! and the file is replaced atomically, so that a full disk loses no earlier message.

use directories::ProjectDirs;
use rustyline::history::{FileHistory, History};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use wglm_engine::instruments::{Readers, replace};

/// The number of messages that the history keeps.
pub const KEPT: usize = 1000;

/// The first line of the file, which tells rustyline that line feeds are escaped.
const VERSION: &str = "#V2\n";

/// The file of the history: in the user's state folder, or in the data folder on systems without one.
pub fn file() -> Option<PathBuf> {
    let folders = ProjectDirs::from("", "", "wglm")?;
    Some(folders.state_dir().unwrap_or(folders.data_local_dir()).join("history"))
}

pub fn keep(text: &str, file: &Path) -> anyhow::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    // Other conversations wait meanwhile, if the system can lock a folder. rustyline locks the file itself.
    let _locked = locked(folder);
    let mut history = FileHistory::default();
    history.set_max_len(KEPT)?;
    if file.exists() {
        history.load(file)?;
    }
    history.add(text)?;
    let escaped = |line: &String| line.replace('\\', r"\\").replace('\n', r"\n") + "\n";
    let lines: String = history.iter().map(escaped).collect();
    Ok(replace(file, format!("{VERSION}{lines}").as_bytes(), Readers::Owner)?)
}

fn locked(folder: &Path) -> io::Result<File> {
    let folder = File::open(folder)?;
    folder.lock()?;
    Ok(folder)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::keep;
    use rustyline::history::{FileHistory, History};

    #[test]
    fn messages_are_read_as_they_were_written() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("state/history");
        for text in ["one", r"a\b\n", "two\nlines", "#V2"] {
            keep(text, &file).unwrap();
        }
        let mut history = FileHistory::default();
        history.load(&file).unwrap();
        assert_eq!(history.iter().collect::<Vec<_>>(), ["one", r"a\b\n", "two\nlines", "#V2"]);
    }
}
