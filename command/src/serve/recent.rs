//! A value that takes a while to make, such as a list of files, and is used for a moment. Requests that come together
//! share one.

use super::failure::Failure;
use super::server::blocking;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

pub struct Recent<T: ?Sized> {
    keep: Duration,
    /// The value, and when it was made. The lock is held while another one is made.
    made: Arc<Mutex<Option<(Instant, Arc<T>)>>>,
}

impl<T: ?Sized + Send + Sync + 'static> Recent<T> {
    /// Each value is used for the time `keep`.
    pub fn new(keep: Duration) -> Self {
        Self { keep, made: Arc::default() }
    }

    /// The value. If there is none, or it is too old, `make` makes one on a thread.
    pub async fn get(&self, make: impl FnOnce() -> Arc<T> + Send + 'static) -> Result<Arc<T>, Failure> {
        let mut made = self.made.clone().lock_owned().await;
        if let Some((_, value)) = made.as_ref().filter(|(since, _)| since.elapsed() < self.keep) {
            return Ok(value.clone());
        }
        // The thread has the lock, so that only one is at work even if clients leave.
        let work = move || {
            let value = make();
            *made = Some((Instant::now(), value.clone()));
            value
        };
        blocking(work).await
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::Recent;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    /// How many values are made for requests that come together and for a later one.
    async fn made(keep: Duration) -> usize {
        let (recent, count) = (Recent::<usize>::new(keep), Arc::new(AtomicUsize::new(0)));
        let get = || {
            let count = count.clone();
            recent.get(move || Arc::new(count.fetch_add(1, Ordering::SeqCst)))
        };
        let (first, second) = tokio::join!(get(), get());
        let third = get().await;
        [first, second, third].map(Result::unwrap).iter().max().map_or(0, |last| **last + 1)
    }

    #[tokio::test]
    async fn requests_share_a_value_while_it_is_new() {
        assert_eq!((made(Duration::from_secs(1000)).await, made(Duration::ZERO).await), (1, 3));
    }
}
