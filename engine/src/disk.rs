//! Pages of KV caches on disk, where they outlive the program.
//!
//! A file holds a full page: 256 tokens of a conversation. Its name is a hash of the model, the type of cache, the
//! tenant, and all tokens from the beginning of the conversation to the end of the page. So there is no index that
//! could be damaged or grow: whoever has the tokens knows the names, and the longest beginning of a prompt that is on
//! disk ends before the first name without a file. Conversations that begin alike share files, a conversation that has
//! grown adds files to those it has, and a page of another model, or of another tenant, has another name.
//!
//! Each file is written beside, synced and renamed, and its header has a checksum of the rest. A kill loses the pages
//! that were not written yet, and leaves nothing that is read later: see [`Replacement`](crate::files::Replacement). A
//! damaged file is removed when it is read.
//!
//! Several processes can use a folder. Files are complete whenever they are visible, so reading takes no lock. Whoever
//! writes holds the lock of the folder, because all files together must stay below the limit.
//!
//! Files are written by a thread of the cache. Pages wait for it in memory, of which they may take a limited amount;
//! those that do not fit are dropped, and written the next time that their conversation is stored.

mod folder;
mod page;
mod queue;

pub use page::PageName;

use crate::error::{Error, Result};
use crate::threads::lock;
use folder::{Files, Folder, Written};
use queue::{Job, Queue};
use serde::Serialize;
use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};

/// The KV caches of conversations in a folder, so that a prompt need not be computed again after its conversation has
/// lost its place on the GPU, or after the program was started again. [`SchedulerOptions::disk`] takes one. Clones share
/// it, and several schedulers, also of different models, can use it, and so can several processes.
///
/// A [`Scheduler`] stores what a prompt has filled of the cache once the reply has ended, and the reply too when another
/// conversation takes the slot over, when memory for others is short, on [`Scheduler::store`], and when the scheduler is
/// dropped. Before a prompt is computed, the beginning of it that is on disk is read. It is stored in pages of 256
/// tokens, each in a file of its own, so the last, incomplete page of a conversation is computed again, and conversations
/// with the same beginning store it once. A page takes 256 times the bytes of a token in the cache
/// ([`Model::estimate`](crate::Model::estimate)).
///
/// The files can be read by nobody but their owner. They are not encrypted, and what a conversation was about can be
/// guessed from them. Pages are found by the file of the model, the type of cache, and
/// [`Tenant::cache`](crate::Tenant::cache): that number has to mean the same party each time the program runs.
///
/// The last drop of a cache waits until everything is written.
///
/// ```
/// # fn main() -> wglm::Result<()> {
/// # use wglm::{Gguf, Gpu, GpuOptions, LoadOptions, Model};
/// # let gpu = Gpu::open(&GpuOptions::default())?;
/// # let model = Model::load(&Gguf::from_static(wglm::DEMO_MODEL)?, &gpu, &LoadOptions::default())?;
/// # let folder = std::env::temp_dir().join(format!("wglm-disk-cache-{}", std::process::id()));
/// use wglm::{DiskCache, Scheduler, SchedulerOptions};
///
/// let disk = DiskCache::open(&folder, 20 << 30)?; // at most 20 GiB
/// let options = SchedulerOptions { sessions: 2, disk: Some(disk.clone()), ..SchedulerOptions::default() };
/// let scheduler = Scheduler::new(&model, &options)?;
/// // … replies …
/// scheduler.store(); // the program ends
/// println!("{} bytes on disk", disk.state().bytes);
/// # drop((scheduler, options, disk));
/// # std::fs::remove_dir_all(folder).unwrap();
/// # Ok(())
/// # }
/// ```
///
/// [`Scheduler`]: crate::Scheduler
/// [`Scheduler::store`]: crate::Scheduler::store
/// [`SchedulerOptions::disk`]: crate::SchedulerOptions::disk
#[derive(Clone)]
pub struct DiskCache {
    owner: Arc<Owner>,
}

/// The state of a [`DiskCache`] at one moment. A page has 256 tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DiskCacheState {
    /// The bytes of all files, when this process last wrote or opened the cache.
    pub bytes: u64,
    /// The limit of these bytes.
    pub most_bytes: u64,
    /// Pages that were read from disk, since the cache was opened.
    pub read: u64,
    /// Pages that were written.
    pub written: u64,
    /// Pages that were not written, because too many waited for the disk, or one conversation takes more than the limit.
    pub dropped: u64,
    /// Pages that were removed to stay below the limit.
    pub removed: u64,
    /// Damaged files that were found and removed.
    pub damaged: u64,
    /// Failures of the system to write a file. A warning in the log has the reason.
    pub failures: u64,
}

/// What the handles and the thread share.
struct Shared {
    folder: Folder,
    queue: Queue,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    bytes: AtomicU64,
    read: AtomicU64,
    written: AtomicU64,
    dropped: AtomicU64,
    removed: AtomicU64,
    damaged: AtomicU64,
    failures: AtomicU64,
}

fn add(count: &AtomicU64, more: usize) {
    count.fetch_add(more as u64, Ordering::Relaxed);
}

/// The handle of the thread, which ends with the last handle of the cache.
struct Owner {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// The process that has the thread.
    process: u32,
}

impl DiskCache {
    /// Opens a folder, or creates it, for files of at most `most_bytes` bytes together. What an earlier process left
    /// half written is removed, and so are the pages that were unused for longest if there is more. Other files in the
    /// folder are not touched.
    ///
    /// # Errors
    /// [`Error::Argument`] for a limit of 0, and for a folder with files in it that others than its owner may open;
    /// [`Error::Io`]; [`Error::NoThread`].
    pub fn open(folder: impl AsRef<Path>, most_bytes: u64) -> Result<Self> {
        Self::open_with(folder, most_bytes, queue::MOST)
    }

