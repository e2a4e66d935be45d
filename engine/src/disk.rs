//! Pages of KV caches on disk, where they outlive the program.
//!
//! A file holds a full page: 256 tokens of a conversation. Its name is a hash of the model, the type of cache, the
//! tenant, and all tokens from the beginning of the conversation to the end of the page. So there is no index that
//! could be damaged or grow: the names follow from the tokens, and the longest beginning of a prompt that is on disk
//! ends before the first name without a file. Conversations that begin alike share files, a conversation that has grown
//! adds files to those it has, and a page of another model, or of another tenant, has another name.
//!
//! Each file is written under a temporary name, synced and renamed, and its header has a checksum of the rest. A kill
//! loses the pages that were not written yet, and leaves nothing that is read later: see
//! [`Replacement`](crate::files::Replacement). A damaged file is removed when it is read.
//!
//! Several processes can use a folder. Files are complete whenever they are visible, so reading takes no lock. A
//! process that writes holds the lock of the folder, because all files together must stay below the limit.
//!
//! While it generates replies, the scheduler never accesses the disk, which may not respond: the cache's threads tell
//! it which pages exist. A page that another process has just removed may therefore count as stored until the
//! conversation's next prompt, all of whose pages are then marked as used.
//!
//! Files are written by a thread of the cache. Pages wait for it in a limited amount of memory. If the disk fails,
//! nothing is stored for a minute, and for longer each time that it fails again.

mod failing;
mod folder;
mod page;
mod queue;

pub use page::PageName;
pub(crate) use queue::{Job, Place};

use crate::error::{Error, Result};
use crate::threads::lock;
use failing::Failing;
use folder::{Files, Folder, Written};
use queue::{Queue, Work};
use serde::Serialize;
use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

/// How much earlier a page counts as last used than the page before it.
const EARLIER: Duration = Duration::from_millis(1);
/// How many pages are read ahead.
const AHEAD: usize = 4;
/// The maximum number of pages that are read at a time.
const READS: usize = 64;
/// The minimum wait for a page before the disk can count as not responding, because it may have to spin up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);
/// How long the folder stays locked while pages wait.
const LOCKED: Duration = Duration::from_secs(1);

/// The KV caches of conversations in a folder, so that a prompt need not be computed again after its conversation has
/// lost its place on the GPU, or after the program was started again. [`SchedulerOptions::disk`] takes one. Clones
/// share it, and several schedulers, also of different models, can use it, and so can several processes.
///
/// When a reply has ended, a [`Scheduler`] stores the part of the cache that its prompt filled. It stores the reply too
/// when another conversation takes over the slot, when other conversations need the memory, on [`Scheduler::store`],
/// and when the scheduler is dropped. Before a prompt is computed, the beginning of it that is on disk is read. The
/// cache is stored in pages of 256 tokens, each in a file of its own, so the last, incomplete page of a conversation is
/// computed again, and conversations with the same beginning store it once. A page takes 256 times the bytes of a token
/// in the cache ([`Model::estimate`](crate::Model::estimate)). Pages that wait for the disk take at most 1 GiB of
/// memory, or half as much as the files may if that is less, and those that were read ahead at most nine pages for each
/// reply.
///
/// On Unix, only the owner can open the folder and its files. They are not encrypted, and what a conversation was about
/// can be guessed from them. Pages are found by the file of the model, the type of cache, and
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
    /// Pages that were not written, because too many waited for the disk, the disk failed, or one conversation takes
    /// more than the limit.
    pub dropped: u64,
    /// Pages that were removed to stay below the limit.
    pub removed: u64,
    /// Damaged files that were found and removed.
    pub damaged: u64,
    /// Failures of the system to read or write a file. A warning in the log has the reason.
    pub failures: u64,
}

/// A page that was read.
pub(crate) struct ReadPage {
    pub rows: Vec<u8>,
    /// How long that took.
    pub time: Duration,
}

/// What the handles and the threads share.
struct Shared {
    folder: Folder,
    queue: Queue,
    counts: Counts,
    failing: Failing,
    reads: Mutex<Reads>,
    /// The pages that are on disk as far as this process knows: those that it found when it last listed the folder,
    /// with those that it has read or written since, and without those that it has removed or not found. The scheduler
    /// asks here, because a disk that does not respond would hold up its replies.
    present: Mutex<HashSet<PageName>>,
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

/// The reads in progress.
#[derive(Default)]
struct Reads {
    /// When each began.
    began: Vec<Instant>,
    /// Reads that began no later than this and are still in progress are taken to hang.
    hung: Option<Instant>,
}

impl Reads {
    /// Whether the disk does not respond.
    fn hang(&self) -> bool {
        self.hung.is_some_and(|hung| self.began.iter().any(|began| *began <= hung))
    }

