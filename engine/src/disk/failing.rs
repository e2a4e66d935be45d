//! How long nothing is stored after the disk has failed. While the disk is full or read-only, replies thus neither read
//! pages from the GPU for nothing nor repeat the warning.

use crate::threads::lock;
use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The first pause.
const SHORTEST: Duration = Duration::from_secs(60);
/// The longest pause, if the disk fails again and again.
const LONGEST: Duration = Duration::from_secs(60 * 60);

/// The end and the length of the pause; `None` if the disk works.
#[derive(Default)]
pub struct Failing(Mutex<Option<(Instant, Duration)>>);

impl Failing {
    /// Whether nothing is stored now.
    pub fn is_now(&self) -> bool {
        lock(&self.0).is_some_and(|(until, _)| Instant::now() < until)
    }

    /// The disk has failed.
    pub fn begin(&self, folder: &Path, reason: &io::Error) {
        let mut state = lock(&self.0);
        let pause = state.map_or(SHORTEST, |(_, pause)| (2 * pause).min(LONGEST));
        let is_first = state.replace((Instant::now() + pause, pause)).is_none();
        drop(state);
        if is_first {
            tracing::warn!("the disk cache in {} stores nothing for a while: {reason}", folder.display());
        }
    }

    /// The disk works.
    pub fn end(&self, folder: &Path) {
        if lock(&self.0).take().is_some() {
            tracing::warn!("the disk cache in {} can be written to again", folder.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_pauses_for_longer_each_time() {
        let failing = Failing::default();
        let pause = || lock(&failing.0).map(|(_, pause)| pause.as_secs());
        assert!(!failing.is_now());
        for wanted in [60, 120, 240, 480, 960, 1920, 3600, 3600] {
            failing.begin(Path::new("cache"), &io::ErrorKind::StorageFull.into());
            assert!(failing.is_now() && pause() == Some(wanted));
        }
        failing.end(Path::new("cache"));
        assert!(!failing.is_now());
    }
}
