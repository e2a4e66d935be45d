//! The folder of a disk cache: who may open it, and which files are removed when it is full.
//!
//! The time of a file's last change says when the page was last used. The pages at the end of a conversation count as
//! used a little earlier than those before them, because a page is useless without those before it.

use super::page::{self, PageName};
use crate::error::{Error, Result};
use crate::files::{self, Links, Replacement};
use std::collections::{HashSet, VecDeque};
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// The file that a process locks while it writes.
const LOCK: &str = "lock";
/// How long another process may hold the lock. Each holds it for about a second.
const LOCKED: Duration = Duration::from_secs(20);
/// How often the lock is tried meanwhile.
const LOOK: Duration = Duration::from_millis(10);
/// How long a process that has more to write leaves the lock to others: longer than they wait between two tries.
pub const TURN: Duration = Duration::from_millis(30);

pub struct Folder {
    path: PathBuf,
    most: u64,
}

/// The files of a folder, while no other process writes to it. On a file system without locks another one may; then
/// both together may exceed the limit by what they write at the same time.
pub struct Files<'a> {
    folder: &'a Folder,
    /// Those that were unused for longest first.
    pages: VecDeque<Page>,
    /// The bytes of all pages, and of those that processes have begun to write and did not finish.
    bytes: u64,
    /// The pages that were removed, by this process or another one.
    gone: Vec<PageName>,
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
    /// It was there already.
    Already,
    /// There is no space for it next to the pages of the same conversation.
    NoSpace,
}

impl Folder {
    /// Opens a folder, or creates it.
    ///
    /// # Errors
    /// As for [`DiskCache::open`](super::DiskCache::open).
    pub fn open(path: &Path, most: u64) -> Result<Self> {
        create(path).map_err(Error::io("create", path))?;
        // What is checked here is what is used later, also if the working directory or a link changes.
        let path = &fs::canonicalize(path).map_err(Error::io("open", path))?;
        let folder = Self { path: path.clone(), most };
        let trial = Replacement::instead_of(&folder.file(PageName::start(&[])));
        make_private(path, trial.map_err(Error::io("write to", path))?.file())?;
        Ok(folder)
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
    /// The system's, and one of kind `InvalidData` for a damaged page, whose file is removed.
    pub fn read(&self, name: PageName, bytes: u64) -> io::Result<Option<Vec<u8>>> {
        let path = self.file(name);
        let file = match files::open(&path, OpenOptions::new().read(true), Links::Refused) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file.map_err(|reason| in_file(&path, &reason, reason.kind()))?,
        };
        page::read(&mut &file, name, bytes).map(Some).map_err(|reason| {
            let damaged = is_damage(&reason);
            if damaged && files::is_at(&file, &path) {
                drop(file);
                let _ = fs::remove_file(&path);
            }
            in_file(&path, &reason, if damaged { ErrorKind::InvalidData } else { reason.kind() })
        })
    }

    /// Records when a page was used. Returns false if it is not there.
    pub fn set_used(&self, name: PageName, time: SystemTime) -> bool {
        let file = files::open(&self.file(name), OpenOptions::new().write(true), Links::Refused);
        // All other failures are harmless, because the order is not guaranteed.
        let set = file.and_then(|file| file.set_modified(time));
        !set.is_err_and(|error| error.kind() == ErrorKind::NotFound)
    }

    /// Waits until no other process writes to the folder, lists its files, and removes what processes that ended while
    /// writing left behind.
    ///
    /// # Errors
    /// The system's, and one of kind `TimedOut` if another process holds the lock for too long.
    pub fn lock(&self) -> io::Result<Files<'_>> {
        let lock = self.locked()?;
        let mut files =
            Files { folder: self, pages: VecDeque::new(), bytes: 0, gone: Vec::new(), removed: 0, _lock: lock };
        for entry in fs::read_dir(&self.path)? {
            files.add(&entry?)?;
        }
        files.pages.make_contiguous().sort_by_key(|page| page.used);
        Ok(files)
    }

    /// The locked file; `None` on a file system without locks.
    fn locked(&self) -> io::Result<Option<File>> {
        let (path, until) = (self.path.join(LOCK), Instant::now() + LOCKED);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        files::for_owner(&mut options);
        loop {
            let file = files::open(&path, &mut options, Links::Refused)?;
            match file.try_lock() {
                // If the file was removed meanwhile, another process locks another file.
                Ok(()) if files::is_at(&file, &path) => return Ok(Some(file)),
                Err(TryLockError::Error(error)) if files::has_no_locks(&error) => return Ok(None),
                Err(TryLockError::Error(error)) if error.kind() != ErrorKind::Interrupted => return Err(error),
                Err(TryLockError::WouldBlock) if Instant::now() >= until => {
                    let reason = format!("another process holds the lock of {} for too long", self.path.display());
                    return Err(io::Error::new(ErrorKind::TimedOut, reason));
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(LOOK),
                _ => {}
            }
        }
    }
}

/// An error of this kind that names the file.
fn in_file(path: &Path, reason: &io::Error, kind: ErrorKind) -> io::Error {
    io::Error::new(kind, format!("{}: {reason}", path.display()))
}

