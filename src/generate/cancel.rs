//! The stop button.

use crate::threads::lock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Stops a reply from any thread. Clones share it.
///
/// It belongs to one reply, or to several that answer one question, as where functions are called in between: whoever
/// asks makes it and hands it over with the question, so that it counts whenever it is asked to stop, before the reply
/// has begun too. It stays asked: the next question takes a new one.
#[derive(Debug, Clone, Default)]
pub struct Cancel {
    state: Arc<CancelState>,
}

#[derive(Debug, Default)]
struct CancelState {
    asked: Arc<AtomicBool>,
    /// What stops this one too.
    others: Mutex<Vec<Arc<AtomicBool>>>,
}

impl Cancel {
    /// Asks the reply to stop; it does so within a token, or within a few parts of a prompt's chunk.
    pub fn cancel(&self) {
        self.state.asked.store(true, Ordering::Relaxed);
    }

    /// True once asked.
    pub fn is_cancelled(&self) -> bool {
        let asked = |flag: &Arc<AtomicBool>| flag.load(Ordering::Relaxed);
        asked(&self.state.asked) || lock(&self.state.others).iter().any(asked)
    }

    /// Has another one stop this one too, and what stops that one by now. By itself this one stops nothing else.
    #[cfg(feature = "stream")]
    pub(crate) fn join(&self, other: &Self) {
        let theirs = lock(&other.state.others).clone();
        lock(&self.state.others).extend(theirs.into_iter().chain([other.state.asked.clone()]));
    }
}

/// All that stops a generation.
#[derive(Debug, Default)]
pub struct Cancels {
    pub own: Cancel,
    /// Those that its caller made.
    pub others: Vec<Cancel>,
}

impl Cancels {
    pub fn is_cancelled(&self) -> bool {
        self.own.is_cancelled() || self.others.iter().any(Cancel::is_cancelled)
    }
}
