//! The time that the replies to a request have: when it is over they are asked to end, and a moment later nobody waits
//! for them any more.

use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use wglm::Cancel;

/// When replies have to be at their end.
pub struct Deadline {
    /// When their time is over; after that, when what they do about it is no longer waited for.
    at: Instant,
    /// How long they have to end then.
    end: Duration,
    is_over: bool,
    cancels: Vec<Cancel>,
}

impl Deadline {
    /// `time` from now, and then `end` for the replies that `cancels` ask to end.
    pub fn new(time: Duration, end: Duration, cancels: Vec<Cancel>) -> Self {
        Self { at: Instant::now() + time, end, is_over: false, cancels }
    }

    pub fn at(&self) -> Instant {
        self.at
    }

    /// Whether the replies were asked to end because their time is over.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Asks the replies to end, because their time is over.
    pub fn expire(&mut self) {
        self.is_over = true;
        self.at = Instant::now() + self.end;
        self.cancel();
    }

    /// Asks all replies to end.
    pub fn cancel(&self) {
        self.cancels.iter().for_each(Cancel::cancel);
    }

    /// Asks one of the replies to end.
    pub fn cancel_one(&self, index: usize) {
        self.cancels.get(index).into_iter().for_each(Cancel::cancel);
    }

    /// Waits for something that the replies or their client do. If the time passes first, the replies are asked to end;
    /// nothing is returned if that does not help.
    pub async fn wait<T>(&mut self, happens: impl Future<Output = T>) -> Option<T> {
        // A timeout looks first whether it has happened: what always has would never be told that the time is over.
        if !self.is_over && Instant::now() >= self.at {
            self.expire();
        }
        let mut happens = std::pin::pin!(happens);
        loop {
            match timeout_at(self.at, happens.as_mut()).await {
                Ok(happened) => return Some(happened),
                Err(_) if self.is_over => return None,
                Err(_) => self.expire(),
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::Deadline;
    use std::future::{pending, ready};
    use std::time::{Duration, Instant};
    use wglm::Cancel;

    /// A deadline, a handle that it cancels, and what comes of waiting for something.
    fn waited(time: Duration, happens: impl Future<Output = u8>) -> (Option<u8>, bool, Duration) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let cancel = Cancel::default();
        runtime.block_on(async {
            let start = Instant::now();
            let mut deadline = Deadline::new(time, Duration::from_millis(100), vec![cancel.clone()]);
            let came = deadline.wait(happens).await;
            assert_eq!(deadline.is_over(), cancel.is_cancelled());
            (came, cancel.is_cancelled(), start.elapsed())
        })
    }

    #[test]
    fn a_reply_that_always_has_something_to_say_ends_too() {
        let (came, cancelled, _) = waited(Duration::ZERO, ready(1));
        assert_eq!((came, cancelled), (Some(1), true));
        let (came, cancelled, _) = waited(Duration::from_secs(60), ready(1));
        assert_eq!((came, cancelled), (Some(1), false));
    }

    #[test]
    fn who_takes_nothing_is_waited_for_a_moment_only() {
        let (came, cancelled, took) = waited(Duration::from_millis(50), pending());
        assert_eq!((came, cancelled), (None, true));
        assert!((0.14..30.0).contains(&took.as_secs_f64()), "{took:?}");
    }
}
