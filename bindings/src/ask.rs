//! An answer that is a value.

use crate::error::WglmError;
use crate::lock;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use wglm::Cancel;
use wglm::serde_json::Value;

/// An answer that is being generated to match a JSON schema. It begins with the first call that waits for it. When the
/// last reference is dropped, the reply ends.
#[derive(Debug, uniffi::Object)]
pub struct Asking {
    asking: Mutex<wglm::Asking<Value>>,
    cancel: Cancel,
}

#[uniffi::export]
impl Asking {
    /// The value, as JSON. It is returned once. Awaiting it occupies no thread.
    ///
    /// # Errors
    /// `Unfinished` if the reply ended before the value was complete, and those of `Reply.next`.
    pub async fn value(&self) -> Result<String, WglmError> {
        poll_fn(|context| {
            let mut asking = lock(&self.asking);
            match Pin::new(&mut *asking).poll(context) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(value) => Poll::Ready(value.map(|_| asking.text().to_owned())),
            }
        })
        .await
        .map_err(WglmError::from)
    }

    /// The value, as JSON. It is returned once. Blocks until it is complete.
    ///
    /// # Errors
    /// Those of `value`.
    pub fn wait(&self) -> Result<String, WglmError> {
        pollster::block_on(self.value())
    }

    /// The answer so far: the beginning of the value's JSON.
    pub fn text(&self) -> String {
        lock(&self.asking).text().to_owned()
    }

    /// Ends the reply before its next token. The error is then `Unfinished`.
    pub fn stop(&self) {
        self.cancel.cancel();
    }
}

impl Asking {
    pub(crate) fn new(asking: wglm::Asking<Value>) -> Arc<Self> {
        Arc::new(Self { cancel: asking.cancel(), asking: Mutex::new(asking) })
    }
}
