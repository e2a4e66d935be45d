//! Where a file's bytes come from: a read-only map, the program itself, or memory.

use std::fs;
use std::io;
use std::ops::Range;
use std::path::Path;

use memmap2::Mmap;

use crate::error::{Error, Result};

/// The bytes of a file, for as long as they are needed.
pub(super) enum Data {
    Mapped(Mmap),
    Static(&'static [u8]),
    Owned(Vec<u8>),
}

impl Data {
    /// Maps a file. Asks what the path is before opening it, because opening a pipe waits for its writer.
    pub fn map(path: &Path) -> Result<Self> {
        let failed = |action| move |reason: io::Error| Error::Io { action, path: path.into(), reason: reason.into() };
        let about = fs::metadata(path).map_err(failed("open"))?;
        if about.is_dir() {
            return Err(failed("open")(io::ErrorKind::IsADirectory.into()));
        }
        if !about.is_file() {
            return Err(failed("map")(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")));
        }
        let file = fs::File::open(path).map_err(failed("open"))?;
        // SAFETY: the map is read-only and private to this value. What cannot be had is a promise that no
        // other program writes to the file meanwhile; `Gguf::open` asks for it, and nothing here relies on
        // bytes read twice being the same for staying in bounds.
        let map = unsafe { Mmap::map(&file) }.map_err(failed("map"))?;
        Ok(Self::Mapped(map))
    }

    pub fn is_mapped(&self) -> bool {
        matches!(self, Self::Mapped(_))
    }

    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Static(bytes) => bytes,
            Self::Owned(bytes) => bytes,
        }
    }

    /// Brings bytes of a map into memory: from storage, if they are not there, in requests as large as the range,
    /// and into the page table in one go, where touching them would fault every few pages. Advice may fail; then the
    /// bytes come when they are touched.
    pub fn populate(&self, range: Range<usize>) {
        let (Self::Mapped(map), false) = (self, range.is_empty()) else { return };
        advise(map, range);
    }
}

#[cfg(unix)]
fn advise(map: &Mmap, range: Range<usize>) {
    use memmap2::Advice;
    let _ = map.advise_range(Advice::WillNeed, range.start, range.len());
    #[cfg(target_os = "linux")]
    let _ = map.advise_range(Advice::PopulateRead, range.start, range.len());
}

#[cfg(not(unix))]
fn advise(_: &Mmap, _: Range<usize>) {}
