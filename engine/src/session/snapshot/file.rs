//! Snapshots in files: a file is there as a whole, or not at all.

use super::Session;
use crate::cancel::Cancel;
use crate::error::{Error, Result};
use crate::files::{Readers, Replacement};
use std::fs::File;
use std::io::{BufReader, Error as Reason};
use std::path::Path;

impl Session {
    /// Writes a snapshot to a file. It is written to a temporary file in the same folder, which then takes its place, so
    /// that whatever happens meanwhile the file is the one that was there or the new one. What a killed process left of
    /// an earlier attempt is removed.
    ///
    /// # Errors
    /// [`Error::Io`]; as [`Session::snapshot`].
    pub fn save_snapshot(&mut self, path: impl AsRef<Path>) -> Result<()> {
        self.save_snapshot_with(path, &Cancel::default())
    }

    /// Like [`Session::save_snapshot`]. `cancel` stops it, after which the file is the one that was there.
    ///
    /// # Errors
    /// As there, and [`Error::Cancelled`].
    pub fn save_snapshot_with(&mut self, path: impl AsRef<Path>, cancel: &Cancel) -> Result<()> {
        let path = path.as_ref();
        let mut file = Replacement::begin(path, Readers::Usual).map_err(failed("create", path))?;
        self.write_snapshot(&mut file, path, cancel)?;
        file.commit().map_err(failed("write", path))
    }

    /// Makes the session what it was when a snapshot was written to a file, as [`Session::restore`] does. The file is
    /// read twice, a few megabytes at a time.
    ///
    /// # Errors
    /// [`Error::Io`], after which the session is as it was or, if the second reading failed, empty; as
    /// [`Session::restore`].
    pub fn load_snapshot(&mut self, path: impl AsRef<Path>) -> Result<()> {
        self.load_snapshot_with(path, &Cancel::default())
    }

    /// Like [`Session::load_snapshot`]. `cancel` stops it.
    ///
    /// # Errors
    /// As there, and [`Error::Cancelled`], after which the session is as it was or, if the cache was being filled, empty.
    pub fn load_snapshot_with(&mut self, path: impl AsRef<Path>, cancel: &Cancel) -> Result<()> {
        let path = path.as_ref();
        let file = File::open(path).map_err(failed("open", path))?;
        self.read_snapshot(BufReader::new(file), path, cancel)
    }
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(Reason) -> Error {
    move |reason: std::io::Error| Error::Io { action, path: path.into(), reason: reason.into() }
}
