//! Blocks submissions while an app does what wgpu allows only on an idle queue.
//!
//! `Surface::configure` of wgpu 30 waits until the queue is empty, checks it again, and fails if another thread has
//! submitted in between (`Device::configure_surface`: `GpuWaitTimeout`). Without a handler for uncaptured errors, wgpu
//! panics then. A [`Pause`] closes this gap: while one exists, no submission of wglm begins, and none is being handed
//! to the driver. Earlier submissions continue; `configure` waits for them.
//!
//! A thread that waits here stays responsive: it returns [`Error::Cancelled`] once its work [should
//! stop](crate::threads::should_stop), and [`Error::DeviceLost`] once the device is lost. So an app that cancels a
//! worker's work and waits for the worker during a pause does not wait forever.

use super::Gpu;
use crate::error::{Error, Result, unpoisoned};
use crate::threads::{lock, should_stop};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{ThreadId, current};
use std::time::Duration;

/// How often a thread that waits for the end of a pause checks whether it should stop waiting.
const LOOK: Duration = Duration::from_millis(20);

/// Blocks all submissions of wglm to a device until it is dropped: see [`Gpu::pause`].
#[must_use = "the pause ends when this is dropped"]
#[derive(Debug)]
pub struct Pause {
    gate: Arc<Gate>,
    thread: ThreadId,
}

/// Admits submissions while no pause exists.
#[derive(Debug, Default)]
pub(super) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The threads that created the current pauses.
    pausing: Vec<ThreadId>,
    /// The threads that are handing work to the driver.
    submitting: Vec<ThreadId>,
}

/// Leaves the gate once a submission was handed to the driver, or has panicked.
struct Admitted<'a>(&'a Gate);

impl Gpu {
    /// Blocks the submissions of all models, sessions and loads on this device, from every thread, until the [`Pause`]
    /// is dropped. Returns once no submission is being handed to the driver, which takes microseconds on a GPU, and as
    /// long as one submission on a software driver. Earlier submissions continue. Several pauses may exist at once;
    /// submissions wait until the last one is dropped.
    ///
    /// An app that shares its device with wglm holds a pause around `wgpu::Surface::configure`, which otherwise fails
    /// if wglm submits meanwhile. [The guide](../wglm/guide/index.html#when-the-window-changes) shows this for eframe
    /// and winit. Keep a pause short, because it stops all replies.
    ///
    /// A reply, a load, or any other call that takes a [`Cancel`](crate::Cancel) can be cancelled during a pause, and
    /// returns at once; a cancelled tuning returns after at most two seconds. Replies that share a thread with others,
    /// those of a [`Scheduler`](crate::Scheduler) or of a [`Pool`](crate::Pool), end only after the pause. Calls
    /// without a `Cancel` wait for the end of the pause, so do not wait for another thread's call while you hold one. A
    /// thread that created a pause gets [`Error::Unsupported`] if it submits before the pause is dropped, instead of
    /// waiting for itself.
    pub fn pause(&self) -> Pause {
        let (gate, thread) = (self.shared.gate.clone(), current().id());
        if self.check_process().is_err() {
            // Nothing is submitted in a forked process, where a thread of the parent may hold the lock forever.
            return Pause { gate: Arc::default(), thread };
        }
        let mut state = lock(&gate.state);
        state.pausing.push(thread);
        // A thread that pauses in a callback of its own submission must not wait for itself.
        let elsewhere = |state: &State| state.submitting.iter().any(|other| *other != thread);
        while elsewhere(&state) {
            state = unpoisoned(gate.changed.wait(state));
        }
        drop(state);
        Pause { gate, thread }
    }

    /// Whether a [`Pause`] of this device exists.
    pub fn is_paused(&self) -> bool {
        !lock(&self.shared.gate.state).pausing.is_empty()
    }

    /// Hands work to the driver, once no pause of the device exists.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if this thread created a pause itself; [`Error::Cancelled`] and [`Error::DeviceLost`] if
    /// waiting longer is pointless.
    pub(super) fn admitted<T>(&self, submit: impl FnOnce() -> T) -> Result<T> {
        let (gate, thread) = (&*self.shared.gate, current().id());
        let mut state = lock(&gate.state);
        while !state.pausing.is_empty() {
            if state.pausing.contains(&thread) {
                return Err(paused_here());
            }
            self.note_held_back();
            let waited = unpoisoned(gate.changed.wait_timeout(state, LOOK));
            state = waited.0;
            if waited.1.timed_out() {
                drop(state);
                if should_stop() {
                    return Err(Error::Cancelled);
                }
                self.check()?;
                state = lock(&gate.state);
            }
        }
        state.submitting.push(thread);
        drop(state);
        let _admitted = Admitted(gate);
        Ok(submit())
    }
}

fn paused_here() -> Error {
    Error::unsupported(
        "computing on a paused GPU",
        "this thread created a `Pause` and has not dropped it",
        "drop the `Pause` first, or compute on another thread",
    )
}

impl Gate {
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut lock(&self.state));
        self.changed.notify_all();
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        let thread = current().id();
        self.0.change(|state| remove(&mut state.submitting, thread));
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        self.gate.change(|state| remove(&mut state.pausing, self.thread));
    }
}

/// Removes one entry of a thread, which may have several.
fn remove(threads: &mut Vec<ThreadId>, thread: ThreadId) {
    if let Some(place) = threads.iter().position(|other| *other == thread) {
        threads.swap_remove(place);
    }
}
