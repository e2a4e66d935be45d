//! Measures frames while something moves: the times between them, and how much of that the window itself needs.
//!
//! Only while something moves is the window drawn again and again, so only then do times between frames mean anything.
//! These times depend on the load of the machine. The amount of wglm's work during a frame does not.

use serde::Serialize;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The number of frames that are remembered.
const MEMORY: usize = 600;

/// The latest frames that directly followed another one.
#[derive(Default)]
pub struct Frames {
    /// When the last frame began, if something moved in it.
    last: Option<Instant>,
    /// The times between the beginnings of two frames.
    between: VecDeque<Duration>,
    /// The times that the window worked on a frame: layout, drawing commands and submission, without waiting for the
    /// screen.
    work: VecDeque<Duration>,
    dispatches: Dispatches,
}

/// The dispatches that wglm submitted while frames were drawn. They are counted for software drivers, where frames wait
/// for them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Dispatches {
    /// The number of frames in which they were counted.
    pub frames: usize,
    /// The most dispatches during one frame.
    pub most: u64,
}

/// Percentiles of frame times in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Times {
    pub p50: f64,
    pub p95: f64,
    pub max: f64,
}

impl Frames {
    /// Forgets all frames.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Notes that a frame begins at `now`, whether something moves in it, and the seconds that the window worked on the
    /// frame before.
    pub fn begin(&mut self, now: Instant, moving: bool, work: Option<f32>) {
        if let (Some(last), true) = (self.last, moving) {
            remember(&mut self.between, now - last);
            let work = work.and_then(|seconds| Duration::try_from_secs_f32(seconds).ok());
            work.into_iter().for_each(|work| remember(&mut self.work, work));
        }
        self.last = moving.then_some(now);
    }

    /// Notes that the last frame has ended, and how many dispatches were submitted during it, if they were counted.
    pub fn end(&mut self, dispatches: Option<u64>) {
        if let (Some(_), Some(count)) = (self.last, dispatches) {
            self.dispatches.frames += 1;
            self.dispatches.most = self.dispatches.most.max(count);
        }
    }

    /// The dispatches that were submitted while frames were drawn.
    pub fn dispatches(&self) -> Dispatches {
        self.dispatches
    }

    /// When the last frame began, if something moved in it.
    pub fn last(&self) -> Option<Instant> {
        self.last
    }

    /// The number of frames.
    pub fn count(&self) -> usize {
        self.between.len()
    }

    /// Percentiles of the times between frames.
    pub fn between(&self) -> Times {
        times(&self.between)
    }

    /// Percentiles of the window's own work.
    pub fn work(&self) -> Times {
        times(&self.work)
    }
}

fn remember(list: &mut VecDeque<Duration>, time: Duration) {
    if list.len() == MEMORY {
        list.pop_front();
    }
    list.push_back(time);
}

fn times(list: &VecDeque<Duration>) -> Times {
    let mut sorted: Vec<Duration> = list.iter().copied().collect();
    sorted.sort_unstable();
    // The smallest time that this percentage of the frames does not exceed.
    let percentile = |percent: usize| {
        let rank = (sorted.len() * percent).div_ceil(100).max(1);
        sorted.get(rank - 1).map_or(0.0, |time| time.as_secs_f64() * 1e3)
    };
    Times { p50: percentile(50), p95: percentile(95), max: percentile(100) }
}

#[cfg(test)]
mod tests {
    use super::{Dispatches, Duration, Frames, Instant, MEMORY, Times};

    #[test]
    fn percentiles_are_of_the_frames_in_motion() {
        let (mut frames, mut now) = (Frames::default(), Instant::now());
        frames.begin(now, true, None);
        for millis in 1..=100 {
            now += Duration::from_millis(millis);
            frames.begin(now, true, Some(0.002));
        }
        frames.begin(now + Duration::from_secs(9), false, None);
        frames.begin(now + Duration::from_secs(99), true, None);
        assert_eq!(frames.count(), 100);
        assert_eq!(frames.between(), Times { p50: 50.0, p95: 95.0, max: 100.0 });
        assert!((frames.work().max - 2.0).abs() < 1e-3);
    }

    #[test]
    fn dispatches_count_while_something_moves() {
        let mut frames = Frames::default();
        frames.end(Some(9));
        for count in [Some(1), None, Some(0)] {
            frames.begin(Instant::now(), true, None);
            frames.end(count);
        }
        assert_eq!(frames.dispatches(), Dispatches { frames: 2, most: 1 });
    }

    #[test]
    fn old_frames_are_forgotten() {
        let (mut frames, now) = (Frames::default(), Instant::now());
        for frame in 0..2 * MEMORY as u32 {
            frames.begin(now + frame * Duration::from_millis(10), true, None);
        }
        assert_eq!((frames.count(), frames.between().max), (MEMORY, 10.0));
    }
}
