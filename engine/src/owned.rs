//! Replies that an app stores together with their conversation: a [`SharedChat`] and the [`OwnedReply`]s to it.
//!
//! The reply owns a thread that generates it, so that its events can be waited for, checked for, or polled by any
//! runtime. Events wait in a queue without a limit: the generation does not wait for the reader. Dropping the reply
//! stops the generation before the next token, or after a few submissions of a prompt, and waits for the thread, so no
//! thread outlives its reply, unless it is inside a waker of the app that does not return.

mod queue;
mod shared;

pub use shared::SharedChat;

use crate::cancel::Cancel;
use crate::chat::Chat;
#[cfg(feature = "schema")]
use crate::constrain::Constraint;
use crate::error::{Error, Result};
use crate::generate::{Chooser, Event};
use crate::text::Message;
use queue::Queue;
use shared::ChatSlot;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;

/// A reply that is being generated, which borrows nothing: [`SharedChat`] makes it, and a struct of the app's can hold
/// both. It is an iterator whose [`next`](Iterator::next) waits for the next event. A window calls
/// [`try_next`](Self::try_next) in each frame instead, and with the feature `stream` `OwnedReply::into_stream` makes an
/// asynchronous stream of it. The last event is [`Event::Done`] or an error. Generation begins when the first event is
/// requested, on a thread that the reply owns.
///
/// ```
/// use wglm::{Event, OwnedReply, SharedChat};
///
/// /// A view of the app's.
/// struct View {
///     chat: SharedChat,
///     reply: Option<OwnedReply>,
///     text: String,
/// }
///
/// impl View {
///     fn send(&mut self, text: &str) {
///         self.reply = Some(self.chat.send(text));
///     }
///
///     /// Called in each frame.
///     fn receive(&mut self) -> wglm::Result<()> {
///         let Some(reply) = &mut self.reply else { return Ok(()) };
///         while let std::task::Poll::Ready(event) = reply.try_next() {
///             match event {
///                 Some(Ok(Event::Text(text))) => self.text += &text,
///                 Some(event) => drop(event?),
///                 None => {
///                     self.reply = None;
///                     break;
///                 }
///             }
///         }
///         Ok(())
///     }
/// }
/// # fn main() -> wglm::Result<()> {
/// # use wglm::{Chat, Gguf, Gpu, GpuOptions, LoadOptions, Model};
/// # let gpu = Gpu::open(&GpuOptions::default())?;
/// # let model = Model::load(&Gguf::from_static(wglm::DEMO_MODEL)?, &gpu, &LoadOptions::default())?;
/// # let mut chat = Chat::new(&model)?;
/// # chat.options.max_tokens = Some(8);
/// # chat.reasoning = Some(false);
/// # let mut view = View { chat: SharedChat::new(chat), reply: None, text: String::new() };
/// # view.send("Tell me a story about an owl.");
/// # while view.reply.is_some() {
/// #     view.receive()?;
/// #     std::thread::sleep(std::time::Duration::from_millis(1));
/// # }
/// # assert!(!view.text.is_empty() && view.chat.messages().len() == 2);
/// # Ok(())
/// # }
/// ```
pub struct OwnedReply {
    slot: Arc<ChatSlot>,
    queue: Arc<Queue>,
    /// Stops this reply only. The caller's [`Cancel`] can stop it too.
    cancel: Cancel,
    chooser: Option<BoxedChooser>,
    state: ReplyState,
}

/// The state of a reply: it waits for the first request for an event, is being generated, or has ended.
enum ReplyState {
    Waiting(ReplyRequest),
    Running(JoinHandle<()>),
    Over,
}

/// What to reply to: a new text of the user, answered freely or to match a constraint; the messages as they are; a
/// given beginning of the reply; or a reply that was cut off, continued as it began or to match a constraint.
enum ReplyRequest {
    Text(String),
    #[cfg(feature = "schema")]
    Ask(String, Constraint),
    Messages,
    Prefill(String),
    Resume,
    #[cfg(feature = "schema")]
    ResumeAsk(Constraint),
}

/// A chooser that is used on another thread.
type BoxedChooser = Box<dyn Chooser + Send>;

impl OwnedReply {
    fn new(slot: Arc<ChatSlot>, asked: ReplyRequest) -> Self {
        Self {
            slot,
            queue: Arc::default(),
            cancel: Cancel::default(),
            chooser: None,
            state: ReplyState::Waiting(asked),
        }
    }

