//! The time limit of a request: when it is reached, its replies are cancelled. If they do not end then, or if their
//! client does not read the rest, the connection ends.

use super::link::Link;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::sleep;
use wglm_engine::Cancel;

/// The time that cancelled replies have to end, and their client has to read the rest.
const END: Duration = Duration::from_secs(10);

/// The time that a client has to read the failure of replies that do not end.
const FAILURE: Duration = Duration::from_secs(1);

/// The time limit of a request. Dropping it lifts the limit.
pub struct Deadline {
    is_over: Arc<AtomicBool>,
    given_up: Arc<Notify>,
    timer: AbortHandle,
}

impl Deadline {
    /// A limit of `time` from now for replies that `cancels` cancel and a client at the other end of `link`.
    pub fn new(time: Duration, cancels: Vec<Cancel>, link: Arc<Link>) -> Self {
        Self::with_end(time, END, cancels, link)
    }

    fn with_end(time: Duration, end: Duration, cancels: Vec<Cancel>, link: Arc<Link>) -> Self {
        let (is_over, given_up) = (Arc::new(AtomicBool::new(false)), Arc::new(Notify::new()));
        let (over, give_up) = (is_over.clone(), given_up.clone());
        let timer = tokio::spawn(async move {
            sleep(time).await;
            over.store(true, Ordering::Release);
            cancels.iter().for_each(Cancel::cancel);
            sleep(end).await;
            give_up.notify_one();
            sleep(FAILURE).await;
            link.abort();
        });
        Self { is_over, given_up, timer: timer.abort_handle() }
    }

    /// Whether the limit was reached.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Waits until the replies have been cancelled and have had their time to end.
    pub async fn given_up(&self) {
        self.given_up.notified().await;
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        self.timer.abort();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Deadline, FAILURE};
    use crate::serve::client::Caller;
    use std::time::Duration;
    use tokio::time::{sleep, timeout};
    use wglm_engine::Cancel;

    #[tokio::test]
    async fn replies_are_cancelled_and_then_given_up() {
        let (moment, cancel, link) = (Duration::from_millis(50), Cancel::default(), Caller::current().link);
        let deadline = |time| Deadline::with_end(time, moment, vec![cancel.clone()], link.clone());
        drop(deadline(Duration::ZERO));
        let long = deadline(Duration::from_secs(60));
        assert!(timeout(2 * moment, long.given_up()).await.is_err());
        assert!(!cancel.is_cancelled() && !long.is_over(), "nothing was reached, or it was dropped");
        let short = deadline(moment);
        short.given_up().await;
        assert!(cancel.is_cancelled() && short.is_over() && !link.is_aborted());
        sleep(2 * FAILURE).await;
        assert!(link.is_aborted());
    }
}
