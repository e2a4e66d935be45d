//! Pools of the host's work, so that one kind of it cannot take the processors and threads of another. Each has a few
//! threads at a time, and a bounded number of requests that wait for one; a request beyond them is refused with 503 and
//! `Retry-After`. Replies have threads of their own (`job.rs`), and `/health` needs none.

use super::failure::Failure;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// How many requests are read and their prompts made at a time.
const PROMPTS: usize = 4;

/// How many of the small tools run at a time, and how many wait.
const TOOLS: (usize, usize) = (2, 32);

/// The threads that all pools take together.
pub const THREADS: usize = PROMPTS + TOOLS.0;

/// The pools of a server.
pub struct Pools {
    /// Requests for replies: their bodies are read and their prompts made.
    pub prompts: Pool,
    /// What answers without the model: tokens and prompts as texts, and their numbers.
    pub tools: Pool,
}

impl Pools {
    /// For a server that may have so many replies run and wait.
    pub fn new(replies: usize) -> Self {
        Self { prompts: Pool::new("prompts", PROMPTS, replies), tools: Pool::new("tools", TOOLS.0, TOOLS.1) }
    }
}

/// A pool.
pub struct Pool {
    pub name: &'static str,
    running: Arc<Semaphore>,
    /// For those that run and those that wait.
    places: Arc<Semaphore>,
    most: (usize, usize),
}

/// A thread of a pool, which is free again when this is dropped.
pub struct Turn {
    _running: OwnedSemaphorePermit,
    _place: OwnedSemaphorePermit,
}

impl Pool {
    fn new(name: &'static str, running: usize, waiting: usize) -> Self {
        let places = running.saturating_add(waiting).min(Semaphore::MAX_PERMITS);
        let (of_running, places) = (Arc::new(Semaphore::new(running)), Arc::new(Semaphore::new(places)));
        Self { name, running: of_running, places, most: (running, waiting) }
    }

    /// Waits for a thread, but not for longer than `patience`.
    ///
    /// # Errors
    /// A [`Failure`] if too many wait, or if that takes too long.
    pub async fn turn(&self, patience: Duration) -> Result<Turn, Failure> {
        let (running, waiting) = self.most;
        let full = |_| {
            let message = format!("{} are busy: {running} run and {waiting} wait; try again later", self.what());
            Failure::unavailable(message, 1)
        };
        let place = self.places.clone().try_acquire_owned().map_err(full)?;
        match timeout(patience, self.running.clone().acquire_owned()).await {
            Ok(Ok(running)) => Ok(Turn { _running: running, _place: place }),
            _ => Err(Failure::unavailable(format!("{} are busy; try again later", self.what()), 2)),
        }
    }

    fn what(&self) -> String {
        format!("the threads for {}", self.name)
    }

    /// Whether another one would be refused.
    pub fn is_full(&self) -> bool {
        self.places.available_permits() == 0
    }

    /// How many run, and how many wait.
    pub fn state(&self) -> (usize, usize) {
        let (running, waiting) = self.most;
        let busy = running - self.running.available_permits().min(running);
        let all = running.saturating_add(waiting) - self.places.available_permits();
        (busy, all.saturating_sub(busy))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::Pool;
    use std::time::Duration;

    #[test]
    fn who_comes_to_a_full_pool_is_sent_away() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let pool = Pool::new("prompts", 1, 1);
            let moment = Duration::from_millis(20);
            let first = pool.turn(moment).await.unwrap();
            assert_eq!((pool.state(), pool.is_full()), ((1, 0), false));
            let patient = pool.turn(Duration::from_secs(60));
            let after = async {
                tokio::task::yield_now().await;
                assert_eq!((pool.state(), pool.is_full()), ((1, 1), true));
                let refused = pool.turn(moment).await.err().unwrap();
                assert_eq!((refused.status.as_u16(), refused.retry_after), (503, Some(1)));
                drop(first);
            };
            let (second, ()) = tokio::join!(patient, after);
            let late = pool.turn(moment).await.err().unwrap();
            assert_eq!((late.status.as_u16(), late.retry_after), (503, Some(2)), "nobody waits without end");
            drop(second);
            assert_eq!(pool.state(), (0, 0));
        });
    }
}
