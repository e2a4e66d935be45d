//! Events on their way from the thread that generates to whoever polls.

use crate::error::{Error, Result};
use crate::generate::Event;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Events that wait to be taken.
#[derive(Default)]
pub struct Queue {
    state: Mutex<QueueState>,
}

#[derive(Default)]
struct QueueState {
    ready: VecDeque<Result<Event>>,
    /// No more will come.
    closed: bool,
    waker: Option<Waker>,
}

impl Queue {
    /// The state; it is sound after a panic too, for nothing that can panic happens while it is held.
    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut QueueState)) {
        let waker = {
            let mut state = self.state();
            change(&mut state);
            state.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }

    /// The next event, if it is there.
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

    /// No more events will come.
    pub fn close(&self) {
        self.change(|state| state.closed = true);
    }

    /// Whether there is nothing to take, and nothing will come.
    pub fn is_over(&self) -> bool {
        let state = self.state();
        state.closed && state.ready.is_empty()
    }

    /// The thread's end.
    pub fn sender(self: &Arc<Self>) -> EventSender {
        EventSender(self.clone())
    }
}

/// Where the thread puts events. Closes the queue however the thread ends: with an error if it died.
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
