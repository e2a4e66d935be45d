//! Stops replies from other threads.

use crate::threads::lock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Stops a reply from any thread. Clones stop the same reply.
///
/// Use one for each reply, or for the several replies that answer one question while functions are called in between.
/// Create it before the request for the reply is sent to another thread: a cancellation counts from then on, also
/// before the reply has begun. It cannot be reset, so the next question needs a new one.
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
    /// Asks the reply to stop. It stops before the next token, or after a few submissions of a prompt.
    pub fn cancel(&self) {
        self.state.asked.store(true, Ordering::Relaxed);
    }

    /// Whether a cancellation was requested.
    pub fn is_cancelled(&self) -> bool {
        let asked = |flag: &Arc<AtomicBool>| flag.load(Ordering::Relaxed);
        asked(&self.state.asked) || lock(&self.state.others).iter().any(asked)
    }

    /// Makes `other`, and everything that stops `other` at this moment, stop this one too. The reverse does not hold.
    pub(crate) fn join(&self, other: &Self) {
        let theirs = lock(&other.state.others).clone();
        lock(&self.state.others).extend(theirs.into_iter().chain([other.state.asked.clone()]));
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
