//! The state of a connection that other tasks need: its client's network, what it is doing, and a way to end it.

use super::client::Network;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::Notify;

/// What a connection does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Nothing of a request has come.
    Idle,
    /// The head of a request is coming.
    Head,
    /// A request came, and its answer has not begun. `interim` says whether the client knows answers before the final
    /// one, which those of HTTP/1.0 do not.
    Asked { interim: bool },
    /// The answer is being sent.
    Answering { interim: bool },
}

/// What a connection does, since when, and whether the system has taken all that was to be sent.
#[derive(Debug, Clone, Copy)]
pub struct Doing {
    pub phase: Phase,
    pub since: Instant,
    pub sent: bool,
}

/// A connection.
#[derive(Debug)]
pub struct Link {
    pub network: Network,
    doing: Mutex<Doing>,
    /// Whether it was asked to end.
    leaves: AtomicBool,
    leave: Notify,
    sends_no_more: AtomicBool,
}

impl Link {
    pub fn new(network: Network) -> Self {
        let doing = Mutex::new(Doing { phase: Phase::Idle, since: Instant::now(), sent: true });
        let (leaves, leave, sends_no_more) = Default::default();
        Self { network, doing, leaves, leave, sends_no_more }
    }

    fn lock(&self) -> MutexGuard<'_, Doing> {
        self.doing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn doing(&self) -> Doing {
        *self.lock()
    }

    /// Since when the connection has been idle, if it is.
    pub fn idle_since(&self) -> Option<Instant> {
        let doing = self.doing();
        (doing.phase == Phase::Idle && doing.sent).then_some(doing.since)
    }

    pub fn set(&self, phase: Phase) {
        let mut doing = self.lock();
        if doing.phase != phase {
            (doing.phase, doing.since) = (phase, Instant::now());
        }
    }

    /// Bytes came that are not the body of a request.
    pub fn received(&self) {
        if !matches!(self.doing().phase, Phase::Asked { .. }) {
            self.set(Phase::Head);
        }
    }

    /// The next request is waited for, or the rest of one: an answer that was on its way is complete.
    pub fn waits(&self) {
        if matches!(self.doing().phase, Phase::Answering { .. }) {
            self.set(Phase::Idle);
        }
    }

    pub fn set_sent(&self, sent: bool) {
        self.lock().sent = sent;
    }

    /// Asks the connection to end when it has answered what it was asked.
    pub fn end(&self) {
        self.leaves.store(true, Ordering::Relaxed);
        self.leave.notify_one();
    }

    /// Whether it was asked to end.
    pub fn is_ending(&self) -> bool {
        self.leaves.load(Ordering::Relaxed)
    }

    /// Waits until it is asked to end.
    pub async fn ending(&self) {
        self.leave.notified().await;
    }

    /// The client has closed its side: it is gone, or it waits for the answer and sends nothing more.
    pub fn set_sends_no_more(&self) {
        self.sends_no_more.store(true, Ordering::Relaxed);
    }

    pub fn sends_no_more(&self) -> bool {
        self.sends_no_more.load(Ordering::Relaxed)
    }
}
