//! A reply as an asynchronous stream (feature `stream`), for any runtime or none.
//!
//! The reply is generated on a thread that the stream owns, so that nothing blocks whoever polls. Events wait in a queue
//! until they are taken; the generation does not wait for that. Dropping the stream stops the generation within a
//! token, or a few submissions of a prompt, and waits for it; no thread outlives its stream.

use crate::chat::Chat;
use crate::error::{Error, Result};
use crate::generate::{Cancel, Event};
pub use futures_core::Stream;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;

/// A reply on its way, and the conversation that it belongs to: a stream of events, the last of which is
/// [`Event::Done`] or an error.
///
/// ```
/// use std::future::poll_fn;
/// use std::pin::Pin;
/// use wglm::stream::Stream;
/// use wglm::{Chat, Event};
///
/// # async fn example(chat: Chat) -> wglm::Result<()> {
/// let mut events = chat.into_stream("Tell me a story about an owl.")?;
/// // `while let Some(event) = events.next().await` with the `StreamExt` of one's choice
/// while let Some(event) = poll_fn(|context| Pin::new(&mut events).poll_next(context)).await {
///     if let Event::Text(text) = event? {
///         print!("{text}");
///     }
/// }
/// let chat = events.into_chat()?; // for the next turn
/// # Ok(())
/// # }
/// # #[cfg(feature = "demo-model")]
/// # fn main() -> wglm::Result<()> {
/// # use wglm::{Gguf, Gpu, GpuOptions, LoadOptions, Model};
/// # let gpu = Gpu::open(&GpuOptions::default())?;
/// # let model = Model::load(&Gguf::from_static(wglm::DEMO_MODEL)?, &gpu, &LoadOptions::default())?;
/// # let mut chat = Chat::new(&model)?;
/// # chat.options.max_tokens = Some(8);
/// # pollster::block_on(example(chat))
/// # }
/// # #[cfg(not(feature = "demo-model"))]
/// # fn main() {}
/// ```
pub struct ReplyStream {
    queue: Arc<Queue>,
    /// Stops this reply and nothing else, as the conversation's own stops this one too.
    cancel: Cancel,
    /// None once it was waited for.
    worker: Option<JoinHandle<Chat>>,
}

/// What is between the thread and whoever polls.
#[derive(Default)]
struct Queue {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    ready: VecDeque<Result<Event>>,
    over: bool,
    waker: Option<Waker>,
}

impl Queue {
    /// The state; it is sound after a panic too, for nothing that can panic happens while it is held.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let waker = {
            let mut state = self.state();
            change(&mut state);
            state.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }
}

/// Has a conversation reply, to a text if there is one.
fn tell(chat: &mut Chat, text: Option<&str>, mut tell: impl FnMut(Result<Event>)) {
    match if let Some(text) = text { chat.send(text) } else { chat.reply() } {
        Ok(events) => events.for_each(tell),
        Err(error) => tell(Err(error)),
    }
}

/// Ends the stream however the thread ends: with an error if it died.
struct End(Arc<Queue>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.change(|state| {
            if std::thread::panicking() {
                state.ready.push_back(Err(died()));
            }
            state.over = true;
        });
    }
}

fn died() -> Error {
    Error::Worker { doing: "generating a reply" }
}

impl Chat {
    /// As [`Chat::send`], on a thread of its own. [`ReplyStream::into_chat`] gives the conversation back.
    ///
    /// # Errors
    /// [`Error::Worker`] if there can be no thread, and the conversation is gone with it; all others arrive as events.
    pub fn into_stream(self, text: &str) -> Result<ReplyStream> {
        ReplyStream::start(self, Some(text.to_owned()))
    }

    /// As [`Chat::reply`], on a thread of its own.
    ///
    /// # Errors
    /// As [`Chat::into_stream`].
    pub fn into_reply_stream(self) -> Result<ReplyStream> {
        ReplyStream::start(self, None)
    }
}

impl ReplyStream {
    fn start(mut chat: Chat, text: Option<String>) -> Result<Self> {
        let (queue, cancel) = (Arc::<Queue>::default(), chat.options.cancel.below());
        let (end, own) = (End(queue.clone()), cancel.clone());
        let work = move || {
            let shared = std::mem::replace(&mut chat.options.cancel, own);
            tell(&mut chat, text.as_deref(), |event| end.0.change(|state| state.ready.push_back(event)));
            chat.options.cancel = shared;
            chat
        };
        let worker = std::thread::Builder::new().name("wglm reply".to_owned()).spawn(work);
        let worker = worker.map_err(|_| Error::Worker { doing: "starting to generate a reply" })?;
        Ok(Self { queue, cancel, worker: Some(worker) })
    }

    /// The conversation. A reply that is not at its end is stopped, and joins the conversation as far as it came; events
    /// that were not taken are gone.
    ///
    /// # Errors
    /// [`Error::Worker`] if the thread died.
    pub fn into_chat(mut self) -> Result<Chat> {
        self.stop().ok_or_else(died)
    }

    /// Stops the thread and waits for it.
    fn stop(&mut self) -> Option<Chat> {
        self.cancel.cancel();
        self.worker.take()?.join().ok()
    }
}

impl Stream for ReplyStream {
    type Item = Result<Event>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut state = self.queue.state();
        if let Some(event) = state.ready.pop_front() {
            return Poll::Ready(Some(event));
        }
        if state.over {
            return Poll::Ready(None);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl std::fmt::Debug for ReplyStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReplyStream").field("over", &self.worker.is_none()).finish_non_exhaustive()
    }
}

impl Drop for ReplyStream {
    fn drop(&mut self) {
        self.stop();
    }
}
