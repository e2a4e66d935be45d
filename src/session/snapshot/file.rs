//! Snapshots in files: a file is there as a whole, or not at all.

use super::Session;
use crate::error::{Error, Result};
use std::fs::{File, OpenOptions, remove_file, rename};
use std::io::{BufReader, Error as Reason};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

impl Session {
    /// Writes a snapshot to a file. It is written beside it and then takes its place, so that whatever happens meanwhile
    /// the file is the one that was there or the new one.
    ///
    /// # Errors
    /// [`Error::Io`]; as [`Session::snapshot`].
    pub fn save_snapshot(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let (path, beside) = (path.as_ref(), beside(path.as_ref()));
        let written = self.write_new(&beside).and_then(|()| rename(&beside, path).map_err(failed("write", path)));
        if written.is_err() {
            let _ = remove_file(&beside); // which may never have come to be
        }
        written
    }

    /// Makes the session what it was when a snapshot was written to a file, as [`Session::restore`] does. The file is
    /// read twice, a few megabytes at a time.
    ///
    /// # Errors
    /// [`Error::Io`], after which the session is as it was or, if the second reading failed, empty; as
    /// [`Session::restore`].
    pub fn load_snapshot(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let file = File::open(path).map_err(failed("open", path))?;
        self.read_snapshot(BufReader::new(file), path)
    }

    fn write_new(&mut self, path: &Path) -> Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).open(path).map_err(failed("create", path))?;
        self.write_snapshot(&mut file, path)?;
        file.sync_all().map_err(failed("write", path))
    }
}

/// A name in the same folder that nobody else uses.
fn beside(path: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}-{}.new", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
    path.with_file_name(name)
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(Reason) -> Error {
    move |reason: std::io::Error| Error::Io { action, path: path.into(), reason: reason.into() }
}