    /// Whether another page may be read.
    fn may_begin(&self) -> bool {
        self.began.len() < READS && !self.hang()
    }
}

/// A read in progress, listed in [`Shared::reads`].
struct ReadInProgress<'a> {
    shared: &'a Shared,
    began: Instant,
}

impl<'a> ReadInProgress<'a> {
    /// `None` if too many pages are being read, or if the disk does not respond.
    fn begin(shared: &'a Shared) -> Option<Self> {
        let mut reads = lock(&shared.reads);
        let began = Instant::now();
        reads.may_begin().then(|| {
            reads.began.push(began);
            Self { shared, began }
        })
    }
}

impl Drop for ReadInProgress<'_> {
    fn drop(&mut self) {
        let reads = &mut lock(&self.shared.reads).began;
        if let Some(place) = reads.iter().position(|began| *began == self.began) {
            reads.swap_remove(place);
        }
    }
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
    /// folder are not touched. An empty folder is closed to everybody but its owner.
    ///
    /// # Errors
    /// On Unix, [`Error::Argument`] for a folder of another user, and for a folder with files in it that users other
    /// than its owner may open; everywhere for a limit of 0. [`Error::Io`], also if another process holds the folder's
    /// lock for 20 seconds, or if pages above the limit cannot be removed; [`Error::NoThread`].
    pub fn open(folder: impl AsRef<Path>, most_bytes: u64) -> Result<Self> {
        Self::open_with(folder, most_bytes, queue::MAX_QUEUED_BYTES.min(most_bytes / 2))
    }

    /// The same, with a limit of the bytes that wait for the disk. For tests.
    #[doc(hidden)]
    pub fn open_with(folder: impl AsRef<Path>, most_bytes: u64, waiting: u64) -> Result<Self> {
        if most_bytes == 0 {
            return Err(Error::argument("most_bytes", "at least one", "0"));
        }
        let folder = Folder::open(folder.as_ref(), most_bytes)?;
        let (queue, counts, failing) = (Queue::new(waiting), Counts::default(), Failing::default());
        let (reads, present) = (Mutex::default(), Mutex::default());
        let shared = Arc::new(Shared { folder, queue, counts, failing, reads, present });
        shared.tidy().map_err(Error::io("open", shared.folder.path()))?;
        let theirs = shared.clone();
        let thread = Builder::new().name("wglm disk cache".to_owned()).spawn(move || theirs.write_jobs());
        let refused = |reason: io::Error| Error::NoThread { doing: "writing the disk cache", reason: reason.into() };
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
        self.queue().into_iter().for_each(Queue::wait);
    }

    /// Whether this process has the thread, and was not forked from the one that has it.
    pub(crate) fn has_thread(&self) -> bool {
        self.owner.has_thread()
    }

    /// The queue; `None` in a process that was forked, which has no thread, and in which it may be locked forever.
    fn queue(&self) -> Option<&Queue> {
        self.owner.has_thread().then_some(&self.owner.shared.queue)
    }

    /// Whether a page is on disk as far as is known without asking the disk, or about to be written.
    pub(crate) fn has(&self, name: PageName) -> bool {
        self.queue().is_some_and(|queue| queue.has(name) || lock(&self.owner.shared.present).contains(&name))
    }

    /// Reads pages one after the other on a thread, up to the first that is missing: each with the KV rows of the
    /// multi-token-prediction block if that file exists, otherwise without. `bytes` are the sizes of pages without it
    /// and with it. Few pages are read ahead of those that are taken, and no more once the receiver is dropped. Reading
    /// also ends if too many other pages are being read, or if the disk does not respond.
    pub(crate) fn read_ahead(&self, pages: Vec<[PageName; 2]>, bytes: [u64; 2]) -> Receiver<ReadPage> {
        let (sender, receiver) = sync_channel(AHEAD);
        if pages.is_empty() || !lock(&self.owner.shared.reads).may_begin() {
            return receiver;
        }
        let shared = self.owner.shared.clone();
        let reads = move || {
            for (place, [alone, with_block]) in pages.iter().copied().enumerate() {
                let Some(read) = ReadInProgress::begin(&shared) else { break };
                let other = (alone != with_block).then_some(alone);
                let rows = shared.read(with_block, bytes[1]).or_else(|| shared.read(other?, bytes[0]));
                let time = read.began.elapsed();
                drop(read); // sending may wait
                let Some(rows) = rows else {
                    // The pages of a conversation are removed from its end, so those after it are probably gone too.
                    shared.forget(pages[place..].iter().flatten());
                    break;
                };
                if sender.send(ReadPage { rows, time }).is_err() {
                    break;
                }
            }
        };
        if let Err(reason) = Builder::new().name("wglm disk cache".to_owned()).spawn(reads) {
            tracing::warn!("the disk cache is not read, because the system refuses a thread: {reason}");
        }
        receiver
    }

    /// Reserves memory for a page of this size, which then waits for the disk. `None` if there is none left.
    pub(crate) fn reserve(&self, bytes: u64) -> Option<Place<'_>> {
        self.queue()?.reserve(bytes)
    }

    /// Records that the pages of a conversation are used now, those at its end a little earlier.
    pub(crate) fn use_now(&self, names: &[[PageName; 2]]) {
        let (now, Some(queue)) = (SystemTime::now(), self.queue()) else { return };
        let pages = names.iter().zip(0..).flat_map(|(names, place)| names.map(|name| (name, earlier(now, place))));
        queue.use_pages(pages);
    }

    /// Records that a page was awaited for this time and is not there yet.
    pub(crate) fn hangs(&self, waited: Duration) {
        let Shared { folder, failing, reads, .. } = &*self.owner.shared;
        // The read of that page began soon after the wait for it, and other reads may have begun since: the middle of
        // the wait separates them.
        lock(reads).hung = Instant::now().checked_sub(waited / 2);
        if !failing.is_now() {
            let reason = format!("a page was not read within {:.1} s", waited.as_secs_f64());
            failing.begin(folder.path(), &io::Error::new(io::ErrorKind::TimedOut, reason));
        }
    }

    /// Whether nothing is to be stored: for a time, because the disk has failed; at present, because it does not
    /// respond; or never again, because the thread has panicked.
    pub(crate) fn is_failing(&self) -> bool {
        let Shared { failing, reads, .. } = &*self.owner.shared;
        failing.is_now() || lock(reads).hang() || self.queue().is_some_and(Queue::is_abandoned)
    }

    /// Counts pages that were not stored.
    pub(crate) fn count_dropped(&self, pages: usize) {
        add(&self.owner.shared.counts.dropped, pages);
    }
}

