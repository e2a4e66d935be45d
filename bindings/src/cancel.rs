//! Stopping a long call from another thread.

use std::sync::Arc;

/// Stops the calls that it is passed to. Any thread can use it, even before a call has begun.
#[derive(Debug, Default, uniffi::Object)]
pub struct Cancel {
    inner: wglm::Cancel,
}

#[uniffi::export]
impl Cancel {
    /// Creates one that has not been cancelled.
    #[uniffi::constructor]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Stops the calls. This returns at once; they end at the next opportunity.
    pub fn cancel(&self) {
        self.inner.cancel();
    }

    /// Whether `cancel` was called.
    pub fn is_cancelled(&self) -> bool {
        self.inner.is_cancelled()
    }
}

/// The library's handle of a cancellation that is optional.
pub fn inner(cancel: Option<Arc<Cancel>>) -> wglm::Cancel {
    cancel.map(|cancel| cancel.inner.clone()).unwrap_or_default()
}