    /// Lets `cancel` stop this reply, even if it was cancelled before this call.
    pub fn with_cancel(self, cancel: &Cancel) -> Self {
        self.cancel.join(cancel);
        self
    }

    /// Lets `chooser` take part in the choice of tokens. Call this before the first event is requested.
    pub fn with_chooser(mut self, chooser: impl Chooser + Send + 'static) -> Self {
        self.chooser = Some(Box::new(chooser));
        self
    }

    /// A handle that stops this reply only, from any thread.
    pub fn cancel(&self) -> Cancel {
        self.cancel.clone()
    }

    /// The messages of the conversation. They include the user's message from the first event on, and the reply from
    /// the last event on.
    pub fn messages(&self) -> Vec<Message> {
        self.slot.messages()
    }

    /// The next event, if one is ready. This does not wait: [`Poll::Pending`] means that there is no event yet, and
    /// `None` that the reply has ended.
    pub fn try_next(&mut self) -> Poll<Option<Result<Event>>> {
        self.poll(None)
    }

    /// Like [`try_next`](Self::try_next), and wakes the task of `context` when there is an event. The waker is called
    /// on the reply's thread. It may do anything, even drop the reply. If it panics, the reply continues.
    ///
    /// Dropping the reply waits for its thread, so a waker should not wait for a lock that the app holds while it drops
    /// the reply. If it does, the drop takes half a second, and the conversation is free once the waker has returned.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Event>>> {
        self.poll(Some(context.waker()))
    }

    pub(crate) fn poll(&mut self, waker: Option<&Waker>) -> Poll<Option<Result<Event>>> {
        match self.start() {
            Ok(()) => self.queue.poll(waker),
            Err(error) => {
                self.queue.close();
                Poll::Ready(Some(Err(error)))
            }
        }
    }

    /// Returns the conversation. A reply that has not ended is stopped, and what was generated of it joins the
    /// conversation; events that were not taken are lost. A [`SharedChat`] that held the conversation is then empty.
    ///
    /// # Errors
    /// [`Error::ChatInUse`] if another reply uses the conversation, or if the waker of [`poll_next`](Self::poll_next)
    /// does not return because it waits for the caller; [`Error::Argument`] if another reply has taken it out.
    pub fn into_chat(mut self) -> Result<Chat> {
        self.stop();
        self.slot.take()
    }

    /// Starts the thread, unless it was started before.
    ///
    /// # Errors
    /// [`Error::NoThread`]; [`Error::ChatInUse`] if another reply is being generated; [`Error::Forked`], once, in a
    /// process without the thread.
    fn start(&mut self) -> Result<()> {
        if !matches!(self.state, ReplyState::Over) {
            self.slot.check_process().inspect_err(|_| {
                // The handle of a thread that does not exist here is neither joined nor detached.
                std::mem::forget(std::mem::replace(&mut self.state, ReplyState::Over));
            })?;
        }
        if !matches!(self.state, ReplyState::Waiting(_)) {
            return Ok(());
        }
        let ReplyState::Waiting(asked) = std::mem::replace(&mut self.state, ReplyState::Over) else { return Ok(()) };
        let (reserved, sender, cancel) = (self.slot.reserve()?, self.queue.sender(), self.cancel.clone());
        let chooser = self.chooser.take();
        let work = move || reserved.reply(asked, &cancel, chooser, |event| sender.send(event));
        let worker = std::thread::Builder::new().name("wglm reply".to_owned()).spawn(work);
        let refused = |reason: std::io::Error| Error::NoThread { doing: "generating a reply", reason: reason.into() };
        self.state = ReplyState::Running(worker.map_err(refused)?);
        Ok(())
    }

    /// Stops the thread and waits for it.
    fn stop(&mut self) {
        self.cancel.cancel();
        if let ReplyState::Running(worker) = std::mem::replace(&mut self.state, ReplyState::Over) {
            self.queue.join(worker); // if it panicked, the queue holds an error
        }
    }
}

impl Iterator for OwnedReply {
    type Item = Result<Event>;

    /// The next event. Waits for it.
    fn next(&mut self) -> Option<Self::Item> {
        match self.start() {
            Ok(()) => self.queue.wait(),
            Err(error) => {
                self.queue.close();
                Some(Err(error))
            }
        }
    }
}

impl std::fmt::Debug for OwnedReply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OwnedReply").field("over", &self.queue.is_over()).finish_non_exhaustive()
    }
}

impl Drop for OwnedReply {
    fn drop(&mut self) {
        self.stop();
    }
}
