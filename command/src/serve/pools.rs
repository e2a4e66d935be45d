//! Thread pools for work on the host, so that one kind of work cannot take the threads and processors of another. Each
//! has a few threads and a limited number of requests that wait for one (`admission.rs`); more are refused with 503 or
//! 429, and `Retry-After`. Replies have threads of their own (`replies.rs`), and `/health` needs none.

use super::admission::{Admission, AdmissionQueue};
use super::failure::Failure;
use super::memory::Share;
use axum::http::StatusCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// How many requests are parsed, and their prompts made, at once.
const PROMPTS: usize = 4;

/// How many requests without a reply run at once, and how many wait.
const TOOLS: (usize, usize) = (2, 32);

/// How many requests read files of models at once, to describe models or to begin to load one.
const MODELS: usize = 4;

/// The threads of all pools together.
pub const THREADS: usize = PROMPTS + TOOLS.0 + MODELS;

pub struct Pools {
    /// For requests for replies: their bodies are parsed and their prompts made.
    pub prompts: Pool,
    /// For requests that are answered without the model: tokens, prompts as text, and numbers of tokens.
    pub tools: Pool,
    /// For requests that read files of models.
    pub models: Pool,
}

impl Pools {
    /// `replies` is the maximum number of replies that run or wait at once, and `limits_clients` whether a client can
    /// have only half of the places for requests without a reply. A single client may use all places for replies;
    /// other clients displace its waiting ones (`reply_permits.rs`).
    pub fn new(replies: usize, limits_clients: bool) -> Self {
        let prompts = Pool::new("prepare prompts", (PROMPTS, replies));
        let models = Pool::new("read models", (MODELS, replies));
        let tools = Pool::new("answer requests without a reply", TOOLS);
        Self { prompts, tools: Pool { admission: tools.admission.shared(limits_clients), ..tools }, models }
    }
}

pub struct Pool {
    /// What its threads do, for errors.
    work: &'static str,
    running: Arc<Semaphore>,
    /// How many can run.
    most: usize,
    /// For requests that run and those that wait.
    admission: AdmissionQueue,
}

/// A thread of a pool, which is free again when this is dropped.
pub struct Turn {
    _running: OwnedSemaphorePermit,
    _admission: Admission,
}

impl Turn {
    /// Runs something on the thread, which may resize its memory. Nothing can interrupt it there: it continues even if
    /// the client disconnects, so it keeps the thread and its memory until it ends.
    pub async fn run<T: Send + 'static>(
        self,
        memory: Share,
        run: impl FnOnce(&Share) -> Result<T, Failure> + Send + 'static,
    ) -> Result<(T, Share), Failure> {
        let work = move || {
            let _turn = self;
            run(&memory).map(|result| (result, memory))
        };
        let failed = |_| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "the thread of the request failed");
        tokio::task::spawn_blocking(work).await.map_err(failed)?
    }
}

impl Pool {
    /// `most` says how many can run and how many can wait.
    fn new(work: &'static str, most: (usize, usize)) -> Self {
        let admission = AdmissionQueue::new("to be processed", most);
        Self { work, running: Arc::new(Semaphore::new(most.0)), most: most.0, admission }
    }

    /// Waits for a thread, but not for longer than `patience`.
    pub async fn turn(&self, patience: Duration) -> Result<Turn, Failure> {
        let admission = self.admission.admit()?;
        match timeout(patience, self.running.clone().acquire_owned()).await {
            Ok(Ok(running)) => Ok(Turn { _running: running, _admission: admission }),
            _ => Err(Failure::unavailable(format!("all threads that {} are busy; try again later", self.work), 2)),
        }
    }

    /// Whether another request would be refused.
    pub fn is_full(&self) -> bool {
        self.admission.is_full()
    }

    /// How many are running, and how many are waiting.
    pub fn state(&self) -> (usize, usize) {
        let busy = self.most - self.running.available_permits().min(self.most);
        (busy, self.admission.taken().saturating_sub(busy))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::Pool;
    use std::time::Duration;

    #[tokio::test]
    async fn a_full_pool_refuses_requests() {
        let pool = Pool::new("prepare prompts", (1, 1));
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
        assert_eq!((late.status.as_u16(), late.retry_after), (503, Some(2)), "no request waits forever");
        drop(second);
        assert_eq!(pool.state(), (0, 0));
    }
}
