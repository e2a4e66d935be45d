//! The stop button.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Stops a reply from any thread. Clones share it.
///
/// It belongs to one reply, or to several that answer one question, as where functions are called in between: whoever
/// asks makes it and hands it over with the question, so that it counts whenever it is asked to stop, before the reply
/// has begun too. It stays asked: the next question takes a new one.
#[derive(Debug, Clone, Default)]
pub struct Cancel {
    asked: Arc<AtomicBool>,
    /// What stops this one too.
    #[cfg(feature = "stream")]
    above: Option<Arc<Cancel>>,
}

impl Cancel {
    /// Asks the reply to stop; it does so within a token, or within a few parts of a prompt's chunk.
    pub fn cancel(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    /// True once asked.
    pub fn is_cancelled(&self) -> bool {
        self.asked.load(Ordering::Relaxed) || self.above_is_cancelled()
    }

    #[cfg(feature = "stream")]
    fn above_is_cancelled(&self) -> bool {
        self.above.as_ref().is_some_and(|above| above.is_cancelled())
    }

    #[cfg(not(feature = "stream"))]
    fn above_is_cancelled(&self) -> bool {
        false
    }

    /// One that this one stops too, and that by itself stops nothing else.
    #[cfg(feature = "stream")]
    pub(crate) fn below(&self) -> Self {
        Self { asked: Arc::default(), above: Some(Arc::new(self.clone())) }
    }
}
