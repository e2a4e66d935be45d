//! What waits to be written. The memory that it takes is limited.

use super::PageName;
use crate::error::unpoisoned;
use crate::threads::lock;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::SystemTime;

/// The maximum number of bytes in pages that wait, or are being written, if the limit of the files is at least twice as
/// large.
pub const MAX_QUEUED_BYTES: u64 = 1 << 30;

/// A page to be written.
pub struct Job {
    pub name: PageName,
    pub rows: Vec<u8>,
    /// When it was used.
    pub used: SystemTime,
    /// The pages of the same conversation, none of which is removed for this one.
    pub kept: Arc<HashSet<PageName>>,
}

/// What the thread does next.
pub struct Work {
    pub job: Option<Job>,
    /// When pages were used.
    pub used: HashMap<PageName, SystemTime>,
}

pub struct Queue {
    most: u64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Pages with their numbers.
    jobs: VecDeque<(u64, Job)>,
    used: HashMap<PageName, SystemTime>,
    /// The number of the first entry in `used`.
    first_used: u64,
    /// The highest number that was given to anything.
    newest: u64,
    /// Everything up to this number is done.
    done: u64,
    /// The pages that are not written yet.
    pages: HashSet<PageName>,
    /// Their bytes, and those of reserved places.
    bytes: u64,
    /// Whether nothing will follow.
    ended: bool,
    /// Whether the thread is gone.
    gone: bool,
}

/// A reservation for a page that will be added. Dropping it frees the space.
pub struct Place<'a> {
    queue: &'a Queue,
    bytes: u64,
}

impl Queue {
    /// For pages of `most` bytes together, or a single larger one.
    pub fn new(most: u64) -> Self {
        Self { most, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Reserves a place for a page of this many bytes.
    pub fn reserve(&self, bytes: u64) -> Option<Place<'_>> {
        let mut state = lock(&self.state);
        if state.gone || state.bytes > 0 && state.bytes.saturating_add(bytes) > self.most {
            return None;
        }
        state.bytes += bytes;
        Some(Place { queue: self, bytes })
    }

    /// Records when pages were used.
    pub fn use_pages(&self, pages: impl Iterator<Item = (PageName, SystemTime)>) {
        let mut pages = pages.peekable();
        if pages.peek().is_none() {
            return; // there is nothing for the thread to report as done
        }
        self.add(|state| {
            if state.used.is_empty() {
                state.first_used = state.newest;
            }
            state.used.extend(pages);
        });
    }

    /// Adds something.
    fn add(&self, add: impl FnOnce(&mut State)) {
        let mut state = lock(&self.state);
        if !state.gone {
            state.newest += 1;
            add(&mut state);
            self.changed.notify_all();
        }
    }

    /// Whether a page is not written yet.
    pub fn has(&self, name: PageName) -> bool {
        lock(&self.state).pages.contains(&name)
    }

    /// Waits until everything that was added so far is done.
    pub fn wait(&self) {
        let mut state = lock(&self.state);
        let newest = state.newest;
        while state.done < newest && !state.gone {
            state = self.changed(state);
        }
    }

    /// Nothing will follow.
    pub fn end(&self) {
        lock(&self.state).ended = true;
        self.changed.notify_all();
    }

    /// The next work for the thread. If it `waits`, `None` means that none will follow.
    pub fn next(&self, waits: bool) -> Option<Work> {
        let mut state = lock(&self.state);
        while state.jobs.is_empty() && state.used.is_empty() {
            if state.ended || !waits {
                return None;
            }
            state = self.changed(state);
        }
        let job = state.jobs.pop_front().map(|(_, job)| job);
        Some(Work { job, used: std::mem::take(&mut state.used) })
    }

    /// A page of this many bytes was written, or will not be.
    pub fn written(&self, name: PageName, bytes: usize) {
        let mut state = lock(&self.state);
        state.pages.remove(&name);
        state.bytes = state.bytes.saturating_sub(bytes as u64);
        self.changed.notify_all();
    }

    /// The work that was taken is done.
    pub fn finished(&self) {
        let mut state = lock(&self.state);
        let used = (!state.used.is_empty()).then_some(state.first_used);
        let next = state.jobs.front().map(|(number, _)| *number).into_iter().chain(used).min();
        state.done = next.map_or(state.newest, |next| next - 1);
        self.changed.notify_all();
    }

    /// Whether the thread is gone.
    pub fn is_abandoned(&self) -> bool {
        lock(&self.state).gone
    }

    /// The thread is gone, so nobody waits for it.
    pub fn abandon(&self) {
        *lock(&self.state) = State { gone: true, ..State::default() };
        self.changed.notify_all();
    }

    fn changed<'a>(&'a self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        unpoisoned(self.changed.wait(state))
    }
}

impl Place<'_> {
    /// Adds the page for which the place was reserved.
    pub fn fill(self, job: Job) {
        self.queue.add(|state| {
            state.pages.insert(job.name);
            state.bytes += job.rows.len() as u64;
            state.jobs.push_back((state.newest, job));
        });
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.queue.state);
        state.bytes = state.bytes.saturating_sub(self.bytes);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn job(name: PageName, bytes: usize) -> Job {
        Job { name, rows: vec![0; bytes], used: SystemTime::UNIX_EPOCH, kept: Arc::default() }
    }

    #[test]
    fn memory_is_limited() {
        let (queue, name) = (Queue::new(1000), PageName::start(&[]));
        let two = [queue.reserve(400), queue.reserve(600)];
        assert!(two.iter().all(Option::is_some) && queue.reserve(1).is_none(), "reserved places count");
        drop(two);
        queue.reserve(2000).unwrap().fill(job(name, 2000)); // one in any case
        assert!(queue.reserve(1).is_none() && queue.has(name));
        assert_eq!(queue.next(true).and_then(|work| work.job).map(|job| job.name), Some(name));
        queue.written(name, 2000);
        assert!(queue.reserve(1000).is_some() && !queue.has(name));
        queue.end();
        assert!(queue.next(true).is_none());
        queue.abandon();
        assert!(queue.reserve(1).is_none() && queue.is_abandoned(), "the thread is gone");
        queue.wait();
    }

    /// It does not wait for what is added after the call.
    #[test]
    fn waiting_ends_although_more_is_added() {
        let (queue, first) = (Queue::new(1000), PageName::start(&[]));
        let names = [first, first.then(&[1]), first.then(&[2])];
        let done = |queue: &Queue| lock(&queue.state).done;
        queue.use_pages([(first, SystemTime::UNIX_EPOCH)].into_iter());
        for name in names {
            queue.reserve(10).unwrap().fill(job(name, 10));
        }
        let work = queue.next(true).unwrap();
        assert_eq!((work.job.unwrap().name, work.used.len()), (first, 1));
        queue.use_pages([(first, SystemTime::UNIX_EPOCH), (names[1], SystemTime::UNIX_EPOCH)].into_iter());
        queue.finished();
        assert_eq!(done(&queue), 2, "the first page, and when it was used");
        queue.next(true);
        queue.finished();
        assert_eq!(done(&queue), 3, "the third page was added before the second use");
        queue.next(true);
        queue.finished();
        assert_eq!(done(&queue), 5);
        assert!(queue.next(false).is_none());
        queue.use_pages(std::iter::empty());
        queue.wait();
    }
}
