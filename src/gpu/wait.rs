//! Waits for the GPU, also on a device on which an app draws.
//!
//! While a poll waits, wgpu 30 holds a device's lock on what may be destroyed, shared with other readers
//! (`Device::poll_and_return_closures` takes it before `Device::maintain` waits). Presenting a frame, or destroying a
//! buffer, needs that lock exclusively, and while anyone waits for exclusive access nobody else gets the lock, so
//! submissions wait as well. On an app's device a frame would therefore wait for the end of whatever wglm waits for.
//! For that reason nothing waits inside a poll there: a thread checks, sleeps for a fraction of the time that it has
//! waited, and checks again. Since another token is under way while one is waited for, the GPU does not idle.
//!
//! Waiting with a timeout is no alternative: if two threads poll, wgpu 30 panics if the work ends between the timeout
//! of one of them and its look at the queue ("If the queue is empty, the current submission index …").

use super::{Gpu, Submission};
use crate::error::{Error, Result};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use wgpu::PollType;

/// The fraction of the time waited so far that a thread sleeps between two checks, and the bounds of that sleep.
const FRACTION: u32 = 16;
const SHORTEST: Duration = Duration::from_micros(20);
const LONGEST: Duration = Duration::from_millis(1);

/// What [`Error::Endless`] says did not end.
const WORK: &str = "the GPU's work";

/// Set once everything submitted so far is done.
#[derive(Debug, Clone)]
pub(super) struct Done(Arc<AtomicBool>);

impl Done {
    fn of(queue: &wgpu::Queue) -> Self {
        let done = Self(Arc::default());
        let set = done.clone();
        queue.on_submitted_work_done(move || set.0.store(true, Ordering::Release));
        done
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl Gpu {
    /// A handle to the same device that waits no longer than this for work that was submitted through it.
    pub(crate) fn patient(&self, patience: Duration) -> Self {
        Self { patience: Some(patience), ..self.clone() }
    }

    /// Requests a callback for the end of the last submission, where nothing waits inside a poll.
    pub(super) fn done(&self) -> Option<Done> {
        (!self.is_ours() || self.patience.is_some()).then(|| Done::of(&self.shared.queue))
    }

    /// Waits until a submission, and the writes before it, are done.
    ///
    /// # Errors
    /// [`Error::DeviceLost`] if the device is lost; [`Error::Endless`] from a handle that does not wait for ever.
    pub fn wait(&self, submission: &Submission) -> Result<()> {
        match &submission.done {
            Some(done) => self.look_out(done),
            None => self.poll(PollType::Wait { submission_index: Some(submission.index.clone()), timeout: None }),
        }
    }

    /// Polls at least once, because that also maps buffers whose mapping was requested since the work was done.
    fn look_out(&self, done: &Done) -> Result<()> {
        let since = Instant::now();
        loop {
            self.poll(PollType::Poll)?;
            if done.is_set() {
                return Ok(());
            }
            if let Some(patience) = self.patience.filter(|patience| since.elapsed() >= *patience) {
                return Err(Error::Endless { doing: WORK.to_owned(), seconds: patience.as_secs() });
            }
            std::thread::sleep((since.elapsed() / FRACTION).clamp(SHORTEST, LONGEST));
        }
    }

    fn poll(&self, until: PollType) -> Result<()> {
        let device = self.device();
        // wgpu 30 panics if a driver fails in this very call, as it does when the GPU hangs.
        let polled = catch_unwind(AssertUnwindSafe(|| device.poll(until)));
        self.shared.failures.check()?;
        match polled {
            Ok(Ok(_)) => Ok(()),
            // The submission has a number, but was never begun.
            Ok(Err(_)) => Err(self.lost("it takes no more work")),
            Err(_) if self.is_ours() => Err(self.lost("the driver failed while work was running")),
            Err(panic) => {
                self.check()?;
                // The device is not lost, so this is a panic in a callback of its owner, which this poll ran.
                resume_unwind(panic)
            }
        }
    }
}
