//! A value that takes a while to make, such as a list of files, and is used for a moment. Requests that come together
//! share one.

use super::failure::Failure;
use super::server::blocking;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

pub struct Recent<T: ?Sized> {
    keep: Duration,
    /// The lock is held while another value is made.
    made: Arc<Mutex<Option<Made<T>>>>,
}

/// A value, and when its making began and ended.
struct Made<T: ?Sized> {
    began: Instant,
    ended: Instant,
    value: Arc<T>,
}

impl<T: ?Sized + Send + Sync + 'static> Recent<T> {
    /// Each value is used for the time `keep`.
    pub fn new(keep: Duration) -> Self {
        Self { keep, made: Arc::default() }
    }

    /// The value. If there is none, or it is too old or from before `after`, `make` makes one on a thread.
    pub async fn get(
        &self,
        after: Option<Instant>,
        make: impl FnOnce() -> Arc<T> + Send + 'static,
    ) -> Result<Arc<T>, Failure> {
        let mut made = self.made.clone().lock_owned().await;
        let is_new =
            |made: &&Made<T>| made.ended.elapsed() < self.keep && after.is_none_or(|after| made.began >= after);
        if let Some(made) = made.as_ref().filter(is_new) {
            return Ok(made.value.clone());
        }
        // The thread has the lock, so that only one is at work even if clients leave.
        let work = move || {
            let (began, value) = (Instant::now(), make());
            *made = Some(Made { began, ended: Instant::now(), value: value.clone() });
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
    use std::time::{Duration, Instant};

    /// How long a value takes to make.
    const LONG: Duration = Duration::from_millis(20);

    /// How many values are made for requests that come together, and for two later ones that need one made after they
    /// came.
    async fn made(keep: Duration) -> [usize; 2] {
        let (recent, count) = (Recent::<usize>::new(keep), Arc::new(AtomicUsize::new(0)));
        let get = |after| {
            let count = count.clone();
            recent.get(after, move || {
                std::thread::sleep(LONG);
                Arc::new(count.fetch_add(1, Ordering::SeqCst))
            })
        };
        let count = || count.load(Ordering::SeqCst);
        let together = tokio::join!(get(None), get(None));
        assert!(together.0.is_ok() && together.1.is_ok() && get(None).await.is_ok());
        let (made, now) = (count(), Some(Instant::now()));
        let later = tokio::join!(get(now), get(now));
        assert!(later.0.is_ok() && later.1.is_ok());
        [made, count() - made]
    }

    #[tokio::test]
    async fn requests_share_a_value_while_it_is_new() {
        assert_eq!(made(Duration::from_secs(1000)).await, [1, 1]);
        assert_eq!(made(Duration::ZERO).await, [3, 2]);
    }
}