    /// The same, with a limit of the bytes that wait for the disk. For tests.
    #[doc(hidden)]
    pub fn open_with(folder: impl AsRef<Path>, most_bytes: u64, waiting: u64) -> Result<Self> {
        if most_bytes == 0 {
            return Err(Error::argument("most_bytes", "at least one", "0"));
        }
        let folder = Folder::open(folder.as_ref(), most_bytes)?;
        let shared = Arc::new(Shared { folder, queue: Queue::new(waiting), counts: Counts::default() });
        shared.tidy();
        let theirs = shared.clone();
        let thread = Builder::new().name("wglm disk cache".to_owned()).spawn(move || theirs.write_jobs());
        let refused =
            |reason: std::io::Error| Error::NoThread { doing: "writing the disk cache", reason: reason.into() };
        let thread = Mutex::new(Some(thread.map_err(refused)?));
        Ok(Self { owner: Arc::new(Owner { shared, thread, process: std::process::id() }) })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        self.owner.shared.folder.path()
    }

    /// Its current state.
    pub fn state(&self) -> DiskCacheState {
        let Shared { folder, counts, .. } = &*self.owner.shared;
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        DiskCacheState {
            bytes: count(&counts.bytes),
            most_bytes: folder.most(),
            read: count(&counts.read),
            written: count(&counts.written),
            dropped: count(&counts.dropped),
            removed: count(&counts.removed),
            damaged: count(&counts.damaged),
            failures: count(&counts.failures),
        }
    }

    /// Waits until everything that was stored so far is written.
    pub fn wait(&self) {
        if self.owner.has_thread() {
            self.owner.shared.queue.wait();
        }
    }

    /// Whether a page is on disk, or about to be written.
    pub(crate) fn has(&self, name: PageName) -> bool {
        self.owner.shared.queue.has(name) || self.owner.shared.folder.has(name)
    }

    /// Reads the KV rows of a page, which take `bytes` bytes. `None` if it is not there.
    pub(crate) fn read(&self, name: PageName, bytes: u64) -> Option<Vec<u8>> {
        let Shared { folder, counts, .. } = &*self.owner.shared;
        match folder.read(name, bytes) {
            Ok(rows) => {
                add(&counts.read, rows.is_some().into());
                rows
            }
            Err(reason) => {
                add(&counts.damaged, 1);
                tracing::warn!("the disk cache computes a page again that cannot be read: {reason}");
                None
            }
        }
    }

    /// How many pages of this size may wait for the disk, in addition to those that do. If `waits`, waits until there
    /// is place for one.
    pub(crate) fn places(&self, bytes: u64, waits: bool) -> usize {
        self.owner.shared.queue.places(bytes, waits)
    }

    /// Begins to write pages of a conversation, whose names are those of all of its pages: none of these is removed for
    /// another, and they count as used now.
    pub(crate) fn write(&self, names: Vec<PageName>, pages: Vec<(PageName, Vec<u8>)>) {
        self.owner.shared.queue.push(Job { names, pages });
    }

    /// Counts pages that were not stored.
    pub(crate) fn count_dropped(&self, pages: usize) {
        add(&self.owner.shared.counts.dropped, pages);
    }
}

impl Shared {
    /// Removes what an earlier process left half written, and what exceeds the limit.
    fn tidy(&self) {
        let mut files = self.folder.lock();
        files.remove_abandoned();
        files.make_place(0, &HashSet::new());
        self.record(&files);
    }

    /// The thread's work.
    fn write_jobs(&self) {
        let _end = self.queue.ending();
        while let Some(Job { names, pages }) = self.queue.next() {
            let mut files = self.folder.lock();
            let kept = names.iter().copied().collect();
            let mut goes_on = true;
            for (name, rows) in pages {
                goes_on = goes_on && self.write(&mut files, name, &rows, &kept);
                add(&self.counts.dropped, (!goes_on).into()); // no page is of use without those before it
                self.queue.written(name, rows.len());
            }
            files.use_now(&names);
            self.record(&files);
            self.queue.finished();
        }
    }

    /// Writes a page. Returns false if it cannot be written.
    fn write(&self, files: &mut Files<'_>, name: PageName, rows: &[u8], kept: &HashSet<PageName>) -> bool {
        match files.write(name, rows, kept) {
            Ok(Written::Now) => add(&self.counts.written, 1),
            Ok(Written::Before) => {}
            Ok(Written::NoPlace) => return false,
            Err(reason) => {
                add(&self.counts.failures, 1);
                tracing::warn!("cannot write to the disk cache in {}: {reason}", self.folder.path().display());
                return false;
            }
        }
        true
    }

    fn record(&self, files: &Files<'_>) {
        self.counts.bytes.store(files.bytes(), Ordering::Relaxed);
        add(&self.counts.removed, files.removed());
    }
}

impl Owner {
    /// Whether this process has the thread, and was not forked from the one that has it.
    fn has_thread(&self) -> bool {
        self.process == std::process::id()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.queue.end();
        let thread = lock(&self.thread).take().filter(|_| self.has_thread());
        thread.into_iter().for_each(|thread| drop(thread.join()));
    }
}

impl std::fmt::Debug for DiskCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DiskCache").field("folder", &self.folder()).field("state", &self.state()).finish()
    }
}
