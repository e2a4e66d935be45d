//! The queue between the thread that generates and the task that polls.

use crate::error::{Error, Result};
use crate::generate::Event;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Events that wait to be polled.
#[derive(Default)]
pub struct Queue {
    state: Mutex<QueueState>,
}

#[derive(Default)]
struct QueueState {
    ready: VecDeque<Result<Event>>,
    /// No more events will be added.
    closed: bool,
    waker: Option<Waker>,
}

impl Queue {
    /// Locks the state. A panic elsewhere leaves it valid, since nothing that can panic runs while it is locked.
    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and wakes the task that polls.
    fn change(&self, change: impl FnOnce(&mut QueueState)) {
        let waker = {
            let mut state = self.state();
            change(&mut state);
            state.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }

    /// The next event, if there is one.
    pub fn poll(&self, context: &Context<'_>) -> Poll<Option<Result<Event>>> {
        let mut state = self.state();
        if let Some(event) = state.ready.pop_front() {
            return Poll::Ready(Some(event));
        }
        if state.closed {
            return Poll::Ready(None);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// Declares that no more events will be added.
    pub fn close(&self) {
        self.change(|state| state.closed = true);
    }

    /// Whether the queue is closed and empty.
    pub fn is_over(&self) -> bool {
        let state = self.state();
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
