//! Calls an app's wakers on a thread of wglm.
//!
//! A waker is the app's code. It may panic; the other wakers are called nevertheless, and the thread continues. It may
//! also block on a mutex that the app holds while it drops a reply, and the drop waits for this thread: an interface
//! that keeps all its state, replies included, in one mutex deadlocks like that. So once the thread should end, no more
//! wakers are called, and a running one that does not return is not waited for.

use super::lock;
use crate::error::unpoisoned;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex};
use std::task::Waker;
use std::thread::{JoinHandle, current};
use std::time::Duration;

/// How long to wait for the thread while a waker runs. A waker takes microseconds unless it needs something that the
/// waiting thread holds.
const PATIENCE: Duration = Duration::from_millis(500);

/// The running calls.
#[derive(Default)]
pub struct WakerCalls {
    state: Mutex<CallState>,
    returned: Condvar,
}

#[derive(Default)]
struct CallState {
    running: usize,
    /// Whether no more calls may begin.
    closed: bool,
}

impl WakerCalls {
    /// Calls every waker, even if one before it panics. Callers must hold no lock.
    pub fn call(&self, wakers: impl IntoIterator<Item = Waker>) {
        for waker in wakers {
            if self.begin() {
                let _ = catch_unwind(AssertUnwindSafe(|| waker.wake())); // the app's panic hook has reported it
                lock(&self.state).running -= 1;
                self.returned.notify_all();
            }
        }
    }

    fn begin(&self) -> bool {
        let state = &mut *lock(&self.state);
        state.running += usize::from(!state.closed);
        !state.closed
    }

    /// Waits for the end of the thread that calls the wakers, which was asked to end. Returns early if it is the
    /// calling thread, since a waker may drop the last handle, or if a waker does not return.
    pub fn join(&self, thread: JoinHandle<()>) {
        let mut state = lock(&self.state);
        state.closed = true;
        if thread.thread().id() == current().id() {
            return;
        }
        let (state, waited) = unpoisoned(self.returned.wait_timeout_while(state, PATIENCE, |state| state.running > 0));
        drop(state);
        if waited.timed_out() {
            tracing::warn!("the app's waker does not return; no longer waiting for the thread that called it");
        } else {
            let _ = thread.join(); // its panic shows in the result that it should have produced
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::task::Wake;
    use std::time::Instant;

    /// A waker that calls a function.
    struct Does<F>(F);

    impl<F: Fn() + Send + Sync + 'static> Wake for Does<F> {
        fn wake(self: Arc<Self>) {
            (self.0)();
        }
    }

    fn waker(does: impl Fn() + Send + Sync + 'static) -> Waker {
        Arc::new(Does(does)).into()
    }

    /// A waker that reports that it was called, and then waits for a message.
    fn waits() -> (Waker, Receiver<()>, Sender<()>) {
        let ((called, is_called), (release, releases)) = (channel(), channel());
        let releases = Mutex::new(releases);
        let waker = waker(move || {
            let _ = called.send(());
            let _ = lock(&releases).recv();
        });
        (waker, is_called, release)
    }

    #[test]
    #[allow(clippy::panic)]
    fn a_waker_that_panics_loses_no_other_call() {
        let (called, calls) = channel();
        let counts = |called: &Sender<()>| {
            let called = called.clone();
            waker(move || called.send(()).unwrap_or_default())
        };
        WakerCalls::default().call([counts(&called), waker(|| panic!("on purpose")), counts(&called)]);
        assert_eq!(calls.try_iter().count(), 2);
    }

    /// `join` waits for the thread once its waker returns, and no other waker is called.
    #[test]
    #[allow(clippy::unwrap_used)]
    fn a_call_that_returns_is_waited_for() {
        let (calls, ended) = (Arc::new(WakerCalls::default()), Arc::new(Mutex::new(false)));
        let (first, is_called, release) = waits();
        let (called, second) = channel();
        let theirs = (calls.clone(), ended.clone());
        let thread = std::thread::spawn(move || {
            theirs.0.call([first, waker(move || called.send(()).unwrap_or_default())]);
            *lock(&theirs.1) = true;
        });
        is_called.recv().unwrap();
        let (theirs, began) = (calls.clone(), Instant::now());
        let joins = std::thread::spawn(move || theirs.join(thread));
        while !lock(&calls.state).closed {
            std::thread::yield_now();
        }
        release.send(()).unwrap();
        joins.join().unwrap();
        assert!(*lock(&ended) || began.elapsed() >= PATIENCE, "it was not waited for");
        assert!(second.try_recv().is_err());
    }

    /// The waiting thread may hold what the waker waits for.
    #[test]
    #[allow(clippy::unwrap_used)]
    fn a_call_that_does_not_return_is_not_waited_for() {
        let calls = Arc::new(WakerCalls::default());
        let (waker, is_called, release) = waits();
        let theirs = calls.clone();
        let thread = std::thread::spawn(move || theirs.call([waker]));
        is_called.recv().unwrap();
        calls.join(thread);
        release.send(()).unwrap(); // it still waited for this
    }

    /// A waker may drop the last handle to the thread that calls it.
    #[test]
    #[allow(clippy::unwrap_used)]
    fn a_thread_does_not_wait_for_itself() {
        let (handles, handle) = channel::<JoinHandle<()>>();
        let (done, is_done) = channel();
        let handle = Mutex::new(handle);
        let thread = std::thread::spawn(move || {
            let calls = Arc::new(WakerCalls::default());
            let theirs = calls.clone();
            calls.call([waker(move || theirs.join(lock(&handle).recv().unwrap()))]);
            done.send(()).unwrap();
        });
        handles.send(thread).unwrap();
        is_done.recv_timeout(Duration::from_secs(60)).unwrap();
    }
}