/// When the page at a place of a conversation counts as used.
pub(crate) fn earlier(used: SystemTime, place: u32) -> SystemTime {
    used.checked_sub(EARLIER * place).unwrap_or(used)
}

impl Shared {
    /// Removes what an earlier process left half written, and what exceeds the limit.
    fn tidy(&self) -> io::Result<()> {
        let mut files = self.folder.lock()?;
        let placed = files.make_space(0, &HashSet::new());
        self.record(&mut files);
        self.replace_present(&files);
        placed.map(drop)
    }

    /// The thread's work.
    fn write_jobs(&self) {
        let _ends = ThreadEnds(self);
        while let Some(work) = self.queue.next(true) {
            self.write_some(work);
        }
    }

    /// Reads the KV rows of a page, which take `bytes` bytes. `None` if it is not there.
    fn read(&self, name: PageName, bytes: u64) -> Option<Vec<u8>> {
        let read = self.folder.read(name, bytes);
        if let Ok(Some(_)) = read {
            lock(&self.present).insert(name);
        }
        // The thread that removes a page forgets it afterwards, so a page that was removed during the read is not left
        // there.
        if !matches!(read, Ok(Some(_))) || !self.folder.has(name) {
            self.forget([&name]);
        }
        match read {
            Ok(rows) => {
                add(&self.counts.read, rows.is_some().into());
                rows
            }
            Err(reason) => {
                let is_damaged = reason.kind() == io::ErrorKind::InvalidData;
                add(if is_damaged { &self.counts.damaged } else { &self.counts.failures }, 1);
                tracing::warn!("the disk cache cannot read a page, which is computed again: {reason}");
                None
            }
        }
    }

