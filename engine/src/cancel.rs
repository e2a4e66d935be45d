//! Stops work from other threads: loads, downloads, tunings, prompts and replies.

use crate::error::{Error, Result, unpoisoned};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Stops a long call, or a reply, from any thread. Clones stop the same work. Every call that may take long takes one,
/// and returns [`Error::Cancelled`] once it is cancelled; a reply ends with
/// [`Stop::Cancelled`](crate::Stop::Cancelled).
///
/// Use one for each task of the user: a load, a download, or a reply with all the replies that follow while functions
/// are called. Create it before the task is sent to another thread: a cancellation takes effect even if the work has
/// not begun. It cannot be reset, so the next task needs a new one.
///
/// ```
/// use wglm::{Cancel, Error};
///
/// let cancel = Cancel::default();
/// let button = cancel.clone(); // for another thread
/// assert!(cancel.check().is_ok());
/// button.cancel();
/// assert!(matches!(cancel.check(), Err(Error::Cancelled)));
/// ```
#[derive(Debug, Clone, Default)]
pub struct Cancel {
    state: Arc<CancelState>,
}

#[derive(Debug, Default)]
struct CancelState {
    asked: Arc<AtomicBool>,
    /// The flags of other handles that stop this one too.
    others: Mutex<Vec<Arc<AtomicBool>>>,
}

impl Cancel {
    /// Asks the work to stop. A reply stops before the next token, or after a few submissions of a prompt.
    pub fn cancel(&self) {
        self.state.asked.store(true, Ordering::Relaxed);
    }

    /// Whether a cancellation was requested.
    pub fn is_cancelled(&self) -> bool {
        let asked = |flag: &Arc<AtomicBool>| flag.load(Ordering::Relaxed);
        asked(&self.state.asked) || unpoisoned(self.state.others.lock()).iter().any(asked)
    }

    /// Returns [`Error::Cancelled`] if a cancellation was requested.
    ///
    /// # Errors
    /// [`Error::Cancelled`].
    pub fn check(&self) -> Result<()> {
        if self.is_cancelled() { Err(Error::Cancelled) } else { Ok(()) }
    }

    /// Makes `other`, and everything that stops `other` at this moment, stop this one too. The reverse does not hold.
    pub(crate) fn join(&self, other: &Self) {
        let theirs = unpoisoned(other.state.others.lock()).clone();
        unpoisoned(self.state.others.lock()).extend(theirs.into_iter().chain([other.state.asked.clone()]));
    }
}

/// All handles that stop a generation.
#[derive(Debug, Clone, Default)]
pub struct Cancels {
    /// The handle that the generation itself gives out.
    pub own: Cancel,
    /// The handles that the caller created.
    pub others: Vec<Cancel>,
}

impl Cancels {
    pub fn is_cancelled(&self) -> bool {
        self.own.is_cancelled() || self.others.iter().any(Cancel::is_cancelled)
    }
}
