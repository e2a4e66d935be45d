//! How fast bytes arrive, and how long the rest will take.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The time over which the speed is averaged.
const SPAN: Duration = Duration::from_secs(8);
/// The shortest time from which a speed is computed.
const LEAST: Duration = Duration::from_secs(1);

/// The number of bytes at several times in the last seconds.
#[derive(Debug, Default)]
pub struct Rate(VecDeque<(Instant, u64)>);

impl Rate {
    /// Notes how many bytes have arrived so far.
    pub fn note(&mut self, now: Instant, bytes: u64) {
        self.0.push_back((now, bytes));
        while self.0.len() > 2 && self.0.get(1).is_some_and(|(then, _)| now.duration_since(*then) >= SPAN) {
            self.0.pop_front();
        }
    }

    /// Bytes per second, once that is known.
    pub fn speed(&self) -> Option<f64> {
        let ((first, before), (last, now)) = (self.0.front()?, self.0.back()?);
        let time = last.duration_since(*first);
        (time >= LEAST).then(|| now.saturating_sub(*before) as f64 / time.as_secs_f64())
    }

    /// The time that this many further bytes take at the same speed.
    pub fn left(&self, bytes: u64) -> Option<Duration> {
        let speed = self.speed().filter(|speed| *speed > 0.0)?;
        Duration::try_from_secs_f64(bytes as f64 / speed).ok()
    }
}

/// A time in words, no more exact than an estimate can be.
pub fn words(time: Duration) -> String {
    match time.as_secs() {
        0..=90 => format!("{} s", time.as_secs().max(1)),
        91..=5400 => format!("{} min", time.as_secs().div_ceil(60)),
        seconds => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, Instant, Rate, words};

    #[test]
    fn the_speed_is_that_of_the_last_seconds() {
        let start = Instant::now();
        let mut rate = Rate::default();
        assert_eq!((rate.speed(), rate.left(1)), (None, None));
        rate.note(start, 1000);
        rate.note(start + Duration::from_millis(500), 2000);
        assert_eq!(rate.speed(), None, "too early to tell");
        rate.note(start + Duration::from_secs(2), 5000);
        assert_eq!(rate.speed(), Some(2000.0));
        assert_eq!(rate.left(10_000), Some(Duration::from_secs(5)));
        for second in 3..60 {
            rate.note(start + Duration::from_secs(second), 5000);
        }
        assert_eq!((rate.speed(), rate.left(10_000)), (Some(0.0), None), "nothing arrives any more");
    }

    #[test]
    fn times_are_short() {
        for (seconds, text) in [(0, "1 s"), (59, "59 s"), (91, "2 min"), (3000, "50 min"), (7260, "2 h 1 min")] {
            assert_eq!(words(Duration::from_secs(seconds)), text);
        }
    }
}
