//! Waits for the GPU, even on a device on which an app draws.
//!
//! While a poll waits, wgpu 30 holds a read lock on the device's resources that may be destroyed
//! (`Device::poll_and_return_closures` takes it before `Device::maintain` waits). Presenting a frame, or destroying a
//! buffer, needs that lock exclusively, and while anyone waits for exclusive access nobody else gets the lock, so
//! submissions wait as well. On an app's device a frame would therefore wait for the end of whatever wglm waits for. So
//! nothing waits inside a poll there: a thread checks, sleeps for a fraction of the time that it has waited, and checks
//! again. The GPU does not idle if the next token is submitted before the thread waits for one. Where the host needs a
//! result to choose what comes next, such as a mask, the wait is up to a sixteenth longer.
//!
//! On Metal, waiting inside a poll has another danger if other threads submit meanwhile. wgpu-hal 30 removes finished
//! command buffers from its list and then adds the new one (`Queue::submit` calls `Fence::maintain`, then `push`). If
//! the list is empty in between, and the callback of the awaited command buffer has not run yet, `Device::wait` reports
//! a lost device, and wgpu-core makes that loss final. So on Metal nothing waits inside a poll: the threads of an
//! upload, several models and several pools submit and wait at the same time.
//!
//! Waiting with a timeout is no alternative: if two threads poll, wgpu 30 panics if the work ends between the timeout
//! of one of them and its check of the queue ("If the queue is empty, the current submission index …").

use super::{Backend, Gpu, Submission};
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

/// What [`Error::Endless`] says did not finish.
const WORK: &str = "the GPU's work";
/// How often a closed device is polled until its queue is empty, and with which pauses.
const LAST_POLLS: u32 = 100;
const LAST_PAUSE: Duration = Duration::from_millis(10);

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
    /// A handle to the same device that waits at most this long for work that was submitted through it.
    pub(crate) fn patient(&self, patience: Duration) -> Self {
        Self { patience: Some(patience), ..self.clone() }
    }

    /// Fails if work that began at `since` has taken longer than this handle waits. Some software drivers do the work
    /// inside the submitting call, so it is finished before anything waits for it.
    pub(crate) fn in_time(&self, since: Instant) -> Result<()> {
        match self.patience.filter(|patience| since.elapsed() >= *patience) {
            Some(patience) => Err(Error::Endless { doing: WORK.to_owned(), seconds: patience.as_secs() }),
            None => Ok(()),
        }
    }

    /// Requests a callback for the end of the last submission, if nothing should wait inside a poll.
    pub(super) fn done(&self) -> Option<Done> {
        let avoids_polls = !self.is_ours() || self.patience.is_some() || self.report().backend == Backend::Metal;
        avoids_polls.then(|| Done::of(&self.shared.queue))
    }

    /// Polls a destroyed device until its queue is empty, when it releases its resources.
    pub(super) fn empty(&self) {
        for _ in 0..LAST_POLLS {
            let polled = catch_unwind(AssertUnwindSafe(|| self.device().poll(PollType::Poll)));
            if !matches!(polled, Ok(Ok(status)) if !status.is_queue_empty()) {
                return; // its queue is empty, or it cannot be polled
            }
            std::thread::sleep(LAST_PAUSE);
        }
    }

    /// Waits until a submission, and the writes before it, are done.
    ///
    /// # Errors
    /// [`Error::DeviceLost`] if the device is lost; [`Error::Endless`] from a handle with a time limit.
    #[doc(hidden)]
    pub fn wait(&self, submission: &Submission) -> Result<()> {
        self.shared.failures.check()?; // a lost device may never finish it
        match &submission.done {
            Some(done) => self.poll_until(done),
            None => self.poll(PollType::Wait { submission_index: Some(submission.index.clone()), timeout: None }),
        }
    }

    /// Polls at least once, because a poll also maps buffers whose mapping was requested after the work was done.
    fn poll_until(&self, done: &Done) -> Result<()> {
        let since = Instant::now();
        loop {
            self.poll(PollType::Poll)?;
            if done.is_set() {
                return Ok(());
            }
            self.in_time(since)?;
            std::thread::sleep((since.elapsed() / FRACTION).clamp(SHORTEST, LONGEST));
        }
    }

    fn poll(&self, until: PollType) -> Result<()> {
        let device = self.device();
        // wgpu 30 panics if the driver fails during this call, as it does when the GPU hangs.
        let polled = catch_unwind(AssertUnwindSafe(|| device.poll(until)));
        self.shared.failures.check()?;
        match polled {
            Ok(Ok(_)) => Ok(()),
            // The submission has a number, but was never begun.
            Ok(Err(_)) => Err(self.lost("it accepts no more work")),
            Err(_) if self.is_ours() => Err(self.lost("the driver failed while work was running")),
            Err(panic) => {
                self.check()?;
                // The device is not lost, so this is a panic in a callback of its owner, which this poll ran.
                resume_unwind(panic)
            }
        }
    }
}
