//! A reply that is being generated.

use crate::error::WglmError;
use crate::event::{Event, Stats};
use crate::lock;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use wglm::{Cancel, OwnedReply};

/// A reply that is being generated, on a thread of its own from the first request for an event on. Its events can be
/// awaited (`next`), waited for (`wait_next`), or delivered to a listener (`deliver`). When the last reference is
/// dropped, the reply ends, and what was generated of it joins the conversation.
#[derive(Debug, uniffi::Object)]
pub struct Reply {
    reply: Mutex<OwnedReply>,
    cancel: Cancel,
    /// Whether a call waits for the next event. There can be only one.
    waiting: AtomicBool,
}

/// Receives the events of a reply, on the thread that called `Reply.deliver`.
#[uniffi::export(with_foreign)]
pub trait EventListener: Send + Sync {
    /// Called with each event. The last one is `Done`, unless the reply fails.
    fn on_event(&self, event: Event);
}

#[uniffi::export]
impl Reply {
    /// The next event; none after the last one. Awaiting it occupies no thread.
    ///
    /// # Errors
    /// Those of the reply, after which there are no more events: `ContextFull`, `InvalidInput`, `OutOfMemory`,
    /// `DeviceLost` and others. `Busy` if another call waits for the next event, or another reply is being generated.
    pub async fn next(&self) -> Result<Option<Event>, WglmError> {
        if self.waiting.swap(true, Ordering::Acquire) {
            return Err(WglmError::Busy { reason: "another call waits for the next event of this reply".to_owned() });
        }
        let _waiting = Waiting(&self.waiting);
        loop {
            match poll_fn(|context| lock(&self.reply).poll_next(context)).await.transpose()? {
                None => return Ok(None),
                Some(event) => {
                    if let Some(event) = Event::of(event) {
                        return Ok(Some(event));
                    }
                }
            }
        }
    }

    /// The next event; none after the last one. Blocks until there is one.
    ///
    /// # Errors
    /// Those of `next`.
    pub fn wait_next(&self) -> Result<Option<Event>, WglmError> {
        pollster::block_on(self.next())
    }

    /// Calls the listener with each event, on this thread, and returns the statistics at the end. Blocks until then.
    ///
    /// # Errors
    /// Those of `next`.
    pub fn deliver(&self, listener: Arc<dyn EventListener>) -> Result<Option<Stats>, WglmError> {
        let mut end = None;
        while let Some(event) = self.wait_next()? {
            if let Event::Done { stats } = &event {
                end = Some(stats.clone());
            }
            listener.on_event(event);
        }
        Ok(end)
    }

    /// Ends the reply before its next token. The last event is then `Done`, with `Stop.Cancelled`.
    pub fn stop(&self) {
        self.cancel.cancel();
    }
}

impl Reply {
    pub(crate) fn new(reply: OwnedReply) -> Arc<Self> {
        Arc::new(Self { cancel: reply.cancel(), reply: Mutex::new(reply), waiting: AtomicBool::new(false) })
    }
}

/// Marks a reply as being waited for until this is dropped, which also happens when the future of a call is dropped.
struct Waiting<'a>(&'a AtomicBool);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
