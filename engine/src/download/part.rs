//! A file during its download. It only grows at its end, so its size is the number of bytes received. Its writer holds
//! its lock until it is renamed or deleted, so no two programs write it.

use super::RemoteFile;
use super::hash::Hash;
use crate::error::{Error, ErrorKind, Result};
use crate::files::{self, Links};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// The bytes that are read at a time to hash them.
const BLOCK: usize = 1 << 20;

/// The beginning of a file, and later pieces that have arrived.
pub(super) struct PartFile {
    file: File,
    path: PathBuf,
    hash: Hash,
    /// The bytes in the file.
    written: u64,
    /// Pieces at later positions.
    ahead: BTreeMap<u64, Vec<u8>>,
}

impl PartFile {
    /// Opens the part of an earlier download, or begins a new one, and hashes its bytes. `check_stop` receives their
    /// number so far.
    pub fn open(path: PathBuf, wanted: &RemoteFile, check_stop: &mut dyn FnMut(u64) -> Result<()>) -> Result<Self> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
        }
        let file = locked(&path, true)?;
        let mut part =
            Self { file, path, hash: Hash::new(wanted.bytes, wanted.id()), written: 0, ahead: BTreeMap::new() };
        match part.read(wanted.bytes, check_stop) {
            Ok(()) => Ok(part),
            Err(error) => {
                let _ = part.keep(); // the first error is more informative
                Err(error)
            }
        }
    }

    /// Hashes the bytes in the file.
    fn read(&mut self, bytes: u64, check_stop: &mut dyn FnMut(u64) -> Result<()>) -> Result<()> {
        let mut block = vec![0; BLOCK];
        let mut there = self.file.metadata().map_err(Error::io("read", &self.path))?.len();
        if there > bytes {
            self.file.set_len(0).map_err(Error::io("write", &self.path))?;
            there = 0;
        }
        while self.written < there {
            check_stop(self.written)?;
            match self.file.read(&mut block) {
                Ok(0) => break,
                Ok(count) => {
                    self.hash.update(&block[..count]);
                    self.written += count as u64;
                }
                Err(reason) if reason.kind() == io::ErrorKind::Interrupted => {}
                Err(reason) => return Err(Error::io("read", &self.path)(reason)),
            }
        }
        check_stop(self.written)
    }

    /// The bytes written so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Takes bytes at a position, and writes all pieces that now continue the file.
    pub fn put(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        if at != self.written {
            self.ahead.entry(at).or_insert_with(|| bytes.to_vec());
            return Ok(());
        }
        self.append(bytes)?;
        while let Some(next) = self.ahead.remove(&self.written) {
            self.append(&next)?;
        }
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        if let Err(reason) = self.file.write_all(bytes) {
            // The bytes that were written stay for the next download, but this hash lacks them.
            return Err(Error::io("write", &self.path)(reason));
        }
        self.hash.update(bytes);
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Leaves the file for another download, or deletes it if it is empty.
    pub fn keep(self) -> Result<()> {
        if self.written == 0 && self.file.metadata().is_ok_and(|about| about.len() == 0) {
            self.discard();
            return Ok(());
        }
        self.file.sync_data().map_err(Error::io("write", &self.path))
    }

    /// Deletes the file, whose contents are useless.
    pub fn discard(self) {
        let Self { file, path, .. } = self;
        let _ = fs::remove_file(path); // if it stays, the next check finds it wrong again
        drop(file);
    }

    /// Checks the whole file and renames it. A wrong file is deleted. `sha256` is the hash that the hub listed, or sent
    /// with the file.
    pub fn finish(self, wanted: &RemoteFile, sha256: Option<&str>, name: &Path) -> Result<()> {
        if self.written != wanted.bytes {
            let reason = format!("only {} of {} bytes arrived", self.written, wanted.bytes);
            self.keep()?;
            let (remedy, kind) = ("try again later; the download will resume".into(), ErrorKind::Network);
            return Err(Error::Download { what: wanted.path.clone(), reason, remedy, kind });
        }
        let listed = sha256.unwrap_or(wanted.id());
        if let Some(found) = self.hash.other_than(listed) {
            self.discard();
            return Err(Error::Download {
                what: wanted.path.clone(),
                reason: format!("{found}, but the hub lists {listed}; it was deleted"),
                remedy: "download it again, over another network if that fails too".into(),
                kind: ErrorKind::Network,
            });
        }
        self.file.sync_all().map_err(Error::io("write", &self.path))?;
        let Self { file, path, .. } = self;
        let held = Some(file).filter(|_| !cfg!(windows)); // Windows renames no open file
        let renamed = fs::rename(&path, name).map_err(Error::io("write", name));
        drop(held);
        renamed
    }
}

/// Opens a part with an exclusive lock, and creates it if `create`.
fn locked(path: &Path, create: bool) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(create).truncate(false);
    let file = files::open(path, &mut options, Links::Refused).map_err(Error::io("write", path))?;
    // On a file system without locks, do without.
    if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) || !is_at(&file, path) {
        return Err(Error::Download {
            what: path.display().to_string(),
            reason: "another program is downloading it".into(),
            remedy: "wait until it has finished, or stop it".into(),
            kind: ErrorKind::Busy,
        });
    }
    Ok(file)
}

/// Deletes the parts that exist, or none if another program is writing one of them.
pub(super) fn remove(paths: impl IntoIterator<Item = PathBuf>) -> Result<()> {
    // Each once, since a second lock of the same file would conflict with the first.
    let there: BTreeSet<PathBuf> = paths.into_iter().filter(|path| path.symlink_metadata().is_ok()).collect();
    let locked = there.into_iter().map(|path| Ok((locked(&path, false)?, path))).collect::<Result<Vec<_>>>()?;
    for (file, path) in locked {
        let held = Some(file).filter(|_| !cfg!(windows)); // Windows deletes no open file
        fs::remove_file(&path).map_err(Error::io("delete", &path))?;
        drop(held);
    }
    Ok(())
}

/// Whether an open file still has this name: another program may have renamed it before it released the lock.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let number = |about: fs::Metadata| (about.dev(), about.ino());
    let (own, named) = (file.metadata().map(number), fs::symlink_metadata(path).map(number));
    own.is_ok_and(|own| named.is_ok_and(|named| named == own))
}

#[cfg(not(unix))]
fn is_at(_: &File, path: &Path) -> bool {
    path.exists()
}

#[cfg(all(test, target_os = "linux"))]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;

    /// `/dev/full` represents a full disk.
    #[test]
    fn a_full_disk_is_reported() {
        let path = PathBuf::from("/dev/full");
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        let mut part = PartFile { file, path, hash: Hash::new(4, ""), written: 0, ahead: BTreeMap::new() };
        let error = part.put(0, b"text").unwrap_err();
        let Error::Io { action, reason, .. } = &error else { panic!("{error}") };
        assert_eq!((*action, reason.kind()), ("write", io::ErrorKind::StorageFull), "{error}");
        assert_eq!(part.written(), 0);
    }
}