    /// Does one piece of work, and then further work for a limited time, so that the folder is listed once for several
    /// pages. After that time it leaves the lock to other processes.
    fn write_some(&self, first: Work) {
        let (until, mut files, mut next) = (Instant::now() + LOCKED, None, Some(first));
        while let Some(Work { job, used }) = next {
            if let Some(job) = job {
                self.write(&mut files, &job);
                self.queue.written(job.name, job.rows.len());
            }
            for (name, time) in used {
                if !self.folder.set_used(name, time) {
                    self.forget([&name]);
                }
            }
            self.queue.finished();
            if Instant::now() >= until {
                drop(files);
                return std::thread::sleep(folder::TURN);
            }
            next = self.queue.next(false);
        }
    }

    /// Writes a page, unless the disk has failed.
    fn write<'a>(&'a self, files: &mut Option<Files<'a>>, job: &Job) {
        if self.failing.is_now() {
            return add(&self.counts.dropped, 1);
        }
        match self.try_write(files, job) {
            Ok(Written::Now) => {
                add(&self.counts.written, 1);
                self.failing.end(self.folder.path());
            }
            Ok(Written::Already) => {}
            Ok(Written::NoSpace) => add(&self.counts.dropped, 1),
            Err(reason) => {
                add(&self.counts.dropped, 1);
                add(&self.counts.failures, 1);
                self.failing.begin(self.folder.path(), &reason);
            }
        }
    }

    /// Writes a page to the folder, which is locked before the first one.
    fn try_write<'a>(&'a self, files: &mut Option<Files<'a>>, job: &Job) -> io::Result<Written> {
        let files = match files {
            Some(files) => files,
            None => {
                let files = files.insert(self.folder.lock()?);
                self.replace_present(files);
                files
            }
        };
        let written = files.write((job.name, job.used), &job.rows, &job.kept);
        self.record(files);
        if let Ok(Written::Now | Written::Already) = written {
            lock(&self.present).insert(job.name);
        }
        written
    }

    /// Updates the counts, and forgets the pages that were removed.
    fn record(&self, files: &mut Files<'_>) {
        self.counts.bytes.store(files.bytes(), Ordering::Relaxed);
        let (gone, removed) = files.take_gone();
        add(&self.counts.removed, removed);
        self.forget(&gone);
    }

    /// Records that pages are not there.
    fn forget<'a>(&self, names: impl IntoIterator<Item = &'a PageName>) {
        let mut present = lock(&self.present);
        for name in names {
            present.remove(name);
        }
    }

    /// Replaces the known pages by those that were just listed.
    fn replace_present(&self, files: &Files<'_>) {
        *lock(&self.present) = files.names().collect();
    }
}

/// The thread ends, perhaps by a panic, which is a defect.
struct ThreadEnds<'a>(&'a Shared);

impl Drop for ThreadEnds<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            add(&self.0.counts.failures, 1);
            tracing::error!("the disk cache's thread panicked, which is a bug in wglm; nothing more is stored");
        }
        self.0.queue.abandon();
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
        if self.has_thread() {
            self.shared.queue.end();
            let thread = lock(&self.thread).take();
            thread.into_iter().for_each(|thread| drop(thread.join()));
        }
    }
}

