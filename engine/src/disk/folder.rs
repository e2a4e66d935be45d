//! The folder of a disk cache: who may open it, and which of its files go when it is full.
//!
//! The time of a file's last change says when the page was last used. Of a conversation, the pages at its end count as
//! used a little earlier than those before them, because a page is of no use without those before it.

use super::page::{self, PageName};
use crate::error::{Error, Result};
use crate::files::{self, Links, Readers, Replacement};
use std::collections::{HashSet, VecDeque};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The file that is locked by whoever writes.
const LOCK: &str = "lock";

/// How much earlier than the page before it a page counts as used.
const EARLIER: Duration = Duration::from_millis(1);

pub struct Folder {
    path: PathBuf,
    most: u64,
}

/// The files of a folder, while no other process writes to it. On a file system without locks another one may; then
/// both together may exceed the limit by what one of them writes for a conversation.
pub struct Files<'a> {
    folder: &'a Folder,
    /// The pages that may be removed, those that were unused for longest first.
    pages: VecDeque<Page>,
    bytes: u64,
    removed: usize,
    _lock: Option<File>,
}

struct Page {
    name: PageName,
    bytes: u64,
    used: SystemTime,
}

/// The outcome of writing a page.
pub enum Written {
    Now,
    /// It was there.
    Before,
    /// There is no place for it beside the pages of the same conversation.
    NoPlace,
}

impl Folder {
    /// Opens a folder, or creates it.
    ///
    /// # Errors
    /// As for [`DiskCache::open`](super::DiskCache::open).
    pub fn open(path: &Path, most: u64) -> Result<Self> {
        create(path).map_err(Error::io("create", path))?;
        make_private(path)?;
        Ok(Self { path: path.into(), most })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn most(&self) -> u64 {
        self.most
    }

    fn file(&self, name: PageName) -> PathBuf {
        self.path.join(name.file())
    }

    /// Whether a page is there.
    pub fn has(&self, name: PageName) -> bool {
        fs::symlink_metadata(self.file(name)).is_ok_and(|about| about.is_file())
    }

    /// Reads a page. `None` if it is not there.
    ///
    /// # Errors
    /// The system's, and one for a damaged page. Its file is removed.
    pub fn read(&self, name: PageName, bytes: u64) -> io::Result<Option<Vec<u8>>> {
        let path = self.file(name);
        let file = match files::open(&path, OpenOptions::new().read(true), Links::Refused) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        page::read(&mut &file, name, bytes).map(Some).map_err(|reason| {
            if let ErrorKind::InvalidData | ErrorKind::UnexpectedEof = reason.kind() {
                drop(file);
                let _ = fs::remove_file(&path);
            }
            io::Error::new(reason.kind(), format!("{}: {reason}", path.display()))
        })
    }

    /// Waits until no other process writes to the folder, and lists its files.
    pub fn lock(&self) -> Files<'_> {
        let lock = self.path.join(LOCK);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        files::for_owner(&mut options);
        let lock = files::open(&lock, &mut options, Links::Refused).and_then(|file| file.lock().map(|()| file));
        let mut pages: Vec<Page> =
            fs::read_dir(&self.path).into_iter().flatten().flatten().filter_map(page_of).collect();
        pages.sort_by_key(|page| page.used);
        let bytes = pages.iter().map(|page| page.bytes).sum();
        Files { folder: self, pages: pages.into(), bytes, removed: 0, _lock: lock.ok() }
    }
}

impl Files<'_> {
    /// The bytes of all pages.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many pages were removed.
    pub fn removed(&self) -> usize {
        self.removed
    }

    /// Removes what processes left that ended while they wrote.
    pub fn remove_abandoned(&self) {
        files::remove_abandoned(&self.folder.path, |name| PageName::of_file(name).is_some());
    }

    /// Removes pages that are not to be kept, those that were unused for longest first, until there is place for more
    /// bytes. Returns false if there is none.
    pub fn make_place(&mut self, bytes: u64, kept: &HashSet<PageName>) -> bool {
        let mut place = 0;
        while self.bytes.saturating_add(bytes) > self.folder.most {
            let Some(page) = self.pages.get(place) else { return false };
            if kept.contains(&page.name) || fs::remove_file(self.folder.file(page.name)).is_err() {
                place += 1;
            } else {
                self.bytes -= page.bytes;
                self.removed += 1;
                self.pages.remove(place);
            }
        }
        true
    }

    /// Writes a page, and removes others for it.
    ///
    /// # Errors
    /// The system's.
    pub fn write(&mut self, name: PageName, rows: &[u8], kept: &HashSet<PageName>) -> io::Result<Written> {
        if self.folder.has(name) {
            return Ok(Written::Before);
        }
        let bytes = page::file_bytes(rows.len());
        if !self.make_place(bytes, kept) {
            return Ok(Written::NoPlace);
        }
        let path = self.folder.file(name);
        let mut file = Replacement::begin(&path, Readers::Owner)?;
        page::write(&mut file, name, rows)?;
        file.commit()?;
        self.bytes += bytes;
        Ok(Written::Now)
    }

    /// Records that the pages of a conversation are used now.
    pub fn use_now(&self, names: &[PageName]) {
        let mut time = SystemTime::now();
        for name in names {
            let file = files::open(&self.folder.file(*name), OpenOptions::new().write(true), Links::Refused);
            let _ = file.and_then(|file| file.set_modified(time)); // it may be gone; the order is no promise
            time -= EARLIER;
        }
    }
}

/// The page of an entry of the folder.
fn page_of(entry: fs::DirEntry) -> Option<Page> {
    let name = PageName::of_file(entry.file_name().to_str()?)?;
    let about = entry.metadata().ok().filter(fs::Metadata::is_file)?;
    Some(Page { name, bytes: about.len(), used: about.modified().unwrap_or(SystemTime::UNIX_EPOCH) })
}

#[cfg(unix)]
fn create(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

#[cfg(not(unix))]
fn create(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).create(path)
}

/// Refuses a folder that others may open: from the names of its files they could find out whether a conversation that
/// they guess took place, and they could replace the files. An empty folder is closed to them instead.
#[cfg(unix)]
fn make_private(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let mode = fs::metadata(path).map_err(Error::io("open", path))?.permissions().mode() & 0o777;
    if mode & 0o077 == 0 {
        return Ok(());
    }
    if fs::read_dir(path).map_err(Error::io("open", path))?.next().is_none() {
        return fs::set_permissions(path, fs::Permissions::from_mode(0o700)).map_err(Error::io("close", path));
    }
    let expected = "a folder that only its owner may open (chmod 700)";
    Err(Error::argument("folder", expected, format!("{} with mode {mode:o}", path.display())))
}

#[cfg(not(unix))]
fn make_private(_: &Path) -> Result<()> {
    Ok(())
}
