//! The state of a connection that other tasks need: the network of its client, what it is doing, and a way to end it.

use super::client::Network;
use super::lock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tokio::sync::Notify;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Nothing of the next request has arrived.
    Idle,
    /// The head of a request is arriving.
    Head,
    /// A request has arrived, and its answer has not begun. `interim` says whether the client understands interim
    /// responses, which HTTP/1.0 does not have.
    Handling { interim: bool },
    /// The answer is being sent.
    Answering { interim: bool },
}

/// What a connection is doing, since when, and whether everything so far was handed to the system.
#[derive(Debug, Clone, Copy)]
pub struct Doing {
    pub phase: Phase,
    pub since: Instant,
    pub sent: bool,
}

#[derive(Debug)]
pub struct Link {
    pub network: Network,
    doing: Mutex<Doing>,
    /// Whether it was asked to end.
    is_ending: AtomicBool,
    ending: Notify,
    aborted: AtomicBool,
    sends_no_more: AtomicBool,
}

impl Link {
    pub fn new(network: Network) -> Self {
        let doing = Mutex::new(Doing { phase: Phase::Idle, since: Instant::now(), sent: true });
        let (is_ending, ending, aborted, sends_no_more) = Default::default();
        Self { network, doing, is_ending, ending, aborted, sends_no_more }
    }

    pub fn doing(&self) -> Doing {
        *lock(&self.doing)
    }

    /// Since when the connection has been idle, if it is.
    pub fn idle_since(&self) -> Option<Instant> {
        let doing = self.doing();
        (doing.phase == Phase::Idle && doing.sent).then_some(doing.since)
    }

    pub fn set(&self, phase: Phase) {
        let mut doing = lock(&self.doing);
        if doing.phase != phase {
            (doing.phase, doing.since) = (phase, Instant::now());
        }
    }

    /// Bytes have arrived. They begin the next request if the connection waited for one. While an answer is sent, they
    /// may be the rest of a body that nobody has read.
    pub fn received(&self) {
        if self.doing().phase == Phase::Idle {
            self.set(Phase::Head);
        }
    }

    /// The connection waits for bytes of its client, so the answer, if there was one, is complete.
    pub fn waits(&self) {
        if matches!(self.doing().phase, Phase::Answering { .. }) {
            self.set(Phase::Idle);
        }
    }

    pub fn set_sent(&self, sent: bool) {
        lock(&self.doing).sent = sent;
    }

    /// Asks the connection to end after the current answer.
    pub fn end(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
        self.ending.notify_one();
    }

    /// Whether it was asked to end.
    pub fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Relaxed)
    }

    pub async fn ending(&self) {
        self.ending.notified().await;
    }

    /// Ends the connection, whatever its client has not read.
    pub fn abort(&self) {
        self.aborted.store(true, Ordering::Relaxed);
    }

    pub fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::Relaxed)
    }

    /// The client has closed its side: it is gone, or it waits for the answer and sends nothing more.
    pub fn set_sends_no_more(&self) {
        self.sends_no_more.store(true, Ordering::Relaxed);
    }

    pub fn sends_no_more(&self) -> bool {
        self.sends_no_more.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::{Link, Network, Phase};

    #[test]
    fn the_rest_of_a_body_is_no_head() {
        let link = Link::new(Network::V4(1));
        link.received();
        assert_eq!(link.doing().phase, Phase::Head);
        for phase in [Phase::Handling { interim: true }, Phase::Answering { interim: true }] {
            link.set(phase);
            link.received();
            assert_eq!(link.doing().phase, phase);
        }
        link.waits();
        assert!(link.idle_since().is_some());
        link.received();
        assert!(link.idle_since().is_none() && link.doing().phase == Phase::Head);
    }
}