impl std::fmt::Debug for DiskCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DiskCache").field("folder", &self.folder()).field("state", &self.state()).finish()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    /// Stores a page of this many bytes, if there is memory for it.
    fn store(disk: &DiskCache, name: PageName, bytes: usize) {
        if let Some(memory) = disk.reserve(bytes as u64) {
            memory.fill(Job { name, rows: vec![7; bytes], used: SystemTime::now(), kept: Arc::default() });
        }
    }

    #[test]
    fn a_page_above_the_limit_removes_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let disk = DiskCache::open_with(folder.path(), 10_000, 1 << 20).unwrap();
        let start = PageName::start(&[]);
        for page in 0..5 {
            store(&disk, start.then(&[page]), 1000);
        }
        store(&disk, start, 20_000);
        disk.wait();
        let DiskCacheState { written, dropped, removed, .. } = disk.state();
        assert_eq!((written, dropped, removed), (5, 1, 0));
    }

    /// What is on disk is known from what was listed, written and read, without asking the disk.
    #[test]
    fn present_pages_are_known() {
        let folder = tempfile::tempdir().unwrap();
        let pages: Vec<PageName> = (0..6).map(|page| PageName::start(&[]).then(&[page])).collect();
        let there = |disk: &DiskCache| pages.iter().map(|page| disk.has(*page)).collect::<Vec<_>>();
        let writer = DiskCache::open_with(folder.path(), 5 * page::file_bytes(1000), 1 << 20).unwrap();
        for page in &pages {
            store(&writer, *page, 1000);
            writer.wait();
        }
        assert_eq!(there(&writer), [false, true, true, true, true, true], "the first one was removed for the last");
        let opened = DiskCache::open(folder.path(), 1 << 20).unwrap();
        assert_eq!(there(&opened), there(&writer));
        std::fs::remove_file(folder.path().join(pages[3].file())).unwrap();
        assert!(opened.has(pages[3]) && opened.owner.shared.read(pages[3], 1000).is_none());
        assert!(!opened.has(pages[3]), "it was missed");
        store(&opened, pages[3], 1000);
        opened.wait();
        assert!(opened.has(pages[3]) && opened.owner.shared.read(pages[3], 1000).is_some());
    }

    /// No page is read while an earlier read does not return, or while too many are in progress.
    #[test]
    fn nothing_is_read_while_the_disk_does_not_respond() {
        let folder = tempfile::tempdir().unwrap();
        let disk = DiskCache::open(folder.path(), 1 << 20).unwrap();
        let shared = &disk.owner.shared;
        let mut reads: Vec<_> = (0..READS).map_while(|_| ReadInProgress::begin(shared)).collect();
        assert!(reads.len() == READS && ReadInProgress::begin(shared).is_none());
        reads.truncate(1);
        assert_eq!(lock(&shared.reads).began.len(), 1);
        disk.hangs(PATIENCE);
        assert!(ReadInProgress::begin(shared).is_some(), "this one has only begun, so another page was awaited");
        let long_ago = reads[0].began.checked_sub(PATIENCE).unwrap();
        (reads[0].began, lock(&shared.reads).began[0]) = (long_ago, long_ago);
        assert!(ReadInProgress::begin(shared).is_none() && disk.is_failing(), "it does not return");
        shared.failing.end(folder.path());
        assert!(disk.is_failing(), "it still does not");
        drop(reads);
        assert!(ReadInProgress::begin(shared).is_some() && !disk.is_failing());
    }

    /// A page that others removed does not count as stored once the conversation was continued.
    #[test]
    fn a_page_that_others_removed_is_stored_again() {
        let folder = tempfile::tempdir().unwrap();
        let disk = DiskCache::open(folder.path(), 1 << 20).unwrap();
        let pages: Vec<[PageName; 2]> = (0..4).map(|page| [PageName::start(&[]).then(&[page]); 2]).collect();
        let all_present = || pages.iter().map(|[name, _]| disk.has(*name)).collect::<Vec<_>>();
        let store_missing = || {
            pages.iter().filter(|[name, _]| !disk.has(*name)).for_each(|[name, _]| store(&disk, *name, 1000));
            disk.wait();
        };
        store_missing();
        let remove = |place: usize| std::fs::remove_file(folder.path().join(pages[place][0].file())).unwrap();
        (2..4).for_each(remove);
        assert_eq!(all_present(), [true; 4]);
        disk.use_now(&pages);
        disk.wait();
        assert_eq!(all_present(), [true, true, false, false]);
        store_missing();
        (1..3).for_each(remove);
        assert_eq!(disk.read_ahead(pages.clone(), [1000; 2]).iter().count(), 1);
        assert_eq!(all_present(), [true, false, false, false], "nothing after a page that is missing is relied on");
        store_missing();
        assert_eq!(disk.read_ahead(pages.clone(), [1000; 2]).iter().count(), 4);
    }

    /// A cache that always has pages to write leaves the lock to others now and then: a second one opens the folder.
    #[test]
    fn a_busy_writer_leaves_the_lock_to_others() {
        let (folder, ends) = (tempfile::tempdir().unwrap(), AtomicBool::new(false));
        let busy = DiskCache::open_with(folder.path(), 1 << 20, 1 << 16).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for page in (0..).take_while(|_| !ends.load(Ordering::Relaxed)) {
                    store(&busy, PageName::start(&[page % 1000]), 1000);
                    std::thread::yield_now();
                }
            });
            while busy.state().written == 0 {
                std::thread::yield_now();
            }
            let other = DiskCache::open(folder.path(), 1 << 20);
            ends.store(true, Ordering::Relaxed);
            other.unwrap();
        });
    }
}
