//! Snapshots in files, which are written completely or not at all.

use super::Session;
use crate::cancel::Cancel;
use crate::error::{Error, Result};
use crate::files::{Readers, Replacement};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

impl Session {
    /// Writes a snapshot to a file. It is written to a temporary file in the same folder, which then replaces the file,
    /// so that the file is always either the old or the new one. What a killed process left of an earlier attempt is
    /// removed.
    ///
    /// # Errors
    /// [`Error::Io`]; the errors of [`Session::snapshot`].
    pub fn save_snapshot(&mut self, path: impl AsRef<Path>) -> Result<()> {
        self.save_snapshot_with(path, &Cancel::default())
    }

    /// Like [`Session::save_snapshot`]. `cancel` stops it, after which the file is unchanged.
    ///
    /// # Errors
    /// The errors of [`Session::save_snapshot`], and [`Error::Cancelled`].
    pub fn save_snapshot_with(&mut self, path: impl AsRef<Path>, cancel: &Cancel) -> Result<()> {
        self.save_snapshot_for(path.as_ref(), Readers::Usual, cancel)
    }

    /// Like [`Session::save_snapshot_with`], in a file that `readers` can read.
    pub(crate) fn save_snapshot_for(&mut self, path: &Path, readers: Readers, cancel: &Cancel) -> Result<()> {
        let mut file = Replacement::begin(path, readers).map_err(Error::io("create", path))?;
        self.write_snapshot(&mut file, path, cancel)?;
        file.commit().map_err(Error::io("write", path))
    }

    /// Restores a session from a file, like [`Session::restore`]. The file is read twice, a few megabytes at a time.
    ///
    /// # Errors
    /// [`Error::Io`], after which the session is unchanged or, if the second reading failed, empty; as
    /// [`Session::restore`].
    pub fn load_snapshot(&mut self, path: impl AsRef<Path>) -> Result<()> {
        self.load_snapshot_with(path, &Cancel::default())
    }

    /// Like [`Session::load_snapshot`]. `cancel` stops it.
    ///
    /// # Errors
    /// The errors of [`Session::load_snapshot`], and [`Error::Cancelled`], after which the session is unchanged or, if
    /// the cache was being filled, empty.
    pub fn load_snapshot_with(&mut self, path: impl AsRef<Path>, cancel: &Cancel) -> Result<()> {
        self.load_snapshot_for(self.tenant(), path.as_ref(), cancel)
    }

    /// Like [`Session::load_snapshot_with`], for a tenant, to whom the tokens then belong.
    pub(crate) fn load_snapshot_for(&mut self, tenant: u64, path: &Path, cancel: &Cancel) -> Result<()> {
        let file = File::open(path).map_err(Error::io("open", path))?;
        self.read_snapshot(BufReader::new(file), path, tenant, cancel)
    }
}
