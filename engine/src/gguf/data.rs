//! The bytes of a file, which come from the file system, from the program itself, or from memory.
//!
//! A file is read and not mapped, because another program may cut it short at any time. A read then returns an error,
//! whereas touching a missing page of a map would end the process. A map exists only for callers who ask for one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::SystemTime;

use memmap2::Mmap;

use crate::error::{Error, Result};
use crate::files::{self, Links};

/// The bytes of a file, wherever they are.
pub(super) enum Data {
    File(Disk),
    Static(&'static [u8]),
    Owned(Vec<u8>),
    Remote(Remote),
}

/// A file that is not on this machine; only its header was read.
pub(super) struct Remote {
    pub path: PathBuf,
    pub bytes: usize,
}

/// An open file.
pub(super) struct Disk {
    file: fs::File,
    path: PathBuf,
    /// The size of the file and its time of modification when it was opened.
    bytes: usize,
    modified: Option<SystemTime>,
    /// The map of the file, created when it is first requested; `None` if the system refused.
    map: OnceLock<Option<Mmap>>,
}

impl Data {
    /// Opens a regular file.
    pub fn open(path: &Path) -> Result<Self> {
        let failed = Error::io("open", path);
        let opened = files::open(path, fs::OpenOptions::new().read(true), Links::Followed);
        let file = opened.map_err(&failed)?;
        let about = file.metadata().map_err(&failed)?;
        let too_large = |_| failed(io::Error::other("it is larger than this system can address"));
        let (bytes, modified) = (usize::try_from(about.len()).map_err(too_large)?, about.modified().ok());
        Ok(Self::File(Disk { file, path: path.into(), bytes, modified, map: OnceLock::new() }))
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::File(disk) => disk.bytes,
            Self::Static(bytes) => bytes.len(),
            Self::Owned(bytes) => bytes.len(),
            Self::Remote(file) => file.bytes,
        }
    }

    /// All bytes, unless they are in a file or elsewhere.
    pub fn in_memory(&self) -> Option<&[u8]> {
        match self {
            Self::File(_) | Self::Remote(_) => None,
            Self::Static(bytes) => Some(bytes),
            Self::Owned(bytes) => Some(bytes),
        }
    }

    fn disk(&self) -> Option<&Disk> {
        if let Self::File(disk) = self { Some(disk) } else { None }
    }

    /// The path, if the bytes are in a file, here or elsewhere.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::File(disk) => Some(&disk.path),
            Self::Remote(file) => Some(&file.path),
            _ => None,
        }
    }

    /// Reads bytes, beginning at `at`.
    pub fn read(&self, at: usize, into: &mut [u8]) -> Result<()> {
        if matches!(self, Self::Remote(_)) {
            return Err(self.unreadable(io::Error::other(
                "only the header of this file was downloaded; download the whole file first",
            )));
        }
        let Some(disk) = self.disk() else {
            let bytes = self.in_memory().and_then(|bytes| bytes.get(at..)?.get(..into.len()));
            into.copy_from_slice(bytes.ok_or_else(|| self.cut_short())?);
            return Ok(());
        };
        read_exact_at(&disk.file, into, at as u64).map_err(|reason| match reason.kind() {
            io::ErrorKind::UnexpectedEof => self.cut_short(),
            _ => self.unreadable(reason),
        })
    }

    /// Announces that bytes will be read soon, so that the system fetches them from storage in requests as large as the
    /// range.
    pub fn expect(&self, at: usize, count: usize) {
        #[cfg(target_os = "linux")]
        if let (Some(disk), Some(count)) = (self.disk(), std::num::NonZeroU64::new(count as u64)) {
            // This is advice only: if it fails, the bytes are fetched when they are read.
            let _ = rustix::fs::fadvise(&disk.file, at as u64, Some(count), rustix::fs::Advice::WillNeed);
        }
        #[cfg(not(target_os = "linux"))]
        let _ = (at, count);
    }

    /// Returns an error if the file was written to since it was opened.
    pub fn unchanged(&self) -> Result<()> {
        let Some(disk) = self.disk() else { return Ok(()) };
        let about = disk.file.metadata().map_err(|reason| self.unreadable(reason))?;
        if about.len() < disk.bytes as u64 {
            return Err(self.cut_short());
        }
        if about.len() == disk.bytes as u64 && about.modified().ok() == disk.modified {
            return Ok(());
        }
        Err(self.unreadable(io::Error::other("it changed after it was opened; open it again once it is complete")))
    }

    fn cut_short(&self) -> Error {
        let reason = "it was cut short after it was opened; open it again once it is complete";
        self.unreadable(io::Error::new(io::ErrorKind::UnexpectedEof, reason))
    }

    fn unreadable(&self, reason: io::Error) -> Error {
        Error::io("read", self.path().unwrap_or(Path::new("a file in memory")))(reason)
    }

    /// The memory map of the file; `None` if the bytes are not in a file or the system refuses.
    pub fn map(&self) -> Option<&[u8]> {
        let disk = self.disk()?;
        // SAFETY: the map is read-only and private to this value. No other program must write to the file while it is
        // mapped, which cannot be enforced: the option to use weights in place documents it.
        let map = disk.map.get_or_init(|| unsafe { Mmap::map(&disk.file) }.ok());
        map.as_deref()
    }
}

#[cfg(unix)]
fn read_exact_at(file: &fs::File, into: &mut [u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, into, at)
}

#[cfg(windows)]
fn read_exact_at(file: &fs::File, mut into: &mut [u8], mut at: u64) -> io::Result<()> {
    while !into.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, into, at) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => (into, at) = (&mut into[count..], at + count as u64),
            Err(reason) if reason.kind() == io::ErrorKind::Interrupted => {}
            Err(reason) => return Err(reason),
        }
    }
    Ok(())
}
