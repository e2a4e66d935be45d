//! What waits to be written. The memory that it takes is limited.

use super::PageName;
use crate::error::unpoisoned;
use crate::threads::lock;
use std::collections::{HashSet, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard};

/// The usual limit of the bytes of pages that wait, or are being written.
pub const MOST: u64 = 1 << 30;

/// Pages of a conversation to be written.
pub struct Job {
    /// The names of all pages of the conversation up to the last one here.
    pub names: Vec<PageName>,
    /// The pages that were not on disk, in order.
    pub pages: Vec<(PageName, Vec<u8>)>,
}

pub struct Queue {
    most: u64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// Whether the thread works on one.
    works: bool,
    /// The pages that are not written yet.
    pages: HashSet<PageName>,
    /// Their bytes.
    bytes: u64,
    /// Whether no job will follow.
    ended: bool,
    /// Whether the thread is gone.
    gone: bool,
}

impl Queue {
    /// For pages of `most` bytes together, or a single larger one.
    pub fn new(most: u64) -> Self {
        Self { most, state: Mutex::default(), changed: Condvar::new() }
    }

    /// How many pages of this size fit. If `waits`, waits until one does.
    pub fn places(&self, bytes: u64, waits: bool) -> usize {
        let mut state = lock(&self.state);
        while waits && state.places(self.most, bytes) == 0 && !state.gone {
            state = self.changed(state);
        }
        if state.gone { 0 } else { state.places(self.most, bytes) }
    }

    /// Adds a job.
    pub fn push(&self, job: Job) {
        let mut state = lock(&self.state);
        if state.gone {
            return;
        }
        state.pages.extend(job.pages.iter().map(|(name, _)| *name));
        state.bytes += job.pages.iter().map(|(_, rows)| rows.len() as u64).sum::<u64>();
        state.jobs.push_back(job);
        self.changed.notify_all();
    }

    /// Whether a page is not written yet.
    pub fn has(&self, name: PageName) -> bool {
        lock(&self.state).pages.contains(&name)
    }

    /// Waits until everything is written.
    pub fn wait(&self) {
        let mut state = lock(&self.state);
        while (state.works || !state.jobs.is_empty()) && !state.gone {
            state = self.changed(state);
        }
    }

    /// No job will follow.
    pub fn end(&self) {
        lock(&self.state).ended = true;
        self.changed.notify_all();
    }

    /// The next job for the thread, which waits for it. `None` if none will follow.
    pub fn next(&self) -> Option<Job> {
        let mut state = lock(&self.state);
        while state.jobs.is_empty() && !state.ended {
            state = self.changed(state);
        }
        let job = state.jobs.pop_front();
        state.works = job.is_some();
        job
    }

    /// A page of this many bytes was written, or will not be.
    pub fn written(&self, name: PageName, bytes: usize) {
        let mut state = lock(&self.state);
        state.pages.remove(&name);
        state.bytes = state.bytes.saturating_sub(bytes as u64);
        self.changed.notify_all();
    }

    /// The job is done.
    pub fn finished(&self) {
        lock(&self.state).works = false;
        self.changed.notify_all();
    }

    /// What the thread drops when it ends, also by a panic, so that nobody waits for it.
    pub fn ending(&self) -> impl Drop {
        Ending(self)
    }

    fn changed<'a>(&'a self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        unpoisoned(self.changed.wait(state))
    }
}

impl State {
    fn places(&self, most: u64, bytes: u64) -> usize {
        let fit = most.saturating_sub(self.bytes) / bytes.max(1);
        if self.bytes == 0 { fit.max(1) as usize } else { fit as usize }
    }
}

struct Ending<'a>(&'a Queue);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        *state = State { gone: true, ..State::default() };
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_limited() {
        let queue = Queue::new(MOST);
        let (quarter, name) = (MOST / 4, PageName::start(&[]));
        assert_eq!((queue.places(quarter, false), queue.places(2 * MOST, true)), (4, 1), "one in any case");
        queue.push(Job { names: vec![name], pages: vec![(name, vec![0; 1000])] });
        assert_eq!((queue.places(quarter, true), queue.places(2 * MOST, false)), (3, 0));
        assert!(queue.has(name));
        let job = queue.next();
        job.into_iter().flat_map(|job| job.pages).for_each(|(name, rows)| queue.written(name, rows.len()));
        assert_eq!((queue.places(quarter, false), queue.has(name)), (4, false));
        queue.end();
        assert!(queue.next().is_none());
        drop(queue.ending());
        assert_eq!(queue.places(quarter, true), 0, "the thread is gone");
        queue.wait();
    }
}
