//! Replies as asynchronous streams (feature `stream`), for any runtime or none.
//!
//! The stream owns a thread that generates the reply, so polling never blocks. Events wait in a queue, which has no
//! limit: the generation does not wait for the reader. Dropping the stream stops the generation before the next token,
//! or after a few submissions of a prompt, and waits for the thread, so no thread outlives its stream.

mod queue;
mod shared;

pub use futures_core::Stream;
pub use shared::SharedChat;

use crate::chat::Chat;
use crate::error::{Error, Result};
use crate::generate::{Cancel, Chooser, Event};
use crate::text::Message;
use queue::Queue;
use shared::ChatSlot;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread::JoinHandle;

/// A reply that is being generated, as a stream of events, and the conversation that it belongs to. The last event is
/// [`Event::Done`] or an error. Generation begins with the first poll.
///
/// ```
/// use std::future::poll_fn;
/// use std::pin::Pin;
/// use wglm::stream::Stream;
/// use wglm::{Chat, Event};
///
/// # async fn example(chat: Chat) -> wglm::Result<()> {
/// let mut events = chat.into_stream("Tell me a story about an owl.");
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
    slot: Arc<ChatSlot>,
    queue: Arc<Queue>,
    /// Stops this reply only. The caller's [`Cancel`] can stop it too.
    cancel: Cancel,
    chooser: Option<BoxedChooser>,
    state: StreamState,
}

/// The state of a stream: it waits for the first poll, generates, or has ended.
enum StreamState {
    Waiting(ReplyRequest),
    Running(JoinHandle<()>),
    Over,
}

/// What the conversation replies to: a new text of the user, its messages, a beginning of the reply, or a reply that
/// was cut off.
enum ReplyRequest {
    Text(String),
    Messages,
    Prefill(String),
    Resume,
}

/// A chooser that is used on another thread.
type BoxedChooser = Box<dyn Chooser + Send>;

impl Chat {
    /// Like [`Chat::send`], on a thread of its own that starts at the first poll. All errors arrive as events.
    /// [`ReplyStream::into_chat`] returns the conversation. If the task that owns the stream may be dropped, use a
    /// [`SharedChat`], which keeps the conversation.
    pub fn into_stream(self, text: &str) -> ReplyStream {
        SharedChat::new(self).send(text)
    }

    /// Like [`Chat::reply`], on a thread of its own, as [`Chat::into_stream`].
    pub fn into_reply_stream(self) -> ReplyStream {
        SharedChat::new(self).reply()
    }
}

impl ReplyStream {
    fn new(slot: Arc<ChatSlot>, asked: ReplyRequest) -> Self {
        Self {
            slot,
            queue: Arc::default(),
            cancel: Cancel::default(),
            chooser: None,
            state: StreamState::Waiting(asked),
        }
    }

    /// Lets `cancel` stop this reply, also if it was cancelled before this call.
    pub fn with_cancel(self, cancel: &Cancel) -> Self {
        self.cancel.join(cancel);
        self
    }

    /// Lets `chooser` take part in the choice of tokens. Call this before the first poll.
    pub fn with_chooser(mut self, chooser: impl Chooser + Send + 'static) -> Self {
        self.chooser = Some(Box::new(chooser));
        self
    }

    /// A handle that stops this reply only, from any thread.
    pub fn cancel(&self) -> Cancel {
        self.cancel.clone()
    }

    /// The messages of the conversation. The user's message is among them from the first event on, the reply from the
    /// last event on.
    pub fn messages(&self) -> Vec<Message> {
        self.slot.messages()
    }

    /// Returns the conversation. A reply that has not ended is stopped and joins the conversation as far as it was
    /// generated; events that were not taken are lost. If a [`SharedChat`] held the conversation, it no longer does.
    ///
    /// # Errors
    /// [`Error::Argument`] if another stream uses the conversation, or has taken it out.
    pub fn into_chat(mut self) -> Result<Chat> {
        self.stop();
        self.slot.take()
    }

    /// Starts the thread, unless that was done before.
    fn start(&mut self) -> Result<()> {
        if !matches!(self.state, StreamState::Waiting(_)) {
            return Ok(());
        }
        let StreamState::Waiting(asked) = std::mem::replace(&mut self.state, StreamState::Over) else { return Ok(()) };
        let (slot, sender, cancel) = (self.slot.clone(), self.queue.sender(), self.cancel.clone());
        let chooser = self.chooser.take();
        let work = move || slot.reply(asked, &cancel, chooser, |event| sender.send(event));
        let worker = std::thread::Builder::new().name("wglm reply".to_owned()).spawn(work);
        let refused = |reason: std::io::Error| Error::NoThread { doing: "generating a reply", reason: reason.into() };
        self.state = StreamState::Running(worker.map_err(refused)?);
        Ok(())
    }

    /// Stops the thread and waits for it.
    fn stop(&mut self) {
        self.cancel.cancel();
        if let StreamState::Running(worker) = std::mem::replace(&mut self.state, StreamState::Over) {
            let _ = worker.join(); // if it panicked, the queue holds an error
        }
    }
}

impl Stream for ReplyStream {
    type Item = Result<Event>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.start() {
            Ok(()) => self.queue.poll(context),
            Err(error) => {
                self.queue.close();
                Poll::Ready(Some(Err(error)))
            }
        }
    }
}

impl std::fmt::Debug for ReplyStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReplyStream").field("over", &self.queue.is_over()).finish_non_exhaustive()
    }
}

impl Drop for ReplyStream {
    fn drop(&mut self) {
        self.stop();
    }
}
