//! The queue between the thread that generates events and the thread that takes them.

use crate::error::{Error, Result, unpoisoned};
use crate::generate::Event;
use crate::threads::{WakerCalls, lock};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Poll, Waker};
use std::thread::JoinHandle;

/// Events that wait to be taken.
#[derive(Default)]
pub struct Queue {
    state: Mutex<QueueState>,
    changed: Condvar,
    wakers: WakerCalls,
}

#[derive(Default)]
struct QueueState {
    ready: VecDeque<Result<Event>>,
    /// No more events will be added.
    closed: bool,
    waker: Option<Waker>,
}

impl QueueState {
    fn take(&mut self) -> Poll<Option<Result<Event>>> {
        match self.ready.pop_front() {
            None if !self.closed => Poll::Pending,
            event => Poll::Ready(event),
        }
    }
}

impl Queue {
    /// Changes the state, and wakes the threads and tasks that wait for it. Wakers are the app's code, so they are
    /// called without the lock.
    fn change(&self, change: impl FnOnce(&mut QueueState)) {
        let waker = {
            let mut state = lock(&self.state);
            change(&mut state);
            state.waker.take()
        };
        self.changed.notify_all();
        self.wakers.call(waker);
    }

    /// The next event, if there is one. Otherwise the waker is woken when one arrives.
    pub fn poll(&self, waker: Option<&Waker>) -> Poll<Option<Result<Event>>> {
        let mut waker = waker.cloned(); // cloned here and dropped after `state`: both run the app's code
        let mut state = lock(&self.state);
        let taken = state.take();
        if taken.is_pending() && waker.is_some() {
            std::mem::swap(&mut state.waker, &mut waker);
        }
        taken
    }

    /// The next event. Waits for it.
    pub fn wait(&self) -> Option<Result<Event>> {
        let mut state = lock(&self.state);
        loop {
            match state.take() {
                Poll::Ready(event) => return event,
                Poll::Pending => state = unpoisoned(self.changed.wait(state)),
            }
        }
    }

    /// Declares that no more events will be added.
    pub fn close(&self) {
        self.change(|state| state.closed = true);
    }

    /// Waits for the thread that adds events, which was asked to end. No waker is called any more.
    pub fn join(&self, thread: JoinHandle<()>) {
        let waker = lock(&self.state).waker.take();
        drop(waker); // outside the lock
        self.wakers.join(thread);
    }

    /// Whether the queue is closed and empty.
    pub fn is_over(&self) -> bool {
        let state = lock(&self.state);
        state.closed && state.ready.is_empty()
    }

    /// The end of the queue that the generating thread holds.
    pub fn sender(self: &Arc<Self>) -> EventSender {
        EventSender(self.clone())
    }
}

/// Adds events to the queue. Dropping it closes the queue, with an error if the thread is panicking.
pub struct EventSender(Arc<Queue>);

impl EventSender {
    pub fn send(&self, event: Result<Event>) {
        self.0.change(|state| state.ready.push_back(event));
    }
}

impl Drop for EventSender {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.send(Err(Error::Worker { doing: "generating a reply" }));
        }
        self.0.close();
    }
}