impl Files<'_> {
    /// The bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The names of the pages.
    pub fn names(&self) -> impl Iterator<Item = PageName> {
        self.pages.iter().map(|page| page.name)
    }

    /// The pages that are gone since the last call, and how many of them this process has removed.
    pub fn take_gone(&mut self) -> (Vec<PageName>, usize) {
        (std::mem::take(&mut self.gone), std::mem::take(&mut self.removed))
    }

    /// Adds an entry of the folder if it is a page, or a part of one that cannot be removed.
    fn add(&mut self, entry: &fs::DirEntry) -> io::Result<()> {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { return Ok(()) };
        let page = PageName::of_file(name);
        let is_part = || files::replaced_by(name).is_some_and(|of| PageName::of_file(of).is_some());
        if page.is_none() && (!is_part() || files::remove_abandoned(&entry.path())) {
            return Ok(());
        }
        let about = match entry.metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()), // removed by a reader, or finished
            about => about?,
        };
        if about.is_file() {
            self.bytes += about.len();
            let used = about.modified().unwrap_or(SystemTime::UNIX_EPOCH).min(SystemTime::now());
            self.pages.extend(page.map(|name| Page { name, bytes: about.len(), used }));
        }
        Ok(())
    }

    /// Removes pages that are not to be kept, those that were unused for longest first, until more bytes fit. Returns
    /// false if they do not; if that is certain before, it removes nothing.
    ///
    /// # Errors
    /// The system's, if pages that it cannot remove take up the space.
    pub fn make_space(&mut self, bytes: u64, kept: &HashSet<PageName>) -> io::Result<bool> {
        self.folder.most.checked_sub(bytes).map_or(Ok(false), |most| self.shrink(most, kept))
    }

    /// Removes pages until all files take at most this many bytes, if they can.
    fn shrink(&mut self, most: u64, kept: &HashSet<PageName>) -> io::Result<bool> {
        let removable: u64 = self.pages.iter().filter(|page| !kept.contains(&page.name)).map(|page| page.bytes).sum();
        if self.bytes.saturating_sub(removable) > most {
            return Ok(false);
        }
        let (mut place, mut failed) = (0, None);
        while self.bytes > most {
            let Some(page) = self.pages.get(place) else { return failed.map_or(Ok(false), Err) };
            if kept.contains(&page.name) {
                place += 1;
                continue;
            }
            let path = self.folder.file(page.name);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    failed.get_or_insert_with(|| in_file(&path, &error, error.kind()));
                    place += 1;
                }
                removed => {
                    self.removed += usize::from(removed.is_ok());
                    self.bytes -= page.bytes;
                    self.gone.push(page.name);
                    self.pages.remove(place);
                }
            }
        }
        Ok(true)
    }

    /// Writes a page that was used at some time, and removes others for it.
    ///
    /// # Errors
    /// The system's.
    pub fn write(
        &mut self,
        (name, used): (PageName, SystemTime),
        rows: &[u8],
        kept: &HashSet<PageName>,
    ) -> io::Result<Written> {
        if self.folder.has(name) {
            return Ok(Written::Already);
        }
        let bytes = page::file_bytes(rows.len());
        if !self.make_space(bytes, kept)? {
            return Ok(Written::NoSpace);
        }
        match self.write_file(name, used, rows) {
            // The disk is full of other files. This frees twice the space of the page, half of it for the programs that
            // write those files.
            Err(error)
                if is_full(&error) && self.shrink(self.bytes.saturating_sub(2 * bytes), kept).unwrap_or(false) =>
            {
                self.write_file(name, used, rows)?;
            }
            written => written?,
        }
        self.bytes += bytes;
        self.pages.push_back(Page { name, bytes, used });
        Ok(Written::Now)
    }

    fn write_file(&self, name: PageName, used: SystemTime, rows: &[u8]) -> io::Result<()> {
        let path = self.folder.file(name);
        let mut file = Replacement::instead_of(&path)?;
        page::write(&mut file, name, rows)?;
        let _ = file.file().set_modified(used); // the order is not guaranteed
        let _ = fs::remove_dir(&path); // an empty folder of this name; anything else is replaced
        file.commit()
    }
}

/// Whether this read error means that the file is damaged or lost.
fn is_damage(error: &io::Error) -> bool {
    files::is_lost(error) || matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof)
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
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

/// Refuses a folder of another user than the owner of a file that was just created in it, and one that others may open:
/// from the names of its files they could find out whether a conversation that they guess took place, and they could
/// replace the files. An empty folder is closed to them instead.
#[cfg(unix)]
fn make_private(path: &Path, created: &File) -> Result<()> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let failed = Error::io("open", path);
    let about = || -> io::Result<_> {
        let folder = File::open(path)?;
        let about = folder.metadata()?;
        Ok((folder, about, created.metadata()?.uid()))
    };
    let (folder, about, user) = about().map_err(failed)?;
    let mode = about.mode() & 0o777;
    if about.uid() != user {
        let found = format!("{} of the user with the number {}", path.display(), about.uid());
        return Err(Error::argument("folder", "a folder of the user who runs the program", found));
    }
    if mode & 0o077 == 0 {
        return Ok(());
    }
    let entries = fs::read_dir(path).map_err(Error::io("open", path))?;
    if entries.count() == 1 {
        return folder.set_permissions(fs::Permissions::from_mode(0o700)).map_err(Error::io("close", path));
    }
    let expected = "a folder that only its owner may open (chmod 700)";
    Err(Error::argument("folder", expected, format!("{} with mode {mode:o}", path.display())))
}

#[cfg(not(unix))]
fn make_private(_: &Path, _: &File) -> Result<()> {
    Ok(())
}
