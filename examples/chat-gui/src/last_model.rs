//! The model that was used last, which the next window loads.
//!
//! The file says whether loading has finished. A load that failed, or in which the program crashed, is not repeated at
//! the next start, because a model that crashes a driver would do so every time.

use crate::files;
use crate::protocol::Source;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{ErrorKind, Result};
use std::path::PathBuf;

/// The file.
pub struct LastModel {
    path: PathBuf,
    known: Option<Known>,
}

/// The contents of the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Known {
    source: Source,
    context: Option<usize>,
    loaded: bool,
}

impl LastModel {
    /// Reads the file, and returns a message if it is damaged.
    pub fn read(path: PathBuf) -> (Self, Option<String>) {
        let (known, damaged) = files::read_or_put_aside(&path);
        (Self { path, known }, damaged)
    }

    /// The model to load at the start, with its context, or a message about one that is not loaded again.
    pub fn wanted(&self) -> (Option<(Source, Option<usize>)>, Option<String>) {
        match &self.known {
            Some(Known { source, context, loaded: true }) => (Some((source.clone(), *context)), None),
            Some(Known { source, .. }) => {
                let name = source.name();
                let notice = format!(
                    "{name} was not loaded at the start, because loading or tuning it did not finish last time. Open it to try \
                     again."
                );
                (None, Some(notice))
            }
            None => (None, None),
        }
    }

    /// Notes that a load begins.
    ///
    /// # Errors
    /// The errors of the file system.
    pub fn begin(&mut self, source: &Source, context: Option<usize>) -> Result<()> {
        self.known = Some(Known { source: source.clone(), context, loaded: false });
        self.write()
    }

    /// Notes that loading has finished, including a first tuning, or was stopped by closing the window: the next window
    /// loads the model.
    ///
    /// # Errors
    /// The errors of the file system.
    pub fn loaded(&mut self) -> Result<()> {
        match &mut self.known {
            Some(known) if !known.loaded => {
                known.loaded = true;
                self.write()
            }
            _ => Ok(()),
        }
    }

    /// Forgets the model, because the user has unloaded it or was informed that it was not loaded.
    ///
    /// # Errors
    /// The errors of the file system.
    pub fn forget(&mut self) -> Result<()> {
        self.known = None;
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(files::named(&self.path, error)),
            _ => Ok(()),
        }
    }

    fn write(&self) -> Result<()> {
        files::replace(&self.path, &serde_json::to_vec_pretty(&self.known)?)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{LastModel, Source, fs};

    #[test]
    fn a_load_that_did_not_finish_is_reported_and_not_tried_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("last-model.json");
        let read = || LastModel::read(path.clone()).0;
        let model = Source::Model("owner/name:Q4_0".into(), "here.gguf".into());
        assert_eq!(read().wanted(), (None, None));
        let mut last = read();
        last.begin(&model, Some(512)).unwrap();
        let (wanted, notice) = read().wanted();
        assert!(wanted.is_none() && notice.unwrap().starts_with("owner/name:Q4_0 was not loaded at the start"));
        last.loaded().unwrap();
        assert_eq!(read().wanted(), (Some((model, Some(512))), None));
        last.forget().unwrap();
        last.forget().unwrap();
        last.loaded().unwrap();
        assert_eq!((read().wanted(), path.exists()), ((None, None), false));
        fs::write(&path, "?").unwrap();
        assert!(LastModel::read(path.clone()).1.unwrap().contains("last-model.json.damaged"));
    }
}
